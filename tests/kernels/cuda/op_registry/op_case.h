// An operation on given inputs, computed by a naive oracle in float64, by the CPU backend's kernels and by the CUDA
// kernel. All three must agree.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace berth::cuda {

// One of an operation's outputs, by the oracle.
struct Expected {
  explicit Expected(std::string output) : name(std::move(output)) {}

  std::string name;
  std::vector<double> values;
  // What an element may be off by; a NaN must be a NaN, an infinity that infinity.
  std::vector<double> cuda_bounds;
  std::vector<double> cpu_bounds;  // empty: the CPU backend has no such output

  void Add(double value, double cuda_bound) {
    values.push_back(value);
    cuda_bounds.push_back(cuda_bound);
  }
  void Add(double value, double cuda_bound, double cpu_bound) {
    Add(value, cuda_bound);
    cpu_bounds.push_back(cpu_bound);
  }
};

// What one of the backends made of each output, in the oracle's order.
using Outputs = std::vector<std::vector<double>>;

// Its inputs are made by the constructor, on the host alone.
class OpCase {
 public:
  virtual ~OpCase() = default;
  virtual std::vector<Expected> Oracle() const = 0;
  // Nothing where the CPU backend has no kernel for it.
  virtual std::optional<Outputs> OnCpu() const { return std::nullopt; }
  // Whether this build has the CUDA kernel for these inputs.
  virtual bool CudaIsBuilt() const { return true; }
  virtual Outputs OnCuda() const = 0;
};

// A line of the registry.
struct OpEntry {
  std::string op;
  std::string name;  // of the case: letters, digits and _
  std::string bound;
  std::function<std::unique_ptr<OpCase>()> make;
};

template <typename Case, typename... Arguments>
OpEntry MakeEntry(std::string op, std::string name, std::string bound, Arguments... arguments) {
  return {std::move(op), std::move(name), std::move(bound),
          [=]() -> std::unique_ptr<OpCase> { return std::make_unique<Case>(arguments...); }};
}

// The registry's parts, each in a source of its name.
std::vector<OpEntry> ElementwiseCases();
std::vector<OpEntry> RopeCases();
std::vector<OpEntry> AttentionCases();
std::vector<OpEntry> QuantizedCases();
std::vector<OpEntry> SamplingCases();

}  // namespace berth::cuda
