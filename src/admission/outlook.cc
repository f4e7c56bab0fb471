// What would become of a request that is not there: the verdict, and the tests of a plan over the ledger's sums alone.
#include "admission/outlook.h"

#include <algorithm>
#include <vector>

#include "admission/admission.h"

namespace berth {

RequestOutlook Admission::Foresee(const AdmissionRequest& request, TimePoint now) {
  RequestOutlook outlook;
  if (std::optional<Refusal> refusal = Judge(request, now)) {
    outlook.kind = RequestOutlook::Kind::kRefused;
    outlook.refusal = std::move(refusal);
    return outlook;
  }
  if (WouldStart(request)) return outlook;
  const ClassId c = request.service_class;
  if (request.overload == Overload::kReject) {
    outlook.kind = RequestOutlook::Kind::kRefused;
    outlook.refusal = CapacityLimit(c, WorstBlocksOf(request), request.n);
    outlook.refusal->retry_after = RetryAfter(c);
    return outlook;
  }
  outlook.kind = RequestOutlook::Kind::kQueues;
  outlook.wait = std::max(PredictedWait(request), step_time_);
  return outlook;
}

// In the next plan, behind what waits in its class already.
bool Admission::WouldStart(const AdmissionRequest& request) {
  const ClassId c = request.service_class;
  ClassState& state = classes_[Index(c)];
  if (state.line.size() > kBackfillWindow) return false;
  const auto entry_of = [c](std::int64_t blocks, std::int64_t slots) {
    LedgerEntry entry;
    entry.service_class = c;
    entry.blocks = blocks;
    entry.slots = slots;
    return entry;
  };
  std::vector<LedgerEntry> entries;
  std::int64_t tenant_blocks = tenants_[Index(request.tenant)].running_blocks;
  state.line.Walk([&](const RequestState& r) {
    entries.push_back(entry_of(BlocksNow(r), r.live_choices));
    if (r.request.tenant == request.tenant) tenant_blocks += BlocksNow(r);
    return WaitingLine::Next::kGoOn;
  });
  const std::int64_t blocks = WorstBlocksOf(request);
  if (tenant_blocks + blocks > tenant_policy(request.tenant).max_kv_blocks) return false;
  entries.push_back(entry_of(blocks, request.n));
  for (const LedgerEntry& entry : entries) ledger_.Attach(entry);
  // Within its guarantee a class is always admitted, if need be by preempting borrowers.
  const bool starts = ledger_.WithinGuarantee(c) || ledger_.CommonSpaceAllows(c);
  for (const LedgerEntry& entry : entries) ledger_.Detach(entry);
  return starts;
}

}  // namespace berth
