// What attention is measured on: sequences of one length in a paged cache.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "device.h"
#include "kernels/params/kv_cache.h"

namespace berth::bench {

inline constexpr std::int32_t kBlockTokens = 16;

struct AttentionShape {
  std::int32_t sequences;
  std::int32_t context;
  std::int32_t kv_heads;
  std::int32_t group;  // query heads of a KV head
  std::int32_t head_dim;
  cuda::KvElement element;

  std::int32_t q_heads() const { return kv_heads * group; }
  std::int32_t blocks() const { return (context + kBlockTokens - 1) / kBlockTokens; }
  float score_scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  std::string Name(const std::string& what) const {
    return what + "/d" + std::to_string(head_dim) + (element == cuda::KvElement::kInt8 ? "/int8" : "/bf16") + "/gqa" +
           std::to_string(group) + "/batch" + std::to_string(sequences) + "/ctx" + std::to_string(context);
  }
};

// Full, its blocks in a random order.
struct PagedContext {
  cuda::KvCache cache;
  const std::int32_t* block_tables;
  const std::int32_t* lengths;
};

// Throws CaseSkipped for a head dimension that the tuned kernels were not built for.
void RequireTunedHeadDim(const AttentionShape& shape);

PagedContext MakeContext(const AttentionShape& shape, Arena& arena);

}  // namespace berth::bench
