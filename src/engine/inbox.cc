#include "engine/inbox.h"

#include <algorithm>
#include <utility>

namespace berth {

void Mail::Clear() {
  submitted.clear();
  cancelled.clear();
  stopped.clear();
  live_questions.clear();
  questions.clear();
  policy.reset();
  drain_until.reset();
  steps_done.clear();
  stop = false;
}

bool Inbox::Submit(std::unique_ptr<LiveRequest>* request, std::optional<CancelNote> cancelled) {
  {
    const std::lock_guard lock(mutex_);
    if (drain_until_.has_value()) return false;
    mail_.submitted.push_back(std::move(*request));
    if (cancelled.has_value()) mail_.cancelled.push_back(*cancelled);
    unread_ = true;
  }
  arrived_.notify_one();
  return true;
}

void Inbox::Cancel(CancelNote note) {
  {
    const std::lock_guard lock(mutex_);
    mail_.cancelled.push_back(note);
    unread_ = true;
  }
  arrived_.notify_one();
}

void Inbox::StopChoice(ChoiceName choice) {
  {
    const std::lock_guard lock(mutex_);
    mail_.stopped.push_back(choice);
    unread_ = true;
  }
  arrived_.notify_one();
}

void Inbox::AskLive(std::shared_ptr<LiveQuestion> question) {
  {
    const std::lock_guard lock(mutex_);
    mail_.live_questions.push_back(std::move(question));
    unread_ = true;
  }
  arrived_.notify_one();
}

bool Inbox::Ask(Question question) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_ || mail_.questions.size() >= kMaxQuestions) return false;
    mail_.questions.push_back(std::move(question));
    unread_ = true;
  }
  arrived_.notify_one();
  return true;
}

void Inbox::SetPolicy(Policy policy) {
  {
    const std::lock_guard lock(mutex_);
    mail_.policy = std::move(policy);
    unread_ = true;
  }
  arrived_.notify_one();
}

void Inbox::Drain(TimePoint until) {
  {
    const std::lock_guard lock(mutex_);
    drain_until_ = std::min(drain_until_.value_or(until), until);
    unread_ = true;
  }
  arrived_.notify_one();
}

void Inbox::NoteStepDone() {
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
    mail_.steps_done.push_back(now);
    unread_ = true;
  }
  arrived_.notify_one();
}

void Inbox::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    unread_ = true;
  }
  arrived_.notify_one();
}

void Inbox::WaitAndTake(std::optional<Duration> timeout, Mail* mail) {
  mail->Clear();
  std::unique_lock lock(mutex_);
  const auto arrived = [this] { return unread_; };
  if (!timeout.has_value()) {
    arrived_.wait(lock, arrived);
  } else if (*timeout > Duration::zero()) {
    arrived_.wait_for(lock, *timeout, arrived);
  }
  std::swap(*mail, mail_);
  mail->drain_until = drain_until_;
  mail->stop = stop_;
  unread_ = false;
}

}  // namespace berth
