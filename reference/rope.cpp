#include "reference/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ringtrain::reference {

namespace {

/// Returns the radians per position by which a pair turns.
double frequency_of(std::int64_t pair, std::int64_t D, double theta, const RopeScalingConfig& scaling,
                    std::int64_t length) {
  const double width = static_cast<double>(D), s = scaling.factor, pi = std::numbers::pi;
  const double trained = static_cast<double>(scaling.original_max_position_embeddings);
  const double i = static_cast<double>(pair), frequency = std::pow(theta, -2 * i / width);
  switch (scaling.type) {
    case RopeType::none:
      break;
    case RopeType::linear:  // Chen et al., 2023, eq. 4
      return frequency / s;
    case RopeType::ntk:  // the larger base of Peng et al., "YaRN", 2023, eq. 16; a single pair has frequency 1
      return D > 2 ? std::pow(theta * std::pow(s, width / (width - 2)), -2 * i / width) : frequency;
    case RopeType::yarn: {  // YaRN, section 3.2: its code's ramp runs over pairs, from beta_fast turns to beta_slow
      const auto pair_that_turns = [&](double beta) {
        return width / 2 * std::log(trained / (2 * pi * beta)) / std::log(theta);
      };
      double low = pair_that_turns(scaling.beta_fast), high = pair_that_turns(scaling.beta_slow);
      if (scaling.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
      }
      low = std::max(low, 0.0);
      high = std::min(high, width - 1);
      if (low == high) high += 0.001;
      const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      return frequency * (ramp / s + (1 - ramp));
    }
    case RopeType::llama3: {  // Grattafiori et al., 2024, as in its code: a ramp over the turns of the trained length
      const double turns = trained * frequency / (2 * pi);
      const double kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      const double share = std::clamp(kept, 0.0, 1.0);
      return frequency * (share + (1 - share) / s);
    }
    case RopeType::longrope:  // Ding et al., 2024, section 3.3: a divisor for each pair
      return frequency / (static_cast<double>(length) > trained ? scaling.long_factor : scaling.short_factor)[pair];
  }
  return frequency;
}

double magnitude_of(const RopeScalingConfig& scaling) {
  const double s = scaling.factor, trained = static_cast<double>(scaling.original_max_position_embeddings);
  if (scaling.type != RopeType::yarn && scaling.type != RopeType::longrope) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  if (s <= 1) return 1;
  if (scaling.type == RopeType::longrope) return std::sqrt(1 + std::log(s) / std::log(trained));  // Phi-3's code
  const auto yarn = [&](double mscale) { return 1 + 0.1 * mscale * std::log(s); };
  const bool both = scaling.mscale > 0 && scaling.mscale_all_dim > 0;  // DeepSeek-V2's code; otherwise YaRN, eq. 22
  return both ? yarn(scaling.mscale) / yarn(scaling.mscale_all_dim) : yarn(1);
}

}  // namespace

Rotation rotation(std::int64_t D, double theta, const RopeScalingConfig& scaling, std::int64_t length) {
  Rotation result;
  for (std::int64_t i = 0; i < D / 2; ++i) result.frequencies.push_back(frequency_of(i, D, theta, scaling, length));
  result.magnitude = magnitude_of(scaling);
  return result;
}

void rotate(std::vector<double>& x, std::int64_t heads, std::span<const std::int32_t> positions,
            const Rotation& rotation, bool back) {
  const auto half = static_cast<std::int64_t>(rotation.frequencies.size());
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = positions[t] * rotation.frequencies[i];
      const double cosine = rotation.magnitude * std::cos(angle);
      const double sine = rotation.magnitude * (back ? -std::sin(angle) : std::sin(angle));
      for (std::int64_t h = 0; h < heads; ++h) {
        double* const head = &x[(static_cast<std::int64_t>(t) * heads + h) * 2 * half];
        const double a = head[i], b = head[i + half];
        head[i] = a * cosine - b * sine;
        head[i + half] = b * cosine + a * sine;
      }
    }
  }
}

}  // namespace ringtrain::reference
