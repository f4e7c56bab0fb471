// The geometry of the KV cache: what one token costs and how tokens are grouped in blocks.
#pragma once

#include <cstdint>

#include "berth/units.h"

namespace berth {

// How K and V are stored. kInt8 carries one fp16 scale per token and KV head, for K and for V.
enum class KvDtype : std::uint8_t { kFloat32, kBf16, kInt8 };

constexpr const char* KvDtypeName(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kFloat32:
      return "float32";
    case KvDtype::kBf16:
      return "bf16";
    case KvDtype::kInt8:
      return "int8";
  }
  return "?";
}

// What of a model decides the size of its KV cache.
struct KvShape {
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;

  // 2 (K and V) · layers · kv_heads · head_dim · element size, plus the scales of int8.
  constexpr std::int64_t BytesPerToken(KvDtype dtype) const {
    const std::int64_t rows = 2LL * layers * kv_heads;
    switch (dtype) {
      case KvDtype::kFloat32:
        return rows * head_dim * 4;
      case KvDtype::kBf16:
        return rows * head_dim * 2;
      case KvDtype::kInt8:
        return rows * (head_dim + 2LL);
    }
    return 0;
  }
};

// A pool of equal blocks of `block_tokens` tokens each. Ids run from 0 to num_blocks - 1.
struct KvPoolShape {
  std::int32_t num_blocks = 0;
  std::int32_t block_tokens = 16;
  std::int32_t host_blocks = 0;  // as many again in the host's memory, for what is swapped out; ids from 0
};

// What a request may come to hold, counted in whole blocks: reserved, enforced and billed as one number.
struct KvDemand {
  std::int64_t prompt_tokens = 0;
  std::int64_t max_output_tokens = 0;
  std::int64_t worst_blocks = 0;
};

}  // namespace berth
