// A second opinion on the reservation rules: an independent executable model of them decides thousands of random
// scenarios, and the core must decide the same, plan by plan.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "admission/admission.h"
#include "admission/entry_desk.h"
#include "base/check.h"
#include "fakes/test_data.h"
#include "kv/block_pool.h"

namespace berth {
namespace {

using nlohmann::json;

constexpr std::uint64_t kSalt = 1;

TimePoint At(std::int64_t plan) { return TimePoint(std::chrono::seconds(plan)); }

const char* ModelWord(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kDeadlineExceeded:
      return "deadline";
    case RefusalReason::kCancelledByClient:
      return "cancel";
    case RefusalReason::kQueueTimeout:
      return "queue_timeout";
    case RefusalReason::kPreemptedTooOften:
      return "too_often";
    case RefusalReason::kInvalidRequest:  // n beyond the machine; the model has one word for both
    case RefusalReason::kRequestTooLarge:
      return "too_large";
    case RefusalReason::kKvCapacityExhausted:
      return "kv_exhausted";
    case RefusalReason::kQueueFull:
      return "queue_full";
    default:
      return RefusalReasonName(reason);
  }
}

// What one plan (and the step after it) did, in the words of the model.
struct PlanRecord {
  std::vector<RequestKey> start;
  std::vector<RequestKey> preempt;
  std::set<std::pair<RequestKey, std::string>> end;
  bool operator==(const PlanRecord&) const = default;
  std::string ToString() const {
    json text;
    text["start"] = start;
    text["preempt"] = preempt;
    text["end"] = end;
    return text.dump();
  }
};

struct ModelRequest {
  AdmissionRequest request;
  std::int64_t family = -1;  // requests of one family share the prompt's first whole blocks within `common_tokens`
  std::int64_t common_tokens = 0;
  std::vector<std::int64_t> stops_after;  // per choice: tokens after which it ends by itself
  std::optional<std::int64_t> cancel_at;

  bool live = false;
  bool running = false;
  std::vector<std::int64_t> sampled;
  std::vector<bool> done;
  std::vector<std::int64_t> stored;
  std::vector<std::vector<TokenId>> history;
  std::int64_t computed_prompt = 0;  // tokens of the prompt's full blocks
  std::int64_t computed_total = 0;
  std::optional<BlockReservation> blocks;

  bool AllDone() const {
    return std::ranges::all_of(done, [](bool d) { return d; });
  }
  bool AnySampled() const {
    return std::ranges::any_of(sampled, [](std::int64_t k) { return k > 0; });
  }
};

// Drives the core with the model's step rule. One plan is one second.
class ModelWorld final : public PoolView {
 public:
  explicit ModelWorld(const json& scenario)
      : scenario_(scenario),
        block_tokens_(scenario["B"]),
        budget_(scenario["budget"]),
        policy_(FirstPolicy(scenario)),
        pool_({scenario["N"], scenario["B"]}, static_cast<std::int32_t>(policy_.classes.size())),
        desk_(policy_),
        admission_(pool_.shape(), policy_) {}

  std::map<std::int64_t, PlanRecord> Run() {
    for (now_ = 0; now_ <= scenario_["last_plan"].get<std::int64_t>(); ++now_) {
      ApplyPolicyChanges();
      Arrivals();
      for (auto& r : requests_) {
        if (r->live && r->cancel_at.has_value() && now_ >= *r->cancel_at) admission_.Cancel(r->request.key);
      }
      Commit(admission_.Plan(At(now_), std::chrono::seconds(1), *this));
      CheckBooks();
      Step();
      CheckBooks();
      for (auto& r : requests_) {
        if (r->running) admission_.SetEndStep(r->request.key, admission_.plan_number() + 1 + StepsLeft(*r));
      }
    }
    for (const auto& r : requests_) EXPECT_FALSE(r->live) << "request " << r->request.key << " never ended";
    EXPECT_EQ(pool_.live_blocks() + pool_.unspent_blocks(), 0);
    return std::move(records_);
  }

  void FindCached(RequestKey key, std::vector<CachedBlock>* out) const override {
    const CachedPrefix cached = Cached(*requests_[static_cast<std::size_t>(key)]);
    const auto add = [&](const std::vector<BlockId>& blocks) {
      for (const BlockId block : blocks) out->push_back({block, pool_.SoleHolder(block)});
    };
    add(cached.shared);
    for (const auto& choice : cached.choices) add(choice);
  }
  std::int64_t RecomputeTokens(RequestKey key) const override {
    return requests_[static_cast<std::size_t>(key)]->computed_total;
  }
  std::int64_t UsedTokens(RequestKey /*key*/) const override { return 0; }  // no tenant of the model has a token rate
  std::int64_t StepsToFinish(RequestKey key, std::int64_t cached_blocks) const override {
    const ModelRequest& r = *requests_[static_cast<std::size_t>(key)];
    return StepsLeft(r, std::min(cached_blocks, r.request.prompt_tokens / block_tokens_) * block_tokens_);
  }

 private:
  static ClassPolicy ClassFrom(const json& c) {
    ClassPolicy policy;
    policy.name = "class";
    policy.priority = c["prio"];
    policy.kv_guarantee_blocks = c["G"];
    policy.kv_borrowing_limit_blocks = c["borrow"];
    policy.kv_lending_limit_blocks = c["lend"];
    policy.slot_guarantee = c["SG"];
    policy.preemptible = c["pre"];
    policy.max_preemptions = c["maxp"];
    policy.max_queued_requests = c["bound"];
    policy.max_wait = std::chrono::seconds(c["maxwait"].get<std::int64_t>());
    return policy;
  }

  static Policy FirstPolicy(const json& scenario) {
    Policy policy;
    for (const json& c : scenario["classes"]) policy.classes.push_back(ClassFrom(c));
    policy.max_running_sequences = scenario["M"];
    policy.tenants.resize(3);
    for (const auto& [tenant, blocks] : scenario["quota"].items()) {
      policy.tenants[static_cast<std::size_t>(std::stoi(tenant))].max_kv_blocks = blocks;
    }
    return policy;
  }

  void ApplyPolicyChanges() {
    for (const json& change : scenario_["policy"]) {
      if (change["at"] != now_) continue;
      if (change.contains("M")) policy_.max_running_sequences = change["M"];
      for (const json& entry : change["classes"]) policy_.classes[entry[0].get<std::size_t>()] = ClassFrom(entry[1]);
      desk_.SetPolicy(policy_);
      admission_.SetPolicy(policy_);
      for (const auto& ending : admission_.TakeEnded()) End(ending);
    }
  }

  void Arrivals() {
    for (const json& a : scenario_["reqs"]) {
      if (a["arr"] != now_) continue;
      auto r = std::make_unique<ModelRequest>();
      AdmissionRequest& q = r->request;
      q.key = static_cast<RequestKey>(requests_.size());
      q.service_class = a["c"];
      q.tenant = a["ten"];
      q.prompt_tokens = a["P"];
      q.max_output_tokens = a["O"];
      q.n = a["n"];
      q.arrival = At(now_);
      q.deadline = At(a["dl"].get<std::int64_t>());
      q.overload = a["rej"].get<bool>() ? Overload::kReject : Overload::kQueue;
      r->family = a["fam"];
      r->common_tokens = a["L"];
      r->stops_after = a["eos"].get<std::vector<std::int64_t>>();
      if (!a["cancel"].is_null()) r->cancel_at = a["cancel"].get<std::int64_t>();
      const auto n = static_cast<std::size_t>(q.n);
      r->sampled.resize(n);
      r->done.resize(n);
      r->stored.resize(n);
      r->history.assign(n, PromptOf(*r));
      auto refusal = desk_.Enter({q.service_class, q.tenant, q.n, false, 1});
      if (!refusal.has_value()) {
        refusal = admission_.Submit(q, At(now_));
        if (refusal.has_value()) desk_.Leave(q.service_class);
      }
      r->live = !refusal.has_value();
      if (refusal.has_value()) records_[now_].end.insert({q.key, ModelWord(refusal->reason)});
      requests_.push_back(std::move(r));
    }
  }

  std::vector<TokenId> PromptOf(const ModelRequest& r) const {
    std::vector<TokenId> prompt;
    const std::int64_t common = r.common_tokens / block_tokens_ * block_tokens_;
    for (std::int64_t p = 0; p < r.request.prompt_tokens; ++p) {
      const std::int64_t token = p < common ? 1'000'000 * (r.family + 2) + p : 500'000'000 + 10'000 * r.request.key + p;
      prompt.push_back(static_cast<TokenId>(token));
    }
    return prompt;
  }

  CachedPrefix Cached(const ModelRequest& r) const {
    CachedPrefix cached;
    if (r.family < 0) return cached;
    std::vector<std::span<const TokenId>> histories;
    for (std::size_t q = 0; q < r.history.size(); ++q) {
      histories.push_back(r.done[q] ? std::span<const TokenId>() : std::span<const TokenId>(r.history[q]));
    }
    pool_.FindCached(kSalt, r.request.prompt_tokens, histories, &cached);
    return cached;
  }

  std::int64_t StepsLeft(const ModelRequest& r) const { return StepsLeft(r, r.computed_prompt); }
  std::int64_t StepsLeft(const ModelRequest& r, std::int64_t computed_prompt) const {
    std::int64_t longest = 0;
    for (std::size_t q = 0; q < r.done.size(); ++q) {
      if (!r.done[q]) longest = std::max(longest, r.request.max_output_tokens - r.sampled[q]);
    }
    return longest + CeilDiv(std::max<std::int64_t>(0, r.request.prompt_tokens - computed_prompt),
                             std::max<std::int64_t>(1, budget_));
  }

  void LetGo(ModelRequest* r) {
    r->blocks.reset();
    r->running = false;
    r->computed_prompt = 0;
  }

  void End(const AdmissionPlan::Ending& ending) {
    ModelRequest& r = *requests_[static_cast<std::size_t>(ending.key)];
    if (!r.running) desk_.Leave(r.request.service_class);
    LetGo(&r);
    r.live = false;
    records_[now_].end.insert({ending.key, ModelWord(ending.refusal.reason)});
  }

  void Commit(const AdmissionPlan& plan) {
    PlanRecord& record = records_[now_];
    for (const auto& ending : plan.end) End(ending);
    for (const RequestKey key : plan.preempt) {
      ModelRequest& r = *requests_[static_cast<std::size_t>(key)];
      LetGo(&r);
      const bool ends = std::ranges::any_of(plan.too_often, [&](const auto& e) { return e.key == key; });
      if (ends) {
        r.live = false;
        record.end.insert({key, "too_often"});
      } else {
        desk_.Park(r.request.service_class);
        record.preempt.push_back(key);
      }
    }
    for (const auto& start : plan.admit) {
      ModelRequest& r = *requests_[static_cast<std::size_t>(start.key)];
      const CachedPrefix cached = Cached(r);
      const std::int64_t shared = r.request.prompt_tokens / block_tokens_;
      r.blocks = pool_.Reserve({start.key, r.request.service_class, start.reserved_blocks, shared, r.request.n}, kSalt,
                               cached);
      BERTH_CHECK_MSG(r.blocks.has_value(), "the pool has no room for what admission started");
      desk_.Leave(r.request.service_class);
      r.running = true;
      r.computed_prompt = static_cast<std::int64_t>(cached.shared.size()) * block_tokens_;
      for (std::size_t q = 0; q < r.stored.size(); ++q) {
        const std::size_t own = q < cached.choices.size() ? cached.choices[q].size() : 0;
        r.stored[q] = (shared + static_cast<std::int64_t>(own)) * block_tokens_;
      }
      record.start.push_back(start.key);
    }
  }

  void CheckBooks() {
    pool_.CheckBook();
    const Ledger& ledger = admission_.ledger();
    for (ClassId c = 0; c < static_cast<ClassId>(policy_.classes.size()); ++c) {
      ASSERT_EQ(ledger.used(c), pool_.used_blocks(c)) << "class " << c << " plan " << now_;
    }
    ASSERT_EQ(ledger.pool_used(), pool_.live_blocks() + pool_.unspent_blocks()) << "plan " << now_;
  }

  // ---- the model's step rule
  void Step() {
    std::vector<ModelRequest*> running;
    for (auto& r : requests_) {
      if (r->running) running.push_back(r.get());
    }
    std::set<std::pair<ModelRequest*, std::size_t>> decoding;
    for (ModelRequest* r : running) {
      const std::int64_t full = r->request.prompt_tokens / block_tokens_ * block_tokens_;
      if (!r->AnySampled() || r->computed_prompt < full) continue;
      for (std::size_t q = 0; q < r->done.size(); ++q) {
        if (!r->done[q] && r->request.prompt_tokens + r->sampled[q] - r->stored[q] == 1) decoding.insert({r, q});
      }
    }
    std::int64_t left = budget_ - static_cast<std::int64_t>(decoding.size());
    for (ModelRequest* r : running) {
      for (std::size_t q = 0; q < r->done.size(); ++q) {
        if (decoding.contains({r, q})) Advance(r, q, 1);
      }
    }
    left = std::max<std::int64_t>(left, 1);
    std::ranges::stable_sort(running, [&](const ModelRequest* a, const ModelRequest* b) {
      const auto rank = [&](const ModelRequest* r) {
        return std::tuple(-policy_.classes[static_cast<std::size_t>(r->request.service_class)].priority,
                          r->request.deadline, r->request.key);
      };
      return rank(a) < rank(b);
    });
    for (ModelRequest* r : running) Prefill(r, &left, decoding);
    for (ModelRequest* r : running) {
      if (r->running && r->AllDone()) Finish(r);
    }
  }

  void Prefill(ModelRequest* r, std::int64_t* left, const std::set<std::pair<ModelRequest*, std::size_t>>& decoding) {
    if (!r->running) return;
    const std::int64_t prompt = r->request.prompt_tokens;
    const std::int64_t full = prompt / block_tokens_ * block_tokens_;
    if (r->computed_prompt<full&& * left> 0) {
      const std::int64_t chunk = std::min(*left, full - r->computed_prompt);
      for (std::int64_t i = 0; i < chunk; ++i) {
        r->blocks->Cover(0, ++r->computed_prompt);
        r->blocks->MarkComputed(0, r->history[0], r->computed_prompt);
      }
      *left -= chunk;
      r->computed_total += chunk;
    }
    if (r->computed_prompt < full) return;
    if (!r->AnySampled()) {
      const std::int64_t tail = prompt - full;
      if (tail > 0 && *left <= 0) return;
      const std::size_t tables = r->request.max_output_tokens == 1 ? 1 : r->done.size();
      for (std::size_t q = 0; q < tables; ++q) r->blocks->Cover(static_cast<std::int32_t>(q), prompt);
      *left -= tail;
      for (std::size_t q = 0; q < r->done.size(); ++q) {
        r->stored[q] = prompt;
        Sample(r, q);
      }
    } else {
      for (std::size_t q = 0; q < r->done.size(); ++q) {
        const std::int64_t need = prompt + r->sampled[q] - r->stored[q];
        if (r->done[q] || need <= 0 || *left <= 0 || decoding.contains({r, q})) continue;
        const std::int64_t chunk = std::min(need, *left);
        *left -= chunk;
        Advance(r, q, chunk);
      }
    }
    if (r->running && r->AllDone()) Finish(r);
  }

  void Advance(ModelRequest* r, std::size_t q, std::int64_t tokens) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      r->blocks->Cover(static_cast<std::int32_t>(q), ++r->stored[q]);
      r->blocks->MarkComputed(static_cast<std::int32_t>(q), r->history[q], r->stored[q]);
      ++r->computed_total;
    }
    if (r->stored[q] == r->request.prompt_tokens + r->sampled[q]) Sample(r, q);
  }

  void Sample(ModelRequest* r, std::size_t q) {
    const std::int64_t position = r->request.prompt_tokens + r->sampled[q];
    r->history[q].push_back(static_cast<TokenId>(1'000'000'000 + 100'000 * r->request.key +
                                                 20'000 * static_cast<std::int64_t>(q) + position));
    ++r->sampled[q];
    if (r->sampled[q] < r->request.max_output_tokens && r->sampled[q] < r->stops_after[q]) return;
    r->done[q] = true;
    if (r->AllDone()) return;
    std::vector<BlockId> released;
    r->blocks->EndChoice(static_cast<std::int32_t>(q), admission_.BlocksAfterEndChoice(r->request.key), &released);
    admission_.EndChoice(r->request.key, released, At(now_));
  }

  void Finish(ModelRequest* r) {
    LetGo(r);
    r->live = false;
    admission_.Finish(r->request.key, At(now_), 0);
    records_[now_].end.insert({r->request.key, "ok"});
  }

  const json& scenario_;
  std::int64_t block_tokens_;
  std::int64_t budget_;
  Policy policy_;
  BlockPool pool_;
  std::vector<std::unique_ptr<ModelRequest>> requests_;
  EntryDesk desk_;
  Admission admission_;
  std::int64_t now_ = 0;
  std::map<std::int64_t, PlanRecord> records_;
};

// Fills in the scenarios' decisions and compares. Returns whether all plans agree.
bool Agrees(const json& scenario) {
  std::map<std::int64_t, PlanRecord> expected;
  for (const auto& [plan, decided] : scenario["plans"].items()) {
    PlanRecord& record = expected[std::stoll(plan)];
    record.start = decided["start"].get<std::vector<RequestKey>>();
    record.preempt = decided["preempt"].get<std::vector<RequestKey>>();
    for (const json& end : decided["end"]) record.end.insert({end[0].get<RequestKey>(), end[1].get<std::string>()});
  }
  std::map<std::int64_t, PlanRecord> actual = ModelWorld(scenario).Run();
  std::erase_if(actual, [](const auto& e) { return e.second == PlanRecord(); });
  for (auto& [plan, record] : expected) {
    // Both a full queue and a size that can never fit: the model names the size, the order of verdicts the queue.
    std::set<std::pair<RequestKey, std::string>> ends;
    for (auto [key, why] : record.end) {
      if (why == "too_large" && actual[plan].end.contains({key, "queue_full"})) why = "queue_full";
      ends.insert({key, why});
    }
    record.end = std::move(ends);
    if (actual[plan] == record) continue;
    ADD_FAILURE() << "seed " << scenario["seed"] << " plan " << plan << "\n  model " << record.ToString()
                  << "\n  core  " << actual[plan].ToString();
    return false;
  }
  for (const auto& [plan, record] : actual) {
    if (expected.contains(plan)) continue;
    ADD_FAILURE() << "seed " << scenario["seed"] << " plan " << plan << "\n  model decided nothing\n  core  "
                  << record.ToString();
    return false;
  }
  return true;
}

TEST(LedgerModel, TheCoreDecidesEveryPlanAsTheModelDoes) {
  BERTH_REQUIRE_SHARED(model, "examples/ledger-model/model.py");
  const std::string folder = model.substr(0, model.rfind('/'));
  const std::string output = testing::TempDir() + "/ledger_model_scenarios." + std::to_string(getpid()) + ".json";
  const char* first = std::getenv("SEED");
  const char* count = std::getenv("SCENARIOS");
  const std::string command = std::string(BERTH_PYTHON) + " " + BERTH_EXPORT_SCRIPT + " " + folder + " " + output +
                              " " + (first == nullptr ? "1" : first) + " " + (count == nullptr ? "2000" : count);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const json scenarios = json::parse(test::ReadFile(output));
  std::remove(output.c_str());
  int differ = 0;
  std::size_t starts = 0;
  std::size_t preemptions = 0;
  for (const json& scenario : scenarios) {
    for (const json& plan : scenario["plans"]) {
      starts += plan["start"].size();
      preemptions += plan["preempt"].size();
    }
    if (!Agrees(scenario) && ++differ >= 5) break;
  }
  EXPECT_EQ(differ, 0);
  EXPECT_GT(preemptions, scenarios.size() / 10) << "the scenarios hardly test reclaim";
  std::cout << scenarios.size() << " scenarios, " << starts << " starts, " << preemptions << " preemptions\n";
}

}  // namespace
}  // namespace berth
