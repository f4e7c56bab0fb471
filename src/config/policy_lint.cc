#include "config/policy_lint.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "admission/demand.h"
#include "admission/reach.h"
#include "config/settings_check.h"

namespace berth {
namespace {

std::string CountBlocks(std::int64_t blocks) { return absl::StrCat(blocks, blocks == 1 ? " block" : " blocks"); }

class ClassLint {
 public:
  ClassLint(const ServerConfig& config, const Policy& policy, ClassId c, const PolicyContext& context,
            Diagnostics* diagnostics)
      : config_(config),
        settings_(config.classes[static_cast<std::size_t>(c)]),
        policy_(policy),
        class_(policy.classes[static_cast<std::size_t>(c)]),
        context_(context),
        reach_(ReachBlocks(policy, c, context.pool.num_blocks)),
        reach_slots_(ReachSlots(policy, c)),
        longest_(class_.max_sequence_tokens),
        diagnostics_(diagnostics) {}

  void Run() {
    if (!StartsAnything()) return;
    Borrowing();
    Lending();
    Lengths();
    Guarantee();
  }

 private:
  void Warning(const char* key, std::string message) { diagnostics_->Warning(Name(key), std::move(message)); }
  std::string Name(const char* key) const { return absl::StrCat("classes.", class_.name, ".", key); }
  bool Given(const char* key) const { return diagnostics_->Given(Name(key)); }

  std::int64_t Blocks(std::int64_t prompt, std::int64_t output) const {
    return WorstBlocks(prompt, output, 1, context_.pool.block_tokens);
  }
  // A one-token prompt whose caller names no length.
  std::int64_t DefaultOutput() const {
    return std::clamp<std::int64_t>(longest_ - 1, 1, settings_.default_output_tokens);
  }
  std::int64_t DefaultBlocks() const { return Blocks(1, DefaultOutput()); }

  bool StartsAnything() {
    if (class_.kv_guarantee_blocks == 0 && settings_.kv_guarantee.amount > 0) {
      Warning("kv_guarantee",
              absl::StrCat(FormatQuantity(settings_.kv_guarantee), " is less than one block of the pool's ",
                           context_.pool.num_blocks, ", so it guarantees nothing; raise it or write 0"));
    }
    if (reach_ < 1) {
      diagnostics_->Error(
          absl::StrCat("classes.", class_.name),
          class_.ceiling_blocks() == 0
              ? "nothing of it can ever start, as it has no kv_guarantee and borrows nothing; give it one of "
                "kv_guarantee and kv_borrowing_limit"
              : "nothing of it can ever start, as it has no kv_guarantee and no block is left to borrow; give "
                "it a kv_guarantee, or lower those of other classes");
      return false;
    }
    if (reach_slots_ < 1) {
      diagnostics_->Error(
          absl::StrCat("classes.", class_.name),
          absl::StrCat("nothing of it can ever start, as all ", policy_.max_running_sequences,
                       " sequence slots are guaranteed to other classes; give it a slot_guarantee, or raise "
                       "scheduler.max_running_sequences"));
      return false;
    }
    return true;
  }

  void Borrowing() {
    const std::int64_t usable = reach_ - class_.kv_guarantee_blocks;
    const std::int64_t limit = class_.kv_borrowing_limit_blocks;
    if (limit <= usable) return;
    const std::string most = usable == 0
                                 ? absl::StrCat("none of ", CountBlocks(limit), " can ever be used")
                                 : absl::StrCat("at most ", usable, " of ", CountBlocks(limit), " can ever be used");
    if (!class_.preemptible) {
      Warning("kv_borrowing_limit", absl::StrCat(most,
                                                 ", as a class that is not preemptible borrows only what is guaranteed "
                                                 "to nobody; set preemptible: true, or lower it"));
    } else if (class_.ceiling_blocks() > context_.pool.num_blocks) {
      Warning("kv_borrowing_limit", absl::StrCat(most, ", as the pool has ", context_.pool.num_blocks, " and ",
                                                 class_.kv_guarantee_blocks, " are the class's own; lower it"));
    } else {
      Warning("kv_borrowing_limit",
              absl::StrCat(most, ", as other classes lend no more (kv_lending_limit); raise theirs or lower it"));
    }
  }

  void Lending() {
    if (!settings_.kv_lending_limit || class_.kv_lending_limit_blocks <= class_.kv_guarantee_blocks) return;
    Warning("kv_lending_limit", absl::StrCat(CountBlocks(class_.kv_lending_limit_blocks),
                                             " are more than the guarantee (", class_.kv_guarantee_blocks,
                                             "), of which all is lent then; lower it or take it "
                                             "out"));
  }

  void Lengths() {
    const std::int64_t context = context_.context_tokens;
    if (context > 0 && settings_.max_sequence_tokens.value_or(0) > context && Given("max_sequence_tokens")) {
      Warning("max_sequence_tokens",
              absl::StrCat(*settings_.max_sequence_tokens, " is more than the model's context of ", context,
                           "; lower it or take it out"));
    }
    const std::string beyond =
        absl::StrCat(", more than the ", reach_, " that one request of the class can ever have; ");
    // T = P + O - 1 tokens are stored, so this length needs exactly the reach.
    const std::int64_t fits = reach_ * context_.pool.block_tokens + 1;
    if (DefaultBlocks() > reach_) {
      Warning("default_output_tokens",
              absl::StrCat("a request that names no length needs ", CountBlocks(DefaultBlocks()), beyond,
                           "lower it to at most ", fits - 1, ", or raise kv_guarantee or kv_borrowing_limit"));
    }
    if (settings_.max_sequence_tokens && longest_ > fits) {
      Warning("max_sequence_tokens",
              absl::StrCat(longest_, " tokens need ", CountBlocks(Blocks(longest_ - 1, 1)), beyond, "lower it to ",
                           fits, ", or raise kv_guarantee or kv_borrowing_limit"));
    } else if (class_.max_output_tokens < kUnlimited && std::min(class_.max_output_tokens, longest_ - 1) > fits - 1) {
      const std::int64_t output = std::min(class_.max_output_tokens, longest_ - 1);
      Warning("max_output_tokens",
              absl::StrCat(output, " tokens need ", CountBlocks(Blocks(1, output)), beyond, "lower it to ", fits - 1,
                           ", or raise kv_guarantee or kv_borrowing_limit"));
    }
  }

  void Guarantee() {
    const std::int64_t guarantee = class_.kv_guarantee_blocks;
    if (guarantee == 0) return;
    if (DefaultBlocks() <= reach_ && DefaultBlocks() > guarantee) {
      Warning("kv_guarantee", absl::StrCat("a request that names no length needs ", CountBlocks(DefaultBlocks()),
                                           ", more than the ", guarantee,
                                           " guaranteed, so the guarantee never serves it; raise "
                                           "it, or lower default_output_tokens"));
    }
    if (class_.slot_guarantee == 0) {
      Warning("slot_guarantee",
              "0 leaves the blocks of kv_guarantee without a sequence that could use them when all slots "
              "are taken; raise it or take it out");
    }
    if (longest_ < kUnlimited && reach_slots_ * Blocks(std::max<std::int64_t>(1, longest_ - 1), 1) < guarantee) {
      Warning("kv_guarantee", absl::StrCat("the ", reach_slots_, " sequences it may run hold at most ",
                                           CountBlocks(reach_slots_ * Blocks(longest_ - 1, 1)), " of the ", guarantee,
                                           " guaranteed; lower it, or raise scheduler.max_running_sequences"));
    }
    TenantQuotas();
  }

  // Every tenant listed for the class has a quota, and together they do not fill the guarantee. The default tenant's
  // limits hold for each unlisted tenant by itself, so with it there is no such sum.
  void TenantQuotas() {
    std::int64_t sum = 0;
    for (std::size_t t = 0; t < policy_.tenants.size(); ++t) {
      if (!MayUse(config_.tenants[t], class_.name)) continue;
      if (config_.tenants[t].name == kDefaultTenant || policy_.tenants[t].max_kv_blocks >= kUnlimited) return;
      sum += policy_.tenants[t].max_kv_blocks;
    }
    if (sum == 0 || sum >= class_.kv_guarantee_blocks) return;
    Warning("kv_guarantee", absl::StrCat("the tenants that may use the class reserve at most ", CountBlocks(sum),
                                         " together (max_kv) of the ", class_.kv_guarantee_blocks,
                                         " guaranteed; lower it, or raise theirs"));
  }

  const ServerConfig& config_;
  const ClassSettings& settings_;
  const Policy& policy_;
  const ClassPolicy& class_;
  const PolicyContext& context_;
  const std::int64_t reach_;
  const std::int64_t reach_slots_;
  const std::int64_t longest_;
  Diagnostics* const diagnostics_;
};

// The parts of a sum that is too large: "interactive 60, batch 50".
template <typename Part>
std::string Parts(const Policy& policy, const Part& part) {
  std::string text;
  for (const ClassPolicy& c : policy.classes) {
    if (part(c) > 0) absl::StrAppend(&text, text.empty() ? "" : ", ", c.name, " ", part(c));
  }
  return text;
}

bool SumsFit(const Policy& policy, const PolicyContext& context, Diagnostics* diagnostics) {
  std::int64_t blocks = 0;
  std::int64_t slots = 0;
  bool borrowing = false;
  for (const ClassPolicy& c : policy.classes) {
    blocks += c.kv_guarantee_blocks;
    slots += c.slot_guarantee;
    borrowing = borrowing || c.kv_borrowing_limit_blocks > 0;
  }
  if (blocks > context.pool.num_blocks) {
    diagnostics->Error("classes",
                       absl::StrCat("the kv_guarantee of all classes add up to ", CountBlocks(blocks), " (",
                                    Parts(policy, [](const ClassPolicy& c) { return c.kv_guarantee_blocks; }),
                                    "), the pool has ", context.pool.num_blocks, "; lower them"));
  }
  if (slots > policy.max_running_sequences) {
    diagnostics->Error("classes", absl::StrCat("the slot_guarantee of all classes add up to ", slots, " (",
                                               Parts(policy, [](const ClassPolicy& c) { return c.slot_guarantee; }),
                                               "), scheduler.max_running_sequences is ", policy.max_running_sequences,
                                               "; lower them or raise that"));
  }
  if (blocks < context.pool.num_blocks && !borrowing) {
    diagnostics->Warning("classes", absl::StrCat(CountBlocks(context.pool.num_blocks - blocks), " of the pool's ",
                                                 context.pool.num_blocks,
                                                 " are guaranteed to nobody and no class may borrow "
                                                 "them; raise a kv_guarantee or a kv_borrowing_limit"));
  }
  return blocks <= context.pool.num_blocks && slots <= policy.max_running_sequences;
}

void LintTenants(const ServerConfig& config, const Policy& policy, const PolicyContext& context,
                 Diagnostics* diagnostics) {
  for (std::size_t t = 0; t < policy.tenants.size(); ++t) {
    const std::int64_t quota = policy.tenants[t].max_kv_blocks;
    const std::string key = absl::StrCat("tenants.", policy.tenants[t].name, ".max_kv");
    if (quota < 1) {
      diagnostics->Error(key, "0 lets the tenant start nothing; raise it, or take its classes away");
      continue;
    }
    for (std::size_t c = 0; c < policy.classes.size() && quota < kUnlimited; ++c) {
      if (!MayUse(config.tenants[t], policy.classes[c].name)) continue;
      const std::int64_t output = std::clamp<std::int64_t>(policy.classes[c].max_sequence_tokens - 1, 1,
                                                           config.classes[c].default_output_tokens);
      const std::int64_t needed = WorstBlocks(1, output, 1, context.pool.block_tokens);
      if (needed <= quota) continue;
      diagnostics->Warning(key,
                           absl::StrCat("a request of class ", policy.classes[c].name, " that names no length needs ",
                                        CountBlocks(needed), ", more than the ", quota,
                                        " the tenant may reserve; raise it, "
                                        "or lower default_output_tokens of the class"));
    }
  }
}

}  // namespace

void LintPolicy(const ServerConfig& config, const Policy& policy, const PolicyContext& context,
                Diagnostics* diagnostics) {
  const bool fits = SumsFit(policy, context, diagnostics);
  for (std::size_t c = 0; c < policy.classes.size() && fits; ++c) {
    ClassLint(config, policy, static_cast<ClassId>(c), context, diagnostics).Run();
  }
  LintTenants(config, policy, context, diagnostics);
}

}  // namespace berth
