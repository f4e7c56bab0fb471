// The models whose layers are measured.
#pragma once

#include <cstdint>
#include <vector>

#include "case.h"

namespace berth::bench {

struct ModelShape {
  const char* name;
  std::int32_t hidden;
  std::int32_t feed_forward;
  std::int32_t q_heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::int32_t vocabulary;
};

// As the models' config.json have them.
inline std::vector<ModelShape> ModelsOf(Extent extent) {
  if (extent == Extent::kToy) return {{"toy", 256, 96, 3, 1, 64, 300}};
  return {{"llama-3-8b", 4096, 14336, 32, 8, 128, 128256}, {"smollm2-135m", 576, 1536, 9, 3, 64, 49152}};
}

}  // namespace berth::bench
