#include "framework/checks/tensor_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "framework/checks/argument_check.h"

namespace ringtrain {

namespace {

double number(const ConstTensorView& x, std::int64_t i) {
  if (x.dtype == DType::float32) return x.as<float>()[i];
  if (x.dtype == DType::float64) return x.as<double>()[i];
  if (x.dtype == DType::bfloat16) return x.as<BFloat16>()[i].value();
  if (x.dtype == DType::int32) return x.as<std::int32_t>()[i];
  if (x.dtype == DType::int64) return static_cast<double>(x.as<std::int64_t>()[i]);
  return x.as<std::uint8_t>()[i];
}

void require_host(const ConstTensorView& x, const char* name, const CallerLine& line) {
  if (x.device.is_cpu()) return;
  refuse_call(line, fmt::format("{} is on {}, but must be on {}", name, x.device.name(), Device::cpu().name()));
}

/// Returns |a - b|; infinity if one of them is not finite and the other differs.
double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : std::numeric_limits<double>::infinity();
}

}  // namespace

std::string location_text(const Shape& shape, std::int64_t element) {
  std::string text;
  for (int dim = shape.rank() - 1; dim >= 0; --dim) {
    text = fmt::format("{}{}{}", element % shape[dim], text.empty() ? "" : ", ", text);
    element /= shape[dim];
  }
  return "[" + text + "]";
}

TensorComparison compare_tensors(const ConstTensorView& a, const ConstTensorView& b, const Tolerance& tolerance,
                                 const CallerLine& line) {
  for (const auto& [x, name] : {std::pair{a, "a"}, {b, "b"}}) {
    require_host(x, name, line);
    require_memory(x, name, line);
  }
  if (a.shape != b.shape) {
    refuse_call(
        line, fmt::format("b has the shape {}, but must have that of a, {}", b.shape.to_string(), a.shape.to_string()));
  }
  TensorComparison result;
  const std::int64_t elements = a.numel();
  for (std::int64_t i = 0; i < elements; ++i) {
    for (const double value : {number(a, i), number(b, i)}) {
      if (std::isfinite(value)) result.maximum = std::max(result.maximum, std::abs(value));
    }
  }
  const double allowed = std::max(tolerance.relative * result.maximum, tolerance.absolute);
  for (std::int64_t i = 0; i < elements; ++i) {
    const double of_a = number(a, i), of_b = number(b, i), difference = distance(of_a, of_b);
    result.greatest = std::max(result.greatest, difference);
    if (difference <= allowed) continue;
    if (result.differing++ > 0) continue;
    result.first = i;
    result.a = of_a;
    result.b = of_b;
  }
  return result;
}

}  // namespace ringtrain
