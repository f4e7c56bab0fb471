// The products of SmolLM2-135M on one core, as shares of the core's peaks.
//
//   bench_matmul --benchmark_filter='avx512-vnni/Q4_1/.*'
//
// Name: level / format / product / rows. A product walks through as many copies of its weights as fill the size of the
// whole model, as decoding does: weights come from memory, not from a cache. Counters: GOP/s (a multiplication and an
// addition are two), GB/s of packed weights, and each as a percentage of what the core reaches in a register loop and
// in a streaming read, measured before the first product. They are measured and printed again after the last: where the
// two differ, something else was running, and the figures between mean little.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_level.h"
#include "kernels/cpu/matmul.h"
#include "machine_peak.h"

namespace berth::bench {
namespace {

using cpu::CpuLevel;
using cpu::PackedKind;
using cpu::WeightFormat;

constexpr std::size_t kModelBytes = std::size_t{96} << 20;

struct Shape {
  const char* name;
  std::vector<int> outputs;  // matrices that share their input
  int k;
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {"qkv", {576, 192, 192}, 576}, {"out", {576}, 576},    {"gate-up", {1536, 1536}, 576},
      {"down", {576}, 1536},         {"head", {49152}, 576},
  };
  return shapes;
}

struct Format {
  const char* name;
  WeightFormat format;
};

class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size)
      : data_(static_cast<std::byte*>(::operator new (size, std::align_val_t{64}))) {}
  ~AlignedBytes() { ::operator delete (data_, std::align_val_t{64}); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  std::byte* data() { return data_; }

 private:
  std::byte* data_;
};

// Any bytes are codes; scales (the first half-precision numbers of a block, or the float weights) are kept small.
std::vector<std::byte> RandomRows(WeightFormat format, int n, int k) {
  std::minstd_rand rng(1);
  std::vector<std::byte> bytes(static_cast<std::size_t>(n) * cpu::RowBytes(format, k));
  const auto block_bytes = static_cast<std::size_t>(cpu::BlockOf(format).bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng() >> 8);
  for (std::size_t at = 1; at < bytes.size(); at += block_bytes) bytes[at] = std::byte{0x1C};
  if (format == WeightFormat::kQ4_1) {
    for (std::size_t at = 3; at < bytes.size(); at += block_bytes) bytes[at] = std::byte{0x9C};
  }
  return bytes;
}

// Copies of one packed matrix, together the size of a model.
class Weights {
 public:
  Weights(WeightFormat format, int n, int k) : kind_(cpu::ChoosePackedKind(format, false)), n_(n), k_(k) {
    const std::vector<std::byte> rows = RandomRows(format, n, k);
    bytes_ = cpu::PackedBytes(kind_, n, k);
    for (std::size_t total = 0; total < kModelBytes; total += bytes_) {
      copies_.push_back(std::make_unique<AlignedBytes>(bytes_));
      cpu::PackPanels(format, rows.data(), kind_, n, k, 0, cpu::NumPanels(n), copies_.back()->data());
    }
  }
  cpu::PackedMatrix Matrix(std::size_t i) const { return {kind_, n_, k_, copies_[i % copies_.size()]->data()}; }
  std::size_t bytes() const { return bytes_; }

 private:
  PackedKind kind_;
  int n_;
  int k_;
  std::size_t bytes_ = 0;
  std::vector<std::unique_ptr<AlignedBytes>> copies_;
};

void RunProduct(benchmark::State& state, CpuLevel level, const MachinePeak& peak, WeightFormat format,
                const Shape& shape) {
  const int rows = static_cast<int>(state.range(0));
  const cpu::MatMulKernels& kernels = cpu::GetMatMulKernels(level);
  const PackedKind kind = cpu::ChoosePackedKind(format, false);
  std::vector<std::unique_ptr<Weights>> weights;
  double operations = 0.0, bytes = 0.0;
  std::size_t outputs = 0;
  for (int n : shape.outputs) {
    weights.push_back(std::make_unique<Weights>(format, n, shape.k));
    operations += 2.0 * rows * n * shape.k;
    bytes += static_cast<double>(weights.back()->bytes());
    outputs += static_cast<std::size_t>(n);
  }
  std::vector<float> x(static_cast<std::size_t>(shape.k));
  std::normal_distribution<float> normal;
  std::minstd_rand rng(2);
  for (float& value : x) value = normal(rng);
  const std::size_t row_bytes = cpu::ActivationBytes(kind, shape.k);
  AlignedBytes activations(row_bytes * static_cast<std::size_t>(rows));
  std::vector<float> y(outputs * static_cast<std::size_t>(rows));

  std::size_t copy = 0;
  for (auto _ : state) {
    for (int m = 0; m < rows; ++m) {
      kernels.prepare_row(kind, x.data(), shape.k, activations.data() + static_cast<std::size_t>(m) * row_bytes);
    }
    float* out = y.data();
    for (const auto& part : weights) {
      const cpu::PackedMatrix matrix = part->Matrix(copy);
      kernels.matmul(matrix, activations.data(), rows, out, static_cast<std::int64_t>(outputs), 0,
                     cpu::NumPanels(matrix.n));
      out += matrix.n;
    }
    ++copy;
    benchmark::ClobberMemory();
  }
  const double compute_peak = cpu::SameActivations(kind, PackedKind::kPanelF32) ? peak.float_gflops : peak.integer_gops;
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GOP/s"] = benchmark::Counter(operations / 1e9, rate);
  state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, rate);
  if (compute_peak > 0) state.counters["%compute"] = benchmark::Counter(100.0 * operations / 1e9 / compute_peak, rate);
  if (peak.read_gb_per_s > 0)
    state.counters["%read"] = benchmark::Counter(100.0 * bytes / 1e9 / peak.read_gb_per_s, rate);
}

std::map<CpuLevel, MachinePeak> MeasurePeaks(const char* when) {
  std::map<CpuLevel, MachinePeak> peaks;
  for (CpuLevel level : {CpuLevel::kScalar, CpuLevel::kAvx2, CpuLevel::kAvx512Vnni}) {
    if (level > cpu::DetectCpuLevel()) continue;
    const MachinePeak& peak = peaks[level] = MeasurePeak(level, kModelBytes);
    std::fprintf(stderr, "peak of one core %s, %s: %.0f integer GOP/s, %.0f GFLOP/s, read %.1f GB/s\n", when,
                 cpu::CpuLevelName(level), peak.integer_gops, peak.float_gflops, peak.read_gb_per_s);
  }
  return peaks;
}

void RegisterProducts(const std::map<CpuLevel, MachinePeak>& peaks) {
  constexpr Format kFormats[] = {
      {"Q4_1", WeightFormat::kQ4_1}, {"Q8_0", WeightFormat::kQ8_0}, {"F16", WeightFormat::kF16}};
  for (const auto& [level, peak] : peaks) {
    for (const Format& format : kFormats) {
      for (const Shape& shape : Shapes()) {
        const std::string name = std::string(cpu::CpuLevelName(level)) + "/" + format.name + "/" + shape.name;
        auto* product = benchmark::RegisterBenchmark(name.c_str(), RunProduct, level, peak, format.format, shape);
        product->Unit(benchmark::kMicrosecond)->Arg(1);
        // The scalar level is there to be right.
        if (level != CpuLevel::kScalar) product->Arg(8)->Arg(32)->Arg(512);
      }
    }
  }
}

}  // namespace
}  // namespace berth::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  berth::bench::RegisterProducts(berth::bench::MeasurePeaks("before"));
  benchmark::RunSpecifiedBenchmarks();
  berth::bench::MeasurePeaks("after");
  benchmark::Shutdown();
}
