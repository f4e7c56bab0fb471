#include "frontend/load_report_service.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "frontend/load_report.h"

namespace berth {
namespace {

using xds::data::orca::v3::OrcaLoadReport;

constexpr std::chrono::milliseconds kLeastInterval(100);
constexpr std::chrono::milliseconds kDefaultInterval(1000);
constexpr std::int64_t kLongestIntervalSeconds = 24 * 3600;

std::chrono::milliseconds IntervalOf(const xds::service::orca::v3::OrcaLoadReportRequest& request) {
  if (!request.has_report_interval()) return kDefaultInterval;
  const std::int64_t seconds =
      std::clamp<std::int64_t>(request.report_interval().seconds(), 0, kLongestIntervalSeconds);
  const std::int64_t nanos = std::clamp<std::int64_t>(request.report_interval().nanos(), 0, 999'999'999);
  return std::max(kLeastInterval, std::chrono::milliseconds(seconds * 1000 + nanos / 1'000'000));
}

// Writes, waits for the interval, writes again: one of the two is always under way, and only what follows it ends the
// stream, so that the reactor is still there when it does. Frees itself.
class ReportStream final : public grpc::ServerWriteReactor<OrcaLoadReport> {
 public:
  ReportStream(const std::function<LoadSnapshot()>* load, std::chrono::milliseconds interval)
      : load_(load), interval_(interval) {
    Report();
  }

  void OnWriteDone(bool ok) override {
    if (!ok || !SetAlarm()) Finish(grpc::Status::CANCELLED);
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (alarm_ != nullptr) alarm_->Cancel();
  }
  void OnDone() override { delete this; }

 private:
  void Report() {
    report_ = LoadReportOf((*load_)());
    StartWrite(&report_);
  }
  // False where the caller is gone.
  bool SetAlarm() {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return false;
    // One for each wait: the last one's closure may still be on its way out.
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(std::chrono::system_clock::now() + interval_, [this](bool fired) {
      if (fired) return Report();
      Finish(grpc::Status::CANCELLED);
    });
    return true;
  }

  const std::function<LoadSnapshot()>* const load_;
  const std::chrono::milliseconds interval_;
  OrcaLoadReport report_;  // gRPC's while it is written

  std::mutex mutex_;
  bool cancelled_ = false;              // guarded by mutex_
  std::unique_ptr<grpc::Alarm> alarm_;  // guarded by mutex_
};

}  // namespace

grpc::ServerWriteReactor<OrcaLoadReport>* LoadReportService::StreamCoreMetrics(
    grpc::CallbackServerContext*, const xds::service::orca::v3::OrcaLoadReportRequest* request) {
  return new ReportStream(&load_, IntervalOf(*request));
}

}  // namespace berth
