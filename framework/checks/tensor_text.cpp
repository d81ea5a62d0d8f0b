#include "framework/checks/tensor_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "framework/checks/argument_check.h"

namespace ringtrain {

namespace {

/// Calls body with element i in a type that prints and converts.
template <class Body>
auto with_element(const ConstTensorView& x, std::int64_t i, Body&& body) {
  switch (x.dtype) {
    case DType::float32:
      return body(x.as<float>()[i]);
    case DType::float64:
      return body(x.as<double>()[i]);
    case DType::bfloat16:
      return body(x.as<BFloat16>()[i].value());
    case DType::int32:
      return body(x.as<std::int32_t>()[i]);
    case DType::int64:
      return body(x.as<std::int64_t>()[i]);
    case DType::uint8:
      return body(static_cast<int>(x.as<std::uint8_t>()[i]));
  }
  fail(ExitCode::internal, "internal error: a tensor of no dtype");
}

double number(const ConstTensorView& x, std::int64_t i) {
  return with_element(x, i, [](auto value) { return static_cast<double>(value); });
}

std::string element_text(const ConstTensorView& x, std::int64_t i) {
  return with_element(x, i, [](auto value) {
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      return fmt::format("{:.6g}", value);
    } else {
      return fmt::format("{}", value);
    }
  });
}

/// Returns the elements of dimension `dim` from `first` on, in brackets. stride: elements between two of its entries.
std::string entries_text(const ConstTensorView& x, int dim, std::int64_t first, std::int64_t max_shown) {
  if (dim == x.shape.rank()) return element_text(x, first);
  std::int64_t stride = 1;
  for (int inner = dim + 1; inner < x.shape.rank(); ++inner) stride *= x.shape[inner];
  const bool lines = dim + 1 < x.shape.rank();
  const std::string separator = lines ? ",\n" + std::string(static_cast<std::size_t>(dim) + 1, ' ') : ", ";
  const std::int64_t size = x.shape[dim], head = size <= max_shown ? size : (max_shown + 1) / 2,
                     tail = max_shown - head;
  std::string text = "[";
  for (std::int64_t i = 0; i < size; ++i) {
    text += i > 0 ? separator : "";
    if (i == head && size > max_shown) {
      text += "..." + (tail > 0 ? separator : "");
      i = size - tail;
      if (tail == 0) break;
    }
    text += entries_text(x, dim + 1, first + i * stride, max_shown);
  }
  return text + "]";
}

void require_host(const ConstTensorView& x, const char* name, const CallerLine& line) {
  if (x.device.is_cpu()) return;
  refuse_call(line, fmt::format("{} lies on {}, but must lie on {}", name, x.device.name(), Device::cpu().name()));
}

/// Returns |a - b|; infinity if one is no finite number and the other differs.
double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : std::numeric_limits<double>::infinity();
}

}  // namespace

std::string to_text(const ConstTensorView& x, std::int64_t max_shown, const CallerLine& line) {
  require_host(x, "x", line);
  if (max_shown < 1) refuse_call(line, fmt::format("max_shown is {}, but must be 1 or more", max_shown));
  const std::string head = fmt::format("{} {}", name_of(x.dtype), x.shape.to_string());
  if (x.empty()) return head + " without storage";
  return head + "\n" + entries_text(x, 0, 0, max_shown);
}

std::string place_text(const Shape& shape, std::int64_t element) {
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

std::string first_difference(const ConstTensorView& a, const ConstTensorView& b, const Tolerance& tolerance,
                             const CallerLine& line) {
  if (a.shape != b.shape) return fmt::format("the shapes are {} and {}", a.shape.to_string(), b.shape.to_string());
  const TensorComparison found = compare_tensors(a, b, tolerance, line);
  if (found.differing == 0) return "";
  return fmt::format(
      "{} of {} elements differ, first {}: {} and {}; the greatest difference is {:.3g} of the maximum {}",
      found.differing, a.numel(), place_text(a.shape, found.first), found.a, found.b, found.relative(found.greatest),
      found.maximum);
}

}  // namespace ringtrain
