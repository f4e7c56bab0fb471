#include "runner/cuda/kv_copies.h"

#include <span>
#include <utility>

#include "base/check.h"

namespace berth {
namespace {

constexpr unsigned kUntimed = cudaEventDisableTiming;

// Ids one list behind the other: sources, then targets.
class ListWriter {
 public:
  ListWriter(std::int32_t* pinned, const std::int32_t* device) : pinned_(pinned), device_(device) {}

  template <typename Copy>
  DeviceCopies Add(std::span<const Copy> copies, std::int32_t Copy::*from, std::int32_t Copy::*to) {
    const auto count = static_cast<std::int32_t>(copies.size());
    const DeviceCopies added{device_ + used_, device_ + used_ + count, count};
    for (const Copy& copy : copies) pinned_[used_++] = copy.*from;
    for (const Copy& copy : copies) pinned_[used_++] = copy.*to;
    return added;
  }

  std::size_t bytes() const { return used_ * sizeof(std::int32_t); }

 private:
  std::int32_t* const pinned_;
  const std::int32_t* const device_;
  std::size_t used_ = 0;
};

}  // namespace

absl::StatusOr<KvCopies> KvCopies::Create(const CudaShape& shape) {
  KvCopies copies;
  copies.list_bytes_ = static_cast<std::size_t>(
      kBytesPerBlock * (std::int64_t{shape.pool.num_blocks} + std::int64_t{shape.pool.host_blocks}));
  constexpr const char* kWhat = "the lists of block copies";
  absl::StatusOr<CudaBuffer> device = CudaBuffer::OnDevice(copies.list_bytes_, kWhat);
  if (!device.ok()) return device.status();
  copies.device_ = *std::move(device);
  for (CudaBuffer& pinned : copies.pinned_) {
    absl::StatusOr<CudaBuffer> buffer = CudaBuffer::Pinned(copies.list_bytes_, kWhat);
    if (!buffer.ok()) return buffer.status();
    pinned = *std::move(buffer);
  }
  for (CudaEvent* event : {&copies.before_, &copies.out_}) {
    absl::StatusOr<CudaEvent> made = MakeCudaEvent(kUntimed);
    if (!made.ok()) return made.status();
    *event = *std::move(made);
  }
  absl::StatusOr<CudaStream> stream = MakeCudaStream();
  if (!stream.ok()) return stream.status();
  copies.stream_ = *std::move(stream);
  return copies;
}

absl::Status KvCopies::Enqueue(const StepInputs& inputs, const CudaKvPool& pool, int slot, cudaStream_t compute) const {
  const CudaBuffer& pinned = pinned_[static_cast<std::size_t>(slot)];
  ListWriter writer(reinterpret_cast<std::int32_t*>(pinned.data()),
                    reinterpret_cast<const std::int32_t*>(device_.data()));
  const DeviceCopies out = writer.Add(inputs.swap_out(), &SwapCopy::block, &SwapCopy::host_block);
  const DeviceCopies in = writer.Add(inputs.swap_in(), &SwapCopy::host_block, &SwapCopy::block);
  const DeviceCopies copies = writer.Add(inputs.block_copies(), &BlockCopy::from, &BlockCopy::to);
  BERTH_CHECK(writer.bytes() <= list_bytes_);
  if (writer.bytes() == 0) return absl::OkStatus();
  BERTH_CUDA_CALL(cudaMemcpyAsync, device_.data(), pinned.data(), writer.bytes(), cudaMemcpyHostToDevice, compute);
  if (out.count > 0) BERTH_TRY(SwapOutBeside(out, pool, compute));
  BERTH_TRY(pool.SwapIn(in, compute));
  if (out.count > 0) BERTH_CUDA_CALL(cudaStreamWaitEvent, compute, out_.get(), 0);
  return pool.CopyBlocks(copies, compute);
}

absl::Status KvCopies::SwapOutBeside(const DeviceCopies& copies, const CudaKvPool& pool, cudaStream_t compute) const {
  BERTH_CUDA_CALL(cudaEventRecord, before_.get(), compute);
  BERTH_CUDA_CALL(cudaStreamWaitEvent, stream_.get(), before_.get(), 0);
  BERTH_TRY(pool.SwapOut(copies, stream_.get()));
  BERTH_CUDA_CALL(cudaEventRecord, out_.get(), stream_.get());
  return absl::OkStatus();
}

}  // namespace berth
