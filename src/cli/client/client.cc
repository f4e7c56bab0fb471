#include "cli/client/client.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "berth/v1/inference.grpc.pb.h"
#include "cli/client/call_status.h"
#include "cli/client/messages.h"
#include "cli/client/retry.h"

namespace berth {
namespace {

constexpr char kPushbackKey[] = "grpc-retry-pushback-ms";
// So the server takes an attempt for the one before it, where it has not heard yet that the connection broke.
constexpr char kAttemptsKey[] = "grpc-previous-rpc-attempts";

std::optional<std::string> TrailerOf(const grpc::ClientContext& context, const char* key) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(key);
  if (found == trailers.end()) return std::nullopt;
  return std::string(found->second.data(), found->second.size());
}

// False where the stop came first.
bool Wait(Duration time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace

class GenerateClient::Impl {
 public:
  explicit Impl(ClientOptions options)
      : options_(std::move(options)),
        channel_(MakeChannel(options_.connection)),
        stub_(v1::Inference::NewStub(channel_)) {}

  absl::Status GenerateStream(const GenerateSpec& spec, const std::function<void(const StreamEvent&)>& on_event,
                              const std::stop_token& stop) {
    v1::GenerateRequest request = ToProto(spec);
    request.set_model(options_.model);
    request.set_service_class(options_.service_class);
    request.set_tenant(options_.tenant);
    const TimePoint deadline =
        options_.timeout > Duration::zero() ? std::chrono::steady_clock::now() + options_.timeout : kNoDeadline;
    RetrySchedule schedule(options_.max_retries, std::random_device{}());
    FailedAttempt failed;
    while (true) {
      absl::Status status = Attempt(request, deadline, schedule.retries(), on_event, stop, &failed);
      if (status.ok() || stop.stop_requested()) return status;
      std::optional<Duration> left;
      if (deadline != kNoDeadline) left = deadline - std::chrono::steady_clock::now();
      const std::optional<Duration> wait = schedule.After(failed, left);
      if (!wait) return status;
      if (options_.on_retry) options_.on_retry({schedule.retries(), *wait, status});
      if (!Wait(*wait, stop)) return absl::CancelledError("cancelled before another attempt");
    }
  }

 private:
  absl::Status Attempt(const v1::GenerateRequest& request, TimePoint deadline, std::int32_t attempts_before,
                       const std::function<void(const StreamEvent&)>& on_event, const std::stop_token& stop,
                       FailedAttempt* failed) {
    failed->pushback.reset();
    failed->code = absl::StatusCode::kUnavailable;
    if (absl::Status connected = WaitUntilConnected(options_.connection, deadline, channel_.get()); !connected.ok()) {
      return connected;
    }
    failed->connected = true;
    grpc::ClientContext context;
    if (deadline != kNoDeadline) context.set_deadline(ToSystemTime(deadline));
    for (const auto& [key, value] : options_.connection.metadata) context.AddMetadata(key, value);
    if (attempts_before > 0) context.AddMetadata(kAttemptsKey, std::to_string(attempts_before));
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    auto reader = stub_->GenerateStream(&context, request);
    v1::GenerateStreamResponse response;
    while (reader->Read(&response)) {
      failed->delivered = failed->delivered || !response.has_admitted();
      Dispatch(response, on_event);
    }
    const grpc::Status status = reader->Finish();
    failed->code = static_cast<absl::StatusCode>(status.error_code());
    failed->pushback = TrailerOf(context, kPushbackKey);
    return ToStatus(status);
  }

  const ClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
};

GenerateClient::GenerateClient(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
GenerateClient::~GenerateClient() = default;

absl::Status GenerateClient::GenerateStream(const GenerateSpec& spec,
                                            const std::function<void(const StreamEvent&)>& on_event,
                                            const std::stop_token& stop) {
  return impl_->GenerateStream(spec, on_event, stop);
}

}  // namespace berth
