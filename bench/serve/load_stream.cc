#include "load_stream.h"

#include <string>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth::bench {
namespace {

TimePoint Now() { return SteadyClock().Now(); }

// The reason that Berth gives; empty where the status is gRPC's own.
std::string BerthReason(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (!details.ParseFromString(status.error_details())) return {};
  for (const google::protobuf::Any& detail : details.details()) {
    if (detail.UnpackTo(&info)) return info.reason();
  }
  return {};
}

std::string GrpcReason(const grpc::Status& status) {
  return "gRPC " + std::to_string(status.error_code()) + ": " + status.error_message();
}

}  // namespace

LoadStream::LoadStream(StreamSetup setup, Job job, std::function<void()> on_end)
    : setup_(std::move(setup)), job_(std::move(job)), on_end_(std::move(on_end)) {}

void LoadStream::Start() {
  if (setup_.window.Has(setup_.due)) ++setup_.tally->due;
  if (setup_.timeout > Duration::zero()) context_->set_deadline(std::chrono::system_clock::now() + setup_.timeout);
  setup_.stub->async()->GenerateStream(context_.get(), &job_.request, this);
  StartRead(&response_);
  StartCall();
}

void LoadStream::OnReadDone(bool ok) {
  if (!ok) return;
  answered_ = true;
  if (response_.has_tokens()) OnTokens(response_.tokens());
  StartRead(&response_);
}

void LoadStream::OnTokens(const v1::Tokens& tokens) {
  std::int64_t fresh = 0;
  for (const v1::TokenDelta& delta : tokens.deltas()) fresh += delta.token_ids_size();
  if (fresh == 0) return;
  const TimePoint now = Now();
  if (setup_.window.Has(now)) {
    setup_.tally->tokens += fresh;
    ++setup_.tally->messages;
    if (tokens_ > 0) setup_.tally->between_messages.Add(now - last_token_);
  }
  if (tokens_ == 0) first_token_ = now;
  last_token_ = now;
  tokens_ += fresh;
  if (job_.cancel_after_tokens > 0 && tokens_ >= job_.cancel_after_tokens && !std::exchange(gave_up_, true)) {
    context_->TryCancel();
  }
}

void LoadStream::OnDone(const grpc::Status& status) {
  if (setup_.window.Has(setup_.due)) CountEnd(status);
  on_end_();
  delete this;
}

void LoadStream::CountEnd(const grpc::Status& status) {
  Tally& tally = *setup_.tally;
  if (status.ok()) {
    const bool any = tokens_ > 0;
    const TimePoint now = Now();
    return tally.AddServed(setup_.slo, (any ? first_token_ : now) - setup_.due, (any ? last_token_ : now) - setup_.due,
                           now - setup_.due, tokens_);
  }
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    ++(gave_up_ ? tally.cancelled : tally.unfinished);
    return;
  }
  const std::string reason = BerthReason(status);
  if (reason.empty()) return tally.AddFailed(GrpcReason(status));
  answered_ ? tally.AddFailed(reason) : tally.AddRefused(reason);
}

}  // namespace berth::bench
