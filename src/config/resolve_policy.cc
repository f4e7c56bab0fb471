#include "config/resolve_policy.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "admission/policy_check.h"
#include "config/policy_lint.h"

namespace berth {
namespace {

class Resolver {
 public:
  Resolver(const ServerConfig& config, const PolicyContext& context, Diagnostics* diagnostics)
      : config_(config), context_(context), diagnostics_(diagnostics) {}

  Policy Run() {
    Policy policy;
    policy.max_running_sequences = config_.scheduler.max_running_sequences;
    policy.max_batched_tokens = config_.scheduler.max_batched_tokens;
    policy.max_queued_requests = config_.server.max_queued_requests.value_or(kUnlimited);
    policy.max_queued_tokens = config_.server.max_queued_tokens.value_or(kUnlimited);
    for (const ClassSettings& c : config_.classes) {
      if (c.name == config_.default_class) policy.default_class = static_cast<ClassId>(policy.classes.size());
      policy.classes.push_back(Class(c));
    }
    for (const TenantSettings& t : config_.tenants) {
      if (t.name == kDefaultTenant) policy.default_tenant = static_cast<TenantId>(policy.tenants.size());
      policy.tenants.push_back(Tenant(t));
    }
    return policy;
  }

 private:
  enum class Rounding { kPromise, kLimit };

  std::int64_t Blocks(const std::string& key, const Quantity& quantity, Rounding rounding) {
    const auto convert = rounding == Rounding::kPromise ? PromisedBlocks : LimitBlocks;
    const std::optional<std::int64_t> blocks = convert(quantity, context_.pool.num_blocks, context_.block_bytes);
    if (!blocks) {
      diagnostics_->Error(key, absl::StrCat(FormatQuantity(quantity),
                                            " cannot be counted in blocks without a model; give "
                                            "one, or write blocks or %"));
    }
    return blocks.value_or(0);
  }

  ClassPolicy Class(const ClassSettings& c) {
    const std::string key = absl::StrCat("classes.", c.name, ".");
    ClassPolicy policy;
    policy.name = c.name;
    policy.priority = c.priority;
    policy.kv_guarantee_blocks = Blocks(key + "kv_guarantee", c.kv_guarantee, Rounding::kPromise);
    policy.kv_borrowing_limit_blocks = Blocks(key + "kv_borrowing_limit", c.kv_borrowing_limit, Rounding::kLimit);
    if (c.kv_lending_limit) {
      policy.kv_lending_limit_blocks = Blocks(key + "kv_lending_limit", *c.kv_lending_limit, Rounding::kPromise);
    }
    policy.slot_guarantee = c.slot_guarantee.value_or(DefaultSlotGuarantee(
        policy.kv_guarantee_blocks, context_.pool.num_blocks, config_.scheduler.max_running_sequences));
    policy.preemptible = c.preemptible;
    policy.max_preemptions = c.max_preemptions;
    policy.max_sequence_tokens = std::min(c.max_sequence_tokens.value_or(kUnlimited),
                                          context_.context_tokens > 0 ? context_.context_tokens : kUnlimited);
    policy.max_output_tokens = c.max_output_tokens.value_or(kUnlimited);
    policy.default_output_tokens = c.default_output_tokens;
    policy.overload = c.overload;
    policy.max_queued_requests = c.queue.max_requests;
    policy.max_queued_tokens = c.queue.max_tokens.value_or(kUnlimited);
    policy.max_wait = c.queue.max_wait;
    policy.default_timeout = c.deadline.default_timeout;
    policy.require = c.deadline.require;
    policy.useful_tokens = c.deadline.useful_tokens;
    policy.inter_token_slo = c.slo.inter_token_latency;
    policy.prefill_min_share =
        static_cast<double>(c.prefill_min_share_millionths) / static_cast<double>(kWholeMillionths);
    policy.stop = c.stop;
    policy.objectives = c.objectives;
    return policy;
  }

  TenantPolicy Tenant(const TenantSettings& t) {
    TenantPolicy policy;
    policy.name = t.name;
    policy.weight = t.weight;
    if (t.classes) {
      policy.classes.emplace();
      for (std::size_t i = 0; i < config_.classes.size(); ++i) {
        const bool allowed =
            std::find(t.classes->begin(), t.classes->end(), config_.classes[i].name) != t.classes->end();
        if (allowed) policy.classes->push_back(static_cast<ClassId>(i));
      }
    }
    policy.max_concurrent_requests = t.max_concurrent_requests.value_or(kUnlimited);
    if (t.max_kv) {
      policy.max_kv_blocks = Blocks(absl::StrCat("tenants.", t.name, ".max_kv"), *t.max_kv, Rounding::kLimit);
    }
    if (t.tokens_per_minute) {
      policy.tokens_per_minute = static_cast<double>(*t.tokens_per_minute);
      policy.burst_tokens = static_cast<double>(t.burst_tokens.value_or(*t.tokens_per_minute));
    }
    return policy;
  }

  const ServerConfig& config_;
  const PolicyContext& context_;
  Diagnostics* const diagnostics_;
};

}  // namespace

std::optional<Policy> ResolvePolicy(const ServerConfig& config, const PolicyContext& context,
                                    Diagnostics* diagnostics) {
  const int errors = diagnostics->errors();
  Policy policy = Resolver(config, context, diagnostics).Run();
  if (diagnostics->errors() == errors) LintPolicy(config, policy, context, diagnostics);
  if (diagnostics->errors() > errors) return std::nullopt;
  if (const absl::Status valid = ValidatePolicy(policy, context.pool); !valid.ok()) {
    diagnostics->Error("", std::string(valid.message()));
    return std::nullopt;
  }
  return policy;
}

}  // namespace berth
