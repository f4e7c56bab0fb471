// A metric sink that remembers what it was told.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "berth/metrics.h"

namespace berth::test {

// Thread-safe.
class RecordingMetrics final : public MetricSink {
 public:
  struct Step {
    Duration busy{};
    std::optional<Duration> host_gap;
    std::vector<StepPart> parts;
  };
  // A RequestEnded that owns its words.
  struct End {
    std::string request_id;
    std::string trace_id;
    RequestEnded told;

    std::optional<RefusalReason> refusal() const {
      const auto* reason = std::get_if<RefusalReason>(&told.reason);
      return reason != nullptr ? std::optional(*reason) : std::nullopt;
    }
    std::optional<FinishReason> finish() const {
      const auto* reason = std::get_if<FinishReason>(&told.reason);
      return reason != nullptr ? std::optional(*reason) : std::nullopt;
    }
  };
  struct Told {
    std::int64_t loads = 0;
    LoadSnapshot load;  // the last one
    std::vector<Step> steps;
    std::vector<TokenCame> tokens;
    std::vector<RequestStarted> starts;
    std::vector<std::pair<ClassId, PreemptionMode>> preemptions;
    std::int64_t allocation_failures = 0;
    std::vector<End> ends;
    std::vector<RpcMethod> rpc_starts;
    std::vector<std::pair<RpcMethod, int>> rpc_ends;
  };

  Told told() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }

  void OnPolicy(const PolicyNames&) override {}
  void OnConfigReload(const ConfigReload&) override {}
  void OnLoad(const LoadSnapshot& load) override {
    const std::lock_guard lock(mutex_);
    ++told_.loads;
    told_.load = load;
  }
  void OnStep(const StepRan& step) override {
    const std::lock_guard lock(mutex_);
    told_.steps.push_back({step.busy, step.host_gap, {step.parts.begin(), step.parts.end()}});
  }
  void OnTokens(std::span<const TokenCame> tokens) override {
    const std::lock_guard lock(mutex_);
    told_.tokens.insert(told_.tokens.end(), tokens.begin(), tokens.end());
  }
  void OnStart(const RequestStarted& request) override {
    const std::lock_guard lock(mutex_);
    told_.starts.push_back(request);
  }
  void OnPreemption(ClassId service_class, PreemptionMode mode) override {
    const std::lock_guard lock(mutex_);
    told_.preemptions.emplace_back(service_class, mode);
  }
  void OnKvAllocationFailure() override {
    const std::lock_guard lock(mutex_);
    ++told_.allocation_failures;
  }
  void OnEnd(const RequestEnded& request) override {
    const std::lock_guard lock(mutex_);
    End end{std::string(request.request_id), std::string(request.trace_id), request};
    end.told.request_id = end.told.trace_id = {};
    told_.ends.push_back(std::move(end));
  }
  void OnRpcStart(RpcMethod method) override {
    const std::lock_guard lock(mutex_);
    told_.rpc_starts.push_back(method);
  }
  void OnRpcEnd(RpcMethod method, int status, Duration) override {
    const std::lock_guard lock(mutex_);
    told_.rpc_ends.emplace_back(method, status);
  }

 private:
  mutable std::mutex mutex_;
  Told told_;  // guarded by mutex_
};

}  // namespace berth::test
