// Rotary frequencies, in double on the host, and the rotation on the CPU.
#include "kernels/rope.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

namespace {

/// Returns how far pair i of a head is from unchanged (0) to interpolated (1): a linear ramp between the pairs that
/// rotate beta_fast and beta_slow times over the trained length (YaRN, section 3.2, eq. 17 to 19; unless `truncate` is
/// false, the ends are rounded outwards as in the published code).
std::vector<double> yarn_ramp(std::int64_t D, double theta, const RopeScalingConfig& scaling) {
  const auto length = static_cast<double>(scaling.original_max_position_embeddings);
  const auto width = static_cast<double>(D);
  const auto pair_of_rotations = [&](double rotations) {
    return width * std::log(length / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = pair_of_rotations(scaling.beta_fast), high = pair_of_rotations(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  std::vector<double> ramp(D / 2);
  for (std::size_t i = 0; i < ramp.size(); ++i) {
    ramp[i] = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
  }
  return ramp;
}

/// YaRN, section 3.4, eq. 22. With mscale and mscale_all_dim, it is the quotient in DeepSeek-V2's code.
double yarn_magnitude(const RopeScalingConfig& scaling) {
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  const auto magnitude = [&](double mscale) {
    return scaling.factor > 1 ? 0.1 * mscale * std::log(scaling.factor) + 1 : 1.0;
  };
  if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) {
    return magnitude(scaling.mscale) / magnitude(scaling.mscale_all_dim);
  }
  return magnitude(1);
}

void scale_yarn(RopeFrequencies& frequencies, std::int64_t D, double theta, const RopeScalingConfig& scaling) {
  const std::vector<double> ramp = yarn_ramp(D, theta, scaling);
  for (std::size_t i = 0; i < ramp.size(); ++i) {
    const double kept = frequencies.inverse[i], interpolated = kept / scaling.factor;
    frequencies.inverse[i] = interpolated * ramp[i] + kept * (1 - ramp[i]);
  }
  frequencies.magnitude = yarn_magnitude(scaling);
}

/// Wavelengths above trained / low_freq_factor are interpolated; those below trained / high_freq_factor do not change.
void scale_llama3(RopeFrequencies& frequencies, const RopeScalingConfig& scaling) {
  const auto length = static_cast<double>(scaling.original_max_position_embeddings);
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  for (double& inverse : frequencies.inverse) {
    const double rotations = length * inverse / (2 * std::numbers::pi);  // over the trained length
    const double kept = std::clamp((rotations - low) / (high - low), 0.0, 1.0);
    inverse = (1 - kept) * inverse / scaling.factor + kept * inverse;
  }
}

/// LongRoPE, section 3.3, with the attention factor of Phi-3's code.
void scale_longrope(RopeFrequencies& frequencies, const RopeScalingConfig& scaling, std::int64_t sequence_length,
                    const CallerLine& line) {
  const bool is_long = sequence_length > scaling.original_max_position_embeddings;
  const std::vector<double>& divisors = is_long ? scaling.long_factor : scaling.short_factor;
  if (divisors.size() != frequencies.inverse.size()) {
    refuse_call(line,
                fmt::format("{} has {} factors, but must have D / 2 = {}", is_long ? "long_factor" : "short_factor",
                            divisors.size(), frequencies.inverse.size()));
  }
  for (std::size_t i = 0; i < divisors.size(); ++i) frequencies.inverse[i] /= divisors[i];
  if (scaling.attention_factor > 0) {
    frequencies.magnitude = scaling.attention_factor;
  } else if (scaling.factor > 1) {
    const auto length = static_cast<double>(scaling.original_max_position_embeddings);
    frequencies.magnitude = std::sqrt(1 + std::log(scaling.factor) / std::log(length));
  }
}

}  // namespace

RopeFrequencies rope_frequencies(std::int64_t D, double theta, const RopeScalingConfig& scaling,
                                 std::int64_t sequence_length, const CallerLine& line) {
  const RopeType type = scaling.type;
  if (D < 2 || D % 2 != 0) refuse_call(line, fmt::format("the dimension D is {}, but must be even and at least 2", D));
  if (!(theta > 1)) refuse_call(line, fmt::format("theta is {}, but must be above 1", theta));
  if (type != RopeType::none && !(scaling.factor > 0)) {
    refuse_call(line, fmt::format("the scaling's factor is {}, but must be above 0", scaling.factor));
  }
  require_call(!needs_trained_length(type) || scaling.original_max_position_embeddings > 0,
               "yarn, llama3, and longrope need original_max_position_embeddings", line);
  const auto width = static_cast<double>(D);
  // A head of two elements has one frequency, 1, for any theta.
  if (type == RopeType::ntk && D > 2) theta *= std::pow(scaling.factor, width / (width - 2));
  RopeFrequencies frequencies;
  frequencies.inverse.resize(D / 2);
  for (std::size_t i = 0; i < frequencies.inverse.size(); ++i) {
    frequencies.inverse[i] = 1 / std::pow(theta, 2 * static_cast<double>(i) / width);
  }
  switch (type) {
    case RopeType::none:
    case RopeType::ntk:
      break;
    case RopeType::linear:
      for (double& inverse : frequencies.inverse) inverse /= scaling.factor;
      break;
    case RopeType::yarn:
      scale_yarn(frequencies, D, theta, scaling);
      break;
    case RopeType::llama3:
      scale_llama3(frequencies, scaling);
      break;
    case RopeType::longrope:
      scale_longrope(frequencies, scaling, sequence_length, line);
      break;
  }
  return frequencies;
}

void rope_table(Stream& stream, const TensorView& table, const ConstTensorView& positions,
                const RopeFrequencies& frequencies, const CallerLine& line) {
  const auto half = static_cast<std::int64_t>(frequencies.inverse.size());
  check_number(stream, table, "table", line);
  check_argument(stream, positions, "positions", {{"T", any_size}}, DType::int32, line);
  check_argument(stream, table, "table", {{"T", positions.numel()}, {"D", 2 * half}}, accumulator(table.dtype), line);
  if (stream.on_cuda()) return cuda::rope_table(stream, table, positions, frequencies);
  dispatch_float(table.dtype, [&]<class T>() {
    T* const data = table.as<T>();
    const auto* const position = positions.as<std::int32_t>();
    constexpr std::int64_t cost = 64;  // of a cosine and a sine, in elements of a plain loop
    cpu::for_rows(stream.pool(), positions.numel(), cost * half, [&, half](std::int64_t t) {
      T* const cosine = data + t * 2 * half;  // [D / 2]
      T* const sine = cosine + half;          // [D / 2]
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = position[t] * frequencies.inverse[i];
        cosine[i] = static_cast<T>(std::cos(angle) * frequencies.magnitude);
        sine[i] = static_cast<T>(std::sin(angle) * frequencies.magnitude);
      }
    });
  });
}

namespace {

void check_call(const Stream& stream, const ConstTensorView& x, const char* name, const ConstTensorView& table,
                const CallerLine& line) {
  check_number(stream, x, name, line);
  check_argument(stream, x, name, {{"T", any_size}, {"H", any_size}, {"D", any_size}}, x.dtype, line);
  if (x.dim(2) % 2 != 0) {
    refuse_call(line, fmt::format("{} has the shape {}: D = {} must be even", name, x.shape.to_string(), x.dim(2)));
  }
  check_argument(stream, table, "table", {{"T", x.dim(0)}, {"D", x.dim(2)}}, accumulator(x.dtype), line);
}

/// to[tokens, H, D] = from rotated by the table's angles (direction 1) or back (-1); to may be from's memory if it has
/// its type.
template <int direction, class To, class From, class A>
void rotate(ThreadPool& pool, const Shape& shape, To* to, const From* from, const A* angles) {
  const std::int64_t H = shape[1], D = shape[2], half = D / 2;
  cpu::for_rows(pool, shape[0], H * D, [=](std::int64_t t) {
    const A *const cosine = angles + t * D, *const sine = cosine + half;  // [D / 2]
    for (std::int64_t h = 0; h < H; ++h) {
      const std::int64_t low = (t * H + h) * D, high = low + half;  // [D / 2]
      cpu::for_vectors<A>(0, half, [=](auto at) {
        const auto c = at(cosine), s = direction * at(sine), a = at(from + low), b = at(from + high);
        at.put(to + low, a * c - b * s);
        at.put(to + high, b * c + a * s);
      });
    }
  });
}

}  // namespace

void rope_forward(Stream& stream, const TensorView& x, const ConstTensorView& table, const CallerLine& line) {
  check_call(stream, x, "x", table, line);
  if (stream.on_cuda()) return cuda::rope_forward(stream, x, table);
  dispatch_dtype(x.dtype, [&]<class S, class A>() {
    rotate<1>(stream.pool(), x.shape, x.as<S>(), ConstTensorView(x).as<S>(), table.as<A>());
  });
}

void rope_backward(Stream& stream, const TensorView& dx, const ConstTensorView& gradient, const ConstTensorView& table,
                   const CallerLine& line) {
  check_call(stream, dx, "dx", table, line);
  check_argument(stream, gradient, "gradient", {{"T", dx.dim(0)}, {"H", dx.dim(1)}, {"D", dx.dim(2)}},
                 accumulator(dx.dtype), line);
  if (stream.on_cuda()) return cuda::rope_backward(stream, dx, gradient, table);
  dispatch_dtype(dx.dtype, [&]<class S, class A>() {
    rotate<-1>(stream.pool(), dx.shape, dx.as<S>(), gradient.as<A>(), table.as<A>());
  });
}

}  // namespace ringtrain
