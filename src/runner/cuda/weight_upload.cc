#include "runner/cuda/weight_upload.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "base/machine.h"
#include "base/thread_pool.h"
#include "runner/cuda/cuda_call.h"

namespace berth {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;
constexpr int kMaxThreads = 8;

// Pinned memory and the end of its last copy to the device.
struct Piece {
  CudaBuffer memory;
  CudaEvent copied;
};

class Uploader {
 public:
  // A piece holds at least one unit of every copy.
  static absl::StatusOr<Uploader> Create(std::int64_t piece_bytes) {
    Uploader uploader;
    uploader.piece_bytes_ = piece_bytes;
    absl::StatusOr<CudaStream> stream = MakeCudaStream();
    if (!stream.ok()) return stream.status();
    uploader.stream_ = *std::move(stream);
    for (Piece& piece : uploader.pieces_) {
      absl::StatusOr<CudaBuffer> memory =
          CudaBuffer::Pinned(static_cast<std::size_t>(piece_bytes), "the staging of weights");
      if (!memory.ok()) return memory.status();
      absl::StatusOr<CudaEvent> copied = MakeCudaEvent(cudaEventDisableTiming);
      if (!copied.ok()) return copied.status();
      piece = {*std::move(memory), *std::move(copied)};
    }
    return uploader;
  }

  absl::Status Copy(const WeightCopy& copy, std::int64_t first, std::int64_t count, ThreadPool& threads) {
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % pieces_.size();
    BERTH_CUDA_CALL(cudaEventSynchronize, piece.copied.get());
    std::byte* from = piece.memory.data();
    threads.Run([&](int thread) {
      const std::int64_t end = count * (thread + 1) / threads.num_threads();
      for (std::int64_t unit = count * thread / threads.num_threads(); unit < end; ++unit) {
        copy.write(first + unit, from + unit * copy.unit_bytes);
      }
    });
    BERTH_CUDA_CALL(cudaMemcpyAsync, copy.to + first * copy.unit_bytes, from,
                    static_cast<std::size_t>(count * copy.unit_bytes), cudaMemcpyHostToDevice, stream_.get());
    BERTH_CUDA_CALL(cudaEventRecord, piece.copied.get(), stream_.get());
    return absl::OkStatus();
  }

  absl::Status Finish() {
    BERTH_CUDA_CALL(cudaStreamSynchronize, stream_.get());
    return absl::OkStatus();
  }

  std::int64_t piece_bytes() const { return piece_bytes_; }

 private:
  Uploader() = default;

  std::array<Piece, 2> pieces_;
  CudaStream stream_;  // goes first: it may still read the pieces
  std::size_t next_ = 0;
  std::int64_t piece_bytes_ = 0;
};

}  // namespace

absl::Status UploadWeights(const std::vector<WeightCopy>& copies,
                           const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  std::int64_t total = 0;
  std::int64_t piece_bytes = kPieceBytes;
  for (const WeightCopy& copy : copies) {
    total += copy.units * copy.unit_bytes;
    piece_bytes = std::max(piece_bytes, copy.unit_bytes);
  }
  absl::StatusOr<Uploader> uploader = Uploader::Create(std::min(piece_bytes, std::max<std::int64_t>(total, 1)));
  if (!uploader.ok()) return uploader.status();
  ThreadPool threads(std::clamp(AllowedCpus(), 1, kMaxThreads), "berth-load");
  std::int64_t done = 0;
  for (const WeightCopy& copy : copies) {
    const std::int64_t most = uploader->piece_bytes() / std::max<std::int64_t>(copy.unit_bytes, 1);
    for (std::int64_t first = 0; first < copy.units; first += most) {
      const std::int64_t count = std::min(most, copy.units - first);
      BERTH_TRY(uploader->Copy(copy, first, count, threads));
      done += count * copy.unit_bytes;
      if (progress) progress(done, total);
    }
  }
  return uploader->Finish();
}

// A pattern from the host, doubled on the device until the memory is full.
absl::Status FillWithNoise(std::byte* memory, std::size_t bytes) {
  constexpr std::size_t kPatternBytes = std::size_t{1} << 20;
  std::vector<std::uint16_t> pattern(kPatternBytes / sizeof(std::uint16_t));
  std::mt19937 random(1);
  for (std::uint16_t& value : pattern) {
    // Magnitudes from 1/128 to 1/32.
    const std::uint32_t bits = random();
    value = static_cast<std::uint16_t>((bits & 0x807fu) | (120 + (bits >> 16 & 1)) << 7);
  }
  std::size_t filled = std::min(bytes, kPatternBytes);
  BERTH_CUDA_CALL(cudaMemcpy, memory, pattern.data(), filled, cudaMemcpyHostToDevice);
  while (filled < bytes) {
    const std::size_t next = std::min(filled, bytes - filled);
    BERTH_CUDA_CALL(cudaMemcpy, memory + filled, memory, next, cudaMemcpyDeviceToDevice);
    filled += next;
  }
  BERTH_CUDA_CALL(cudaDeviceSynchronize);
  return absl::OkStatus();
}

}  // namespace berth
