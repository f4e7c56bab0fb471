// The angles of rotary position embeddings.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"

namespace berth {

// cos and sin of position / scale · theta^(-2i / dims) / factor_i for each pair i, computed in float64: at position
// 8000 a float32 angle would be off by 1e-4 already. Immutable; thread-safe.
class RopeAngles {
 public:
  explicit RopeAngles(const Model& model);

  std::int32_t pairs() const { return static_cast<std::int32_t>(frequencies_.size()); }
  void Fill(std::int32_t position, float* cosines, float* sines) const;

 private:
  std::vector<double> frequencies_;
};

}  // namespace berth
