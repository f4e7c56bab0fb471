// A server stream of states, of which a reader needs the newest alone.
#pragma once

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <optional>
#include <utility>

namespace berth {

// One write at a time; of what comes meanwhile the newest is sent after it. The stream ends when the caller goes or the
// server ends. Freed by gRPC's OnDone, which comes after Finish, and Finish is never called while a write is under way
// or prepared: so whom Prepare told to write finds it alive.
template <typename Message>
class LatestWriter : public grpc::ServerWriteReactor<Message> {
 public:
  // Any thread that knows the stream to be alive. True where the caller must call Write, outside any lock.
  [[nodiscard]] bool Prepare(Message message) {
    const std::lock_guard lock(mutex_);
    next_ = std::move(message);
    return PrepareLocked();
  }
  void Write() { this->StartWrite(&current_); }
  // Ends a stream that has not begun.
  void End(const grpc::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      finished_ = true;
    }
    this->Finish(status);
  }

  void OnWriteDone(bool ok) override {
    bool write = false;
    bool finish = false;
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      gone_ |= !ok;
      finish = FinishLocked();
      write = !finish && PrepareLocked();
    }
    if (finish) return this->Finish(grpc::Status::CANCELLED);
    if (write) Write();
  }
  void OnCancel() override {
    bool finish = false;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      finish = FinishLocked();
    }
    if (finish) this->Finish(grpc::Status::CANCELLED);
  }

 private:
  bool PrepareLocked() {
    if (writing_ || gone_ || !next_.has_value()) return false;
    writing_ = true;
    current_ = *std::exchange(next_, std::nullopt);
    return true;
  }
  bool FinishLocked() { return gone_ && !writing_ && !std::exchange(finished_, true); }

  Message current_;  // gRPC's while writing_
  std::mutex mutex_;
  // Guarded by mutex_:
  std::optional<Message> next_;
  bool writing_ = false;
  bool gone_ = false;
  bool finished_ = false;
};

}  // namespace berth
