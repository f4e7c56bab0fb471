// One description of a decoder-only transformer. Families differ by fields, never by subclasses: an architecture is
// supported when its numbers fit here.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "berth/kv.h"
#include "model/gguf.h"

namespace berth {

// Which elements of a head rotate together: (2i, 2i+1), as Llama's GGUF files store Q and K, or (i, i + dims/2).
enum class RopePairing : std::uint8_t { kAdjacent, kHalves };

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, for people
  std::int32_t layers = 0;
  std::int32_t hidden = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t ffn = 0;
  std::int32_t vocab_size = 0;      // rows of the embedding (may be padded past the tokenizer's)
  std::int32_t context_tokens = 0;  // trained length
  float norm_epsilon = 1e-5F;
  RopePairing rope_pairing = RopePairing::kAdjacent;
  std::int32_t rope_dims = 0;  // of each head; the rest passes through
  float rope_theta = 10000.0F;
  float rope_scale = 1.0F;       // positions are divided by it (linear scaling)
  bool tied_embeddings = false;  // no output.weight: the embedding serves

  KvShape kv_shape() const { return {layers, kv_heads, head_dim}; }
};

// Reads and cross-checks the metadata (heads divide, sizes bounded, vocabulary matches). An unknown architecture is
// refused by name with the list of those served.
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace berth
