// A naive float64 forward pass: dequantised weights, plain loops, one sequence, contiguous K and V, these rounded as
// the KV type stores them. What the runner is compared with.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/kv.h"
#include "berth/units.h"
#include "model/model.h"

namespace berth::test {

class OracleTransformer {
 public:
  explicit OracleTransformer(const Model& model, KvDtype kv_dtype = KvDtype::kFloat32);

  // Appends a token to the sequence; returns the log-probabilities of what follows it.
  std::vector<double> Next(TokenId token);
  void Restart();

 private:
  struct Matrix {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<double> values;

    std::vector<double> Times(const std::vector<double>& x) const;
  };
  struct Layer {
    std::vector<double> attn_norm, ffn_norm;
    Matrix q, k, v, attn_output, gate, up, down;
  };
  struct Cache {
    std::vector<std::vector<double>> keys, values;  // by position
  };

  static Matrix Load(const GgufTensor& tensor);
  std::vector<double> Norm(const std::vector<double>& x, const std::vector<double>& weight) const;
  void Rotate(std::vector<double>* heads, std::int64_t position) const;
  // The heads' numbers as they are worth once stored; all of them for float32.
  std::vector<double> Stored(std::vector<double> heads) const;
  std::vector<double> Attend(const Cache& cache, const std::vector<double>& q) const;

  const ModelConfig config_;
  const KvDtype kv_dtype_;
  Matrix embedding_;
  Matrix output_;
  std::vector<double> output_norm_;
  std::vector<double> rope_factors_;
  std::vector<Layer> layers_;
  std::vector<Cache> caches_;
};

}  // namespace berth::test
