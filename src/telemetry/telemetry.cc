#include "telemetry/telemetry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "telemetry/exposition.h"
#include "telemetry/label_rows.h"
#include "telemetry/load_gauges.h"
#include "telemetry/metric_store.h"
#include "telemetry/name_slots.h"
#include "telemetry/process_stats.h"
#include "telemetry/slo.h"

namespace berth {
namespace {

LabelRowSets AllLabelRows(const TelemetryOptions& options) {
  LabelRowSets sets = FixedLabelRows();
  LabelRows& methods = RowsOf(&sets, RowSet::kGrpcMethod);
  methods.names = {"grpc_method"};
  for (const std::string& method : options.rpc_methods) methods.rows.push_back({method});
  RowsOf(&sets, RowSet::kGrpcCall) = GrpcCallRows(options.rpc_methods);
  RowsOf(&sets, RowSet::kBuild) = {.names = {"version", "revision", "backend"},
                                   .rows = {{options.version, options.revision, options.backend}}};
  RowsOf(&sets, RowSet::kConfig) = {.names = {"hash"}, .rows = {{options.config_hash}}};
  RowsOf(&sets, RowSet::kCacheConfig) = {
      .names = {"block_size", "num_gpu_blocks"},
      .rows = {{absl::StrCat(options.pool.block_tokens), absl::StrCat(options.pool.num_blocks)}}};
  return sets;
}

double UnixTime(UnixSeconds time) { return static_cast<double>(time.time_since_epoch().count()); }

// Every slot is where it was.
bool IsUnchanged(std::span<const int> from, int old_size) {
  if (std::ssize(from) != old_size) return false;
  for (int i = 0; i < old_size; ++i) {
    if (from[static_cast<std::size_t>(i)] != i) return false;
  }
  return true;
}

// Why the time of a request that did not end well is wasted.
WasteRow WasteOf(RequestOutcome outcome) {
  switch (outcome) {
    case RequestOutcome::kDeadline:
      return kDeadlineRow;
    case RequestOutcome::kCancelled:
      return kCancelledRow;
    default:
      return kErrorRow;
  }
}

}  // namespace

UnixSeconds WallClockNow() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

class Telemetry::Impl {
 public:
  Impl(const TelemetryOptions& options, const Clock* clock);

  void OnPolicy(const PolicyNames& names);
  void OnConfigReload(const ConfigReload& reload);
  void OnLoad(const LoadSnapshot& load);
  void OnStep(const StepRan& step);
  void OnTokens(std::span<const TokenCame> tokens);
  void OnStart(const RequestStarted& request);
  void OnEnd(const RequestEnded& request);
  // A change of one number that no class or tenant has to be looked up for.
  template <typename Change>
  void Count(const Change& change) {
    const std::shared_lock lock(names_mutex_);
    change(&store_);
  }
  void OnPreemption(ClassId service_class, PreemptionMode mode);
  std::string Page();
  const UsageLedger& usage() const { return usage_; }
  SloCounts Slos(ClassId service_class);

 private:
  std::vector<std::string> ClassNames(const Policy& policy) const;
  std::vector<std::string> TenantNames(const PolicyNames& names) const;
  void NoteQuietTenants(const PolicyNames& names);
  void SetPolicyGauges();
  void SetProcessGauges();
  std::vector<bool> HiddenClasses(const LoadSnapshot& load) const;
  bool IsGone(const Policy& policy, const LoadSnapshot& load, std::size_t c) const;
  CellPlace Place(ClassId service_class, TenantId tenant, int row = 0) const {
    return {classes_.Of(service_class), tenants_.Of(tenant), row};
  }
  void ObserveTimes(const RequestEnded& request, const CellPlace& place);
  void JudgeSlo(const RequestEnded& request, RequestOutcome outcome, const CellPlace& place);
  void Bill(const RequestEnded& request);
  ClassSlo SloOf(std::size_t c) const { return c < slos_.size() ? slos_[c] : ClassSlo(); }

  const std::string model_name_;
  const Clock* const clock_;
  const std::function<UnixSeconds()> wall_clock_;
  UsageLedger usage_;

  std::mutex page_mutex_;  // one page at a time: it sets the gauges that it shows
  mutable std::mutex load_mutex_;
  LoadSnapshot load_;  // guarded by load_mutex_

  std::shared_mutex
      names_mutex_;  // exclusively held to change what follows; the store's numbers change under a shared one
  MetricStore store_;
  NameSlots classes_;
  NameSlots tenants_;
  std::vector<bool> quiet_tenants_ = {false};  // by slot
  Policy policy_;
  std::vector<ClassSlo> slos_;
};

Telemetry::Impl::Impl(const TelemetryOptions& options, const Clock* clock)
    : model_name_(options.model_name),
      clock_(clock),
      wall_clock_(options.wall_clock ? options.wall_clock : WallClockNow),
      usage_(wall_clock_()),
      store_(AllLabelRows(options)) {
  load_.free_blocks = options.pool.num_blocks;
  store_.Set(MetricId::kBuildInfo, {}, 1.0);
  store_.Set(MetricId::kConfigInfo, {}, 1.0);
  store_.Set(MetricId::kCacheConfigInfo, {}, 1.0);
  store_.Set(MetricId::kConfigLastReloadSuccessful, {}, 1.0);
  store_.Set(MetricId::kConfigLastReloadSuccessTimestamp, {}, UnixTime(wall_clock_()));
}

bool Telemetry::Impl::IsGone(const Policy& policy, const LoadSnapshot& load, std::size_t c) const {
  return policy.classes[c].removed && (c >= load.classes.size() || IsIdle(load.classes[c]));
}

std::vector<std::string> Telemetry::Impl::ClassNames(const Policy& policy) const {
  const std::lock_guard lock(load_mutex_);
  std::vector<std::string> names;
  for (std::size_t c = 0; c < policy.classes.size(); ++c) {
    names.push_back(IsGone(policy, load_, c) ? std::string() : policy.classes[c].name);
  }
  return names;
}

// Unlisted tenants that have a name keep it before others get one.
std::vector<std::string> Telemetry::Impl::TenantNames(const PolicyNames& names) const {
  std::vector<std::string> result;
  for (const TenantPolicy& tenant : names.policy->tenants) result.push_back(tenant.name);
  int room = kMaxUnlistedNames;
  std::vector<std::size_t> newcomers;
  for (const TenantId id : names.unlisted) {
    const auto index = static_cast<std::size_t>(id);
    BERTH_CHECK(index < result.size());
    if (room > 0 && tenants_.has(result[index])) {
      --room;
    } else {
      newcomers.push_back(index);
    }
  }
  for (const std::size_t index : newcomers) {
    if (room-- <= 0) result[index].clear();
  }
  return result;
}

void Telemetry::Impl::NoteQuietTenants(const PolicyNames& names) {
  quiet_tenants_.assign(static_cast<std::size_t>(tenants_.size()), true);
  std::vector<bool> unlisted(names.policy->tenants.size(), false);
  for (const TenantId id : names.unlisted) unlisted[static_cast<std::size_t>(id)] = true;
  int shown = 0;
  for (std::size_t id = 0; id < unlisted.size() && shown < kMaxShownTenants; ++id) {
    if (unlisted[id]) continue;
    quiet_tenants_[static_cast<std::size_t>(tenants_.Of(static_cast<TenantId>(id)))] = false;
    ++shown;
  }
  quiet_tenants_[0] = false;
}

void Telemetry::Impl::OnPolicy(const PolicyNames& names) {
  const std::unique_lock lock(names_mutex_);
  policy_ = *names.policy;
  slos_.assign(names.slos.begin(), names.slos.end());
  const std::vector<int> class_from = classes_.Assign(ClassNames(policy_));
  const std::vector<int> tenant_from = tenants_.Assign(TenantNames(names));
  NoteQuietTenants(names);
  if (!IsUnchanged(class_from, store_.num_classes()) || !IsUnchanged(tenant_from, store_.num_tenants())) {
    store_.Resize(class_from, tenant_from);
  }
  SetPolicyGauges();
}

void Telemetry::Impl::SetPolicyGauges() {
  constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < policy_.classes.size(); ++i) {
    const ClassPolicy& c = policy_.classes[i];
    const CellPlace place = Place(static_cast<ClassId>(i), 0);
    const ClassSlo slo = SloOf(i);
    const auto seconds = [](const std::optional<Duration>& d) { return d.has_value() ? ToSeconds(*d) : kAbsent; };
    // A removed class is guaranteed nothing. What may be borrowed without a limit ends at the pool.
    const std::int64_t guarantee = c.removed ? 0 : c.kv_guarantee_blocks;
    store_.Set(MetricId::kClassStopped, place, c.removed || c.stop != ClassStop::kNone ? 1.0 : 0.0);
    store_.Set(MetricId::kClassKvGuaranteed, place, static_cast<double>(guarantee));
    store_.Set(MetricId::kClassKvCeiling, place, static_cast<double>(c.removed ? 0 : c.ceiling_blocks()));
    store_.Set(MetricId::kSloObjective, place, slo.objective);
    store_.Set(MetricId::kSloThreshold, {place.class_slot, 0, kTtftSlo}, seconds(slo.time_to_first_token));
    store_.Set(MetricId::kSloThreshold, {place.class_slot, 0, kItlSlo}, seconds(slo.inter_token_latency));
  }
}

void Telemetry::Impl::OnConfigReload(const ConfigReload& reload) {
  const std::unique_lock lock(names_mutex_);
  store_.Add(MetricId::kConfigReloads, {.row = ReloadRow(reload.successful)}, 1.0);
  store_.Set(MetricId::kConfigLastReloadSuccessful, {}, reload.successful ? 1.0 : 0.0);
  if (reload.successful) store_.Set(MetricId::kConfigLastReloadSuccessTimestamp, {}, UnixTime(wall_clock_()));
  store_.SetRows(RowSet::kConfig, {.names = {"hash"}, .rows = {{reload.hash}}});
}

void Telemetry::Impl::OnLoad(const LoadSnapshot& load) {
  const std::lock_guard lock(load_mutex_);
  load_ = load;
}

void Telemetry::Impl::OnStep(const StepRan& step) {
  const std::shared_lock lock(names_mutex_);
  bool has[2] = {false, false};
  for (const StepPart& part : step.parts) {
    const int phase = static_cast<int>(part.phase);
    has[phase] = true;
    const CellPlace place = Place(part.service_class, part.tenant, phase);
    store_.Add(MetricId::kAcceleratorBusy, place, ToSeconds(part.time));
    store_.Add(MetricId::kAcceleratorSeconds, place, ToSeconds(part.time - part.recompute_time));
    if (part.recomputed_tokens == 0) continue;
    store_.Add(MetricId::kRecomputedTokens, {.class_slot = place.class_slot},
               static_cast<double>(part.recomputed_tokens));
    store_.Add(MetricId::kWastedAcceleratorSeconds, {place.class_slot, 0, kRecomputeRow},
               ToSeconds(part.recompute_time));
  }
  const StepKindRow kind = has[0] && has[1] ? kMixedStepRow : has[0] ? kPrefillStepRow : kDecodeStepRow;
  store_.Observe(MetricId::kStepSeconds, {.row = kind}, ToSeconds(step.busy));
  if (step.host_gap.has_value()) store_.Observe(MetricId::kStepHostGap, {}, ToSeconds(*step.host_gap));
}

void Telemetry::Impl::OnTokens(std::span<const TokenCame> tokens) {
  const std::shared_lock lock(names_mutex_);
  for (const TokenCame& token : tokens) {
    const CellPlace place = Place(token.service_class, token.tenant);
    store_.Add(MetricId::kOutputTokens, place, 1.0);
    switch (token.kind) {
      case TokenCame::Kind::kFirstOfRequest:
        store_.Observe(MetricId::kTimeToFirstToken, place, ToSeconds(token.after));
        break;
      case TokenCame::Kind::kFirstOfChoice:
        break;
      case TokenCame::Kind::kNext:
        store_.Observe(MetricId::kInterTokenLatency, place, ToSeconds(token.after));
        break;
    }
  }
}

void Telemetry::Impl::OnStart(const RequestStarted& request) {
  const std::shared_lock lock(names_mutex_);
  const CellPlace place = Place(request.service_class, request.tenant);
  store_.Add(MetricId::kPromptTokens, place, static_cast<double>(request.prompt_tokens));
  store_.Add(MetricId::kPrefixCacheQueries, place, static_cast<double>(request.looked_up_tokens));
  store_.Add(MetricId::kPrefixCacheHits, place, static_cast<double>(request.cached_tokens));
}

void Telemetry::Impl::OnPreemption(ClassId service_class, PreemptionMode mode) {
  const std::shared_lock lock(names_mutex_);
  store_.Add(MetricId::kPreemptions, Place(service_class, kNoTenant, static_cast<int>(mode)), 1.0);
}

void Telemetry::Impl::OnEnd(const RequestEnded& request) {
  const RequestOutcome outcome = OutcomeOf(request.reason, request.started);
  const std::shared_lock lock(names_mutex_);
  const CellPlace place = Place(request.service_class, request.tenant);
  store_.Add(MetricId::kRequests, {place.class_slot, place.tenant_slot, OutcomeRow(request.reason, request.started)},
             1.0);
  JudgeSlo(request, outcome, place);
  if (!request.started) return;
  ObserveTimes(request, place);
  const Usage& usage = request.usage;
  store_.Add(MetricId::kKvBlockSeconds, {place.class_slot, place.tenant_slot, kReservedRow}, usage.kv_block_seconds);
  store_.Add(MetricId::kKvBlockSeconds, {place.class_slot, place.tenant_slot, kHeldSecondsRow},
             usage.held_block_seconds);
  if (outcome == RequestOutcome::kOk) {
    if (request.met_deadline.value_or(true)) {
      store_.Add(MetricId::kUsefulTokens, place, static_cast<double>(usage.output_tokens));
    }
  } else {
    store_.Add(MetricId::kWastedAcceleratorSeconds, {place.class_slot, place.tenant_slot, WasteOf(outcome)},
               usage.accelerator_seconds);
  }
  Bill(request);
}

void Telemetry::Impl::ObserveTimes(const RequestEnded& request, const CellPlace& place) {
  const Usage& usage = request.usage;
  store_.Observe(MetricId::kQueueTime, place, ToSeconds(usage.queue_time));
  store_.Observe(MetricId::kE2eLatency, place, ToSeconds(request.total_time));
  store_.Observe(MetricId::kRequestPromptTokens, place, static_cast<double>(usage.prompt_tokens));
  store_.Observe(MetricId::kRequestOutputTokens, place, static_cast<double>(usage.output_tokens));
  store_.Observe(MetricId::kKvEstimateRatio, place, PressureRatio(usage.peak_blocks, usage.reserved_blocks));
  if (usage.output_tokens > 0) {
    store_.Observe(MetricId::kPrefillTime, place, ToSeconds(usage.prefill_time));
    store_.Observe(MetricId::kDecodeTime, place, ToSeconds(usage.decode_time));
  }
  if (const std::optional<Duration> mean = TimePerOutputToken(request); mean.has_value()) {
    store_.Observe(MetricId::kTimePerOutputToken, place, ToSeconds(*mean));
  }
}

void Telemetry::Impl::JudgeSlo(const RequestEnded& request, RequestOutcome outcome, const CellPlace& place) {
  if (place.class_slot == 0) return;
  const ClassSlo slo = SloOf(static_cast<std::size_t>(request.service_class));
  const auto count = [&](SloRow row, const std::optional<bool>& met) {
    if (met.has_value()) store_.Add(MetricId::kSloRequests, {place.class_slot, 0, SloResultRow(row, *met)}, 1.0);
  };
  count(kTtftSlo, KeptTimeToFirstToken(slo, request, outcome));
  count(kItlSlo, KeptInterTokenLatency(slo, request));
  count(kDeadlineSlo, request.met_deadline);
}

SloCounts Telemetry::Impl::Slos(ClassId service_class) {
  const std::shared_lock lock(names_mutex_);
  const CellPlace place = Place(service_class, kNoTenant);
  const auto count = [&](SloRow row, bool met) {
    return static_cast<std::int64_t>(
        store_.Value(MetricId::kSloRequests, {place.class_slot, 0, SloResultRow(row, met)}));
  };
  const auto both = [&](SloRow row) { return SloCount{count(row, true), count(row, false)}; };
  return {SloOf(static_cast<std::size_t>(service_class)), both(kTtftSlo), both(kItlSlo), both(kDeadlineSlo)};
}

// By the names of the policy, however many tenants share a label.
void Telemetry::Impl::Bill(const RequestEnded& request) {
  const auto service_class = static_cast<std::size_t>(request.service_class);
  const auto tenant = static_cast<std::size_t>(request.tenant);
  const Usage& usage = request.usage;
  usage_.Add(wall_clock_(), tenant < policy_.tenants.size() ? policy_.tenants[tenant].name : kOtherName,
             service_class < policy_.classes.size() ? policy_.classes[service_class].name : kOtherName,
             {.requests = 1,
              .prompt_tokens = usage.prompt_tokens,
              .cached_tokens = usage.cached_tokens,
              .output_tokens = usage.output_tokens,
              .kv_block_seconds = usage.kv_block_seconds,
              .held_block_seconds = usage.held_block_seconds,
              .accelerator_seconds = usage.accelerator_seconds});
}

std::vector<bool> Telemetry::Impl::HiddenClasses(const LoadSnapshot& load) const {
  std::vector<bool> hidden(static_cast<std::size_t>(classes_.size()), true);
  hidden[0] = false;
  for (std::size_t c = 0; c < policy_.classes.size(); ++c) {
    if (!IsGone(policy_, load, c)) hidden[static_cast<std::size_t>(classes_.Of(static_cast<ClassId>(c)))] = false;
  }
  return hidden;
}

void Telemetry::Impl::SetProcessGauges() {
  const ProcessStats stats = ReadProcessStats();
  store_.Set(MetricId::kProcessCpuSeconds, {}, stats.cpu_seconds);
  store_.Set(MetricId::kProcessResidentMemory, {}, stats.resident_bytes);
  store_.Set(MetricId::kProcessVirtualMemory, {}, stats.virtual_bytes);
  store_.Set(MetricId::kProcessVirtualMemoryMax, {}, stats.max_virtual_bytes);
  store_.Set(MetricId::kProcessOpenFds, {}, stats.open_fds);
  store_.Set(MetricId::kProcessMaxFds, {}, stats.max_fds);
  store_.Set(MetricId::kProcessStartTime, {}, stats.start_time_seconds);
  store_.Set(MetricId::kProcessThreads, {}, stats.threads);
}

std::string Telemetry::Impl::Page() {
  const std::lock_guard one_page(page_mutex_);
  LoadSnapshot load;
  {
    const std::lock_guard lock(load_mutex_);
    load = load_;
  }
  const std::shared_lock lock(names_mutex_);
  SetLoadGauges(load, policy_, classes_, tenants_, clock_->Now(), &store_);
  SetProcessGauges();
  return TextPage(store_, {.model_name = model_name_,
                           .classes = &classes_,
                           .tenants = &tenants_,
                           .hidden_classes = HiddenClasses(load),
                           .quiet_tenants = quiet_tenants_});
}

Telemetry::Telemetry(const TelemetryOptions& options, const Clock* clock)
    : impl_(std::make_unique<Impl>(options, clock)) {}
Telemetry::~Telemetry() = default;

void Telemetry::OnPolicy(const PolicyNames& names) { impl_->OnPolicy(names); }
void Telemetry::OnConfigReload(const ConfigReload& reload) { impl_->OnConfigReload(reload); }
void Telemetry::OnLoad(const LoadSnapshot& load) { impl_->OnLoad(load); }
void Telemetry::OnStep(const StepRan& step) { impl_->OnStep(step); }
void Telemetry::OnTokens(std::span<const TokenCame> tokens) { impl_->OnTokens(tokens); }
void Telemetry::OnStart(const RequestStarted& request) { impl_->OnStart(request); }
void Telemetry::OnPreemption(ClassId service_class, PreemptionMode mode) { impl_->OnPreemption(service_class, mode); }
void Telemetry::OnKvAllocationFailure() {
  impl_->Count([](MetricStore* store) { store->Add(MetricId::kKvAllocationFailures, {}, 1.0); });
}
void Telemetry::OnEnd(const RequestEnded& request) { impl_->OnEnd(request); }
void Telemetry::OnRpcStart(RpcMethod method) {
  impl_->Count([&](MetricStore* store) { store->Add(MetricId::kGrpcCallsStarted, {.row = method}, 1.0); });
}
void Telemetry::OnRpcEnd(RpcMethod method, int status, Duration duration) {
  impl_->Count([&](MetricStore* store) {
    store->Observe(MetricId::kGrpcCallDuration, {.row = GrpcCallRow(method, status)}, ToSeconds(duration));
  });
}

std::string Telemetry::Page() const { return impl_->Page(); }
const UsageLedger& Telemetry::usage() const { return impl_->usage(); }
SloCounts Telemetry::Slos(ClassId service_class) const { return impl_->Slos(service_class); }

}  // namespace berth
