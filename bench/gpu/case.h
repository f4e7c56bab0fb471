// What is measured: each case is a launch on memory of its own, and what it has to move and to compute.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device.h"
#include "timing.h"

namespace berth::bench {

// How large the shapes are: a toy of each case shows that it runs, on any machine.
enum class Extent { kToy, kQuick, kFull };

struct Settings {
  Extent extent = Extent::kFull;
  std::string cublaslt_path;               // empty: where it usually is
  std::int32_t decode_chunk_tokens = 256;  // as the backend splits positions (PagedDecodeParams::chunk_tokens)
};

// What the work cannot do without: bytes that come from or go to memory once, and operations. Zero: does not count.
struct Cost {
  double bytes = 0;
  double flops = 0;
};

struct Case {
  std::string name;  // group/what/shape
  Cost cost;
  // Fills the memory and returns the work on it. Throws CaseFailure or CaseSkipped, as may the work.
  std::function<Launch(Arena&)> make;
};

// The names of the cases that all others are held against.
inline constexpr const char* kCopyCeiling = "ceiling/copy";
inline constexpr const char* kMatmulCeiling = "ceiling/matmul/";  // and what follows

// Each appends its group. The ceilings come first.
void AddCeilings(const Settings& settings, std::vector<Case>& cases);
void AddDecode(const Settings& settings, std::vector<Case>& cases);
void AddPrefill(const Settings& settings, std::vector<Case>& cases);
void AddGemms(const Settings& settings, std::vector<Case>& cases);
void AddQuantized(const Settings& settings, std::vector<Case>& cases);
void AddElementwise(const Settings& settings, std::vector<Case>& cases);
void AddSampling(const Settings& settings, std::vector<Case>& cases);

}  // namespace berth::bench
