#include "emulation/async_copy.h"

#include "emulation/block.h"
#include "emulation/fault.h"
#include "emulation/scheduler.h"

namespace berth::emulation {

void CopyQueue::Clear() {
  copies_.clear();
  groups_.clear();
  next_copy_ = 0;
  next_group_ = 0;
}

void CopyQueue::Push(const Copy& copy) { copies_.push_back(copy); }

void CopyQueue::Commit() { groups_.push_back(copies_.size()); }

bool CopyQueue::Pop(std::size_t pending, Copy* copy) {
  while (groups_.size() - next_group_ > pending) {
    if (next_copy_ < groups_[next_group_]) {
      *copy = copies_[next_copy_++];
      return true;
    }
    ++next_group_;
  }
  if (next_group_ == groups_.size() && next_copy_ == copies_.size()) Clear();
  return false;
}

void CheckCopy(void* destination, const void* source, std::size_t bytes, bool valid, CallSite site) {
  const auto misaligned = [bytes](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes != 0;
  };
  if (misaligned(destination)) Fail(site, "cp.async: the destination %p is no multiple of %zu", destination, bytes);
  if (misaligned(source)) Fail(site, "cp.async: the source %p is no multiple of %zu", source, bytes);
  if (!InShared(destination, bytes)) {
    Fail(site, "cp.async: the destination %p is not in the block's shared memory", destination);
  }
  if (valid && InShared(source, bytes)) Fail(site, "cp.async: the source %p is in shared memory", source);
}

void PushCopy(const CopyQueue::Copy& copy) { scheduler().current().copies.Push(copy); }

void CommitCopies() { scheduler().current().copies.Commit(); }

bool PopCopy(std::size_t pending, CopyQueue::Copy* copy) { return scheduler().current().copies.Pop(pending, copy); }

}  // namespace berth::emulation
