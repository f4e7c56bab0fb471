#include "runner/rope_angles.h"

#include <cmath>
#include <cstring>

namespace berth {

RopeAngles::RopeAngles(const Model& model) {
  const ModelConfig& config = model.config;
  for (std::int32_t i = 0; i < config.rope_dims / 2; ++i) {
    float factor = 1.0F;
    if (const GgufTensor* factors = model.weights.rope_factors; factors != nullptr) {
      std::memcpy(&factor, factors->data.data() + static_cast<std::size_t>(i) * sizeof factor, sizeof factor);
    }
    const double exponent = -2.0 * i / config.rope_dims;
    frequencies_.push_back(std::pow(static_cast<double>(config.rope_theta), exponent) / config.rope_scale / factor);
  }
}

void RopeAngles::Fill(std::int32_t position, float* cosines, float* sines) const {
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double angle = position * frequencies_[i];
    cosines[i] = static_cast<float>(std::cos(angle));
    sines[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace berth
