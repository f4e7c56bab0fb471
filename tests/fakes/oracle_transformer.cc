#include "fakes/oracle_transformer.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/dequantize.h"
#include "runner/weight_format.h"

namespace berth::test {
namespace {

// The nearest number of `bits` significant bits.
double RoundTo(double x, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

// The least float16 that is not below x > 0.
double HalfAtLeast(double x) {
  int exponent = 0;
  static_cast<void>(std::frexp(x, &exponent));
  const int step = std::max(exponent - 11, -24);
  return std::ldexp(std::ceil(std::ldexp(x, -step)), step);
}

void AddTo(std::vector<double>* x, const std::vector<double>& y) {
  for (std::size_t i = 0; i < x->size(); ++i) (*x)[i] += y[i];
}

}  // namespace

OracleTransformer::OracleTransformer(const Model& model, KvDtype kv_dtype)
    : config_(model.config), kv_dtype_(kv_dtype) {
  const ModelWeights& weights = model.weights;
  embedding_ = Load(*weights.token_embedding);
  output_ = Load(*weights.output);
  output_norm_ = Load(*weights.output_norm).values;
  rope_factors_.assign(static_cast<std::size_t>(config_.rope_dims / 2), 1.0);
  if (weights.rope_factors != nullptr) rope_factors_ = Load(*weights.rope_factors).values;
  for (const LayerWeights& from : weights.layers) {
    layers_.push_back({Load(*from.attn_norm).values, Load(*from.ffn_norm).values, Load(*from.q), Load(*from.k),
                       Load(*from.v), Load(*from.attn_output), Load(*from.ffn_gate), Load(*from.ffn_up),
                       Load(*from.ffn_down)});
  }
  Restart();
}

void OracleTransformer::Restart() { caches_.assign(layers_.size(), Cache{}); }

OracleTransformer::Matrix OracleTransformer::Load(const GgufTensor& tensor) {
  Matrix matrix{tensor.rows(), tensor.cols(), {}};
  const std::size_t row_bytes = tensor.data.size() / static_cast<std::size_t>(matrix.rows);
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    cpu::Dequantize(WeightFormatOf(tensor.type), tensor.data.data() + static_cast<std::size_t>(r) * row_bytes,
                    matrix.cols, row.data());
    matrix.values.insert(matrix.values.end(), row.begin(), row.end());
  }
  return matrix;
}

std::vector<double> OracleTransformer::Matrix::Times(const std::vector<double>& x) const {
  std::vector<double> y(static_cast<std::size_t>(rows), 0.0);
  const double* w = values.data();
  for (double& sum : y) {
    for (const double value : x) sum += *w++ * value;
  }
  return y;
}

std::vector<double> OracleTransformer::Norm(const std::vector<double>& x, const std::vector<double>& weight) const {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + config_.norm_epsilon);
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

void OracleTransformer::Rotate(std::vector<double>* heads, std::int64_t position) const {
  const auto pairs = static_cast<std::size_t>(config_.rope_dims / 2);
  for (std::size_t head = 0; head < heads->size(); head += static_cast<std::size_t>(config_.head_dim)) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const double frequency =
          std::pow(config_.rope_theta, -2.0 * static_cast<double>(i) / config_.rope_dims) / rope_factors_[i];
      const double angle = static_cast<double>(position) / config_.rope_scale * frequency;
      const bool adjacent = config_.rope_pairing == RopePairing::kAdjacent;
      double& a = (*heads)[head + (adjacent ? 2 * i : i)];
      double& b = (*heads)[head + (adjacent ? 2 * i + 1 : i + pairs)];
      const double x = a;
      a = x * std::cos(angle) - b * std::sin(angle);
      b = x * std::sin(angle) + b * std::cos(angle);
    }
  }
}

std::vector<double> OracleTransformer::Stored(std::vector<double> heads) const {
  if (kv_dtype_ == KvDtype::kBf16) {
    for (double& x : heads) x = RoundTo(x, 8);
  } else if (kv_dtype_ == KvDtype::kInt8) {
    const auto head_dim = static_cast<std::ptrdiff_t>(config_.head_dim);
    for (auto head = heads.begin(); head < heads.end(); head += head_dim) {
      double largest = 0;
      for (auto x = head; x < head + head_dim; ++x) largest = std::max(largest, std::abs(*x));
      if (largest == 0) continue;
      const double scale = HalfAtLeast(largest / 127);
      for (auto x = head; x < head + head_dim; ++x) *x = scale * std::nearbyint(*x / scale);
    }
  }
  return heads;
}

std::vector<double> OracleTransformer::Attend(const Cache& cache, const std::vector<double>& q) const {
  const auto head_dim = static_cast<std::size_t>(config_.head_dim);
  std::vector<double> out(q.size(), 0.0);
  for (std::size_t head = 0; head < static_cast<std::size_t>(config_.heads); ++head) {
    const std::size_t at = head * head_dim;
    const std::size_t kv_at = head / static_cast<std::size_t>(config_.heads / config_.kv_heads) * head_dim;
    std::vector<double> weight(cache.keys.size(), 0.0);
    for (std::size_t t = 0; t < weight.size(); ++t) {
      for (std::size_t d = 0; d < head_dim; ++d) weight[t] += q[at + d] * cache.keys[t][kv_at + d];
      weight[t] /= std::sqrt(static_cast<double>(head_dim));
    }
    const double max = *std::max_element(weight.begin(), weight.end());
    double sum = 0;
    for (double& w : weight) sum += w = std::exp(w - max);
    for (std::size_t t = 0; t < weight.size(); ++t) {
      for (std::size_t d = 0; d < head_dim; ++d) out[at + d] += weight[t] / sum * cache.values[t][kv_at + d];
    }
  }
  return out;
}

std::vector<double> OracleTransformer::Next(TokenId token) {
  const auto hidden = static_cast<std::ptrdiff_t>(config_.hidden);
  const auto row = embedding_.values.begin() + token * hidden;
  std::vector<double> x(row, row + hidden);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    Cache& cache = caches_[i];
    const auto position = static_cast<std::int64_t>(cache.keys.size());
    std::vector<double> h = Norm(x, layer.attn_norm);
    std::vector<double> q = layer.q.Times(h);
    std::vector<double> k = layer.k.Times(h);
    Rotate(&q, position);
    Rotate(&k, position);
    cache.keys.push_back(Stored(k));
    cache.values.push_back(Stored(layer.v.Times(h)));
    AddTo(&x, layer.attn_output.Times(Attend(cache, q)));

    h = Norm(x, layer.ffn_norm);
    std::vector<double> gate = layer.gate.Times(h);
    const std::vector<double> up = layer.up.Times(h);
    for (std::size_t j = 0; j < gate.size(); ++j) gate[j] *= up[j] / (1.0 + std::exp(-gate[j]));
    AddTo(&x, layer.down.Times(gate));
  }
  std::vector<double> logits = output_.Times(Norm(x, output_norm_));
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - max);
  for (double& logit : logits) logit -= max + std::log(sum);
  return logits;
}

}  // namespace berth::test
