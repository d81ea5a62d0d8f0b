#include "reference/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ringtrain::reference {

Rotation rotation(std::int64_t D, double theta, const RopeScalingConfig& scaling, std::int64_t length) {
  const double width = static_cast<double>(D), s = scaling.factor, pi = std::numbers::pi;
  const double trained = static_cast<double>(scaling.original_max_position_embeddings);
  Rotation result;
  for (std::int64_t pair = 0; pair < D / 2; ++pair) {
    const double i = static_cast<double>(pair);
    double frequency = std::pow(theta, -2 * i / width);
    const double turns = trained * frequency / (2 * pi);  // over the trained length
    switch (scaling.type) {
      case RopeType::none:
        break;
      case RopeType::linear:  // Chen et al., 2023, eq. 4
        frequency /= s;
        break;
      case RopeType::ntk:  // the larger base of Peng et al., "YaRN", 2023, eq. 16; one pair alone has frequency 1
        if (D > 2) frequency = std::pow(theta * std::pow(s, width / (width - 2)), -2 * i / width);
        break;
      case RopeType::yarn: {  // YaRN, section 3.2: the ramp of its code runs over pairs, from beta_fast turns to
                              // beta_slow
        const auto pair_that_turns = [&](double beta) {
          return width / 2 * std::log(trained / (2 * pi * beta)) / std::log(theta);
        };
        double low = pair_that_turns(scaling.beta_fast), high = pair_that_turns(scaling.beta_slow);
        if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
        low = std::max(low, 0.0), high = std::min(high, width - 1);
        if (low == high) high += 0.001;
        const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
        frequency *= ramp / s + (1 - ramp);
        break;
      }
      case RopeType::llama3: {  // Grattafiori et al., 2024, as in its code: a ramp over the turns
        const double kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
        const double share = std::clamp(kept, 0.0, 1.0);
        frequency *= share + (1 - share) / s;
        break;
      }
      case RopeType::longrope:  // Ding et al., 2024, section 3.3: a divisor for each pair
        frequency /= (static_cast<double>(length) > trained ? scaling.long_factor : scaling.short_factor)[pair];
        break;
    }
    result.frequencies.push_back(frequency);
  }
  if (scaling.type == RopeType::yarn || scaling.type == RopeType::longrope) {
    const auto yarn = [&](double mscale) { return s > 1 ? 1 + 0.1 * mscale * std::log(s) : 1.0; };
    if (scaling.attention_factor > 0) {
      result.magnitude = scaling.attention_factor;
    } else if (scaling.type == RopeType::longrope) {  // Phi-3's code
      result.magnitude = s > 1 ? std::sqrt(1 + std::log(s) / std::log(trained)) : 1.0;
    } else if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) {  // DeepSeek-V2's code
      result.magnitude = yarn(scaling.mscale) / yarn(scaling.mscale_all_dim);
    } else {  // YaRN, eq. 22
      result.magnitude = yarn(1);
    }
  }
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
