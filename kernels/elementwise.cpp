// Flat tensors on the CPU: fixed chunks spread over the pool; sums in double in a fixed tree.
#include "kernels/elementwise.h"

#include <fmt/core.h>

#include <cstring>

#include "framework/random.h"
#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

void fill(Stream& stream, const TensorView& x, double value, const CallerLine& line) {
  check_number(stream, x, "x", line);
  if (stream.on_cuda()) return cuda::fill(stream, x, value);
  dispatch_dtype(x.dtype, [&]<class S, class A>() {
    S* const data = x.as<S>();
    cpu::for_chunks(stream.pool(), x.numel(), cpu::chunk_elements, [=](std::int64_t begin, std::int64_t end) {
      std::fill(data + begin, data + end, cpu::rounded_to<S>(static_cast<A>(value)));
    });
  });
}

void copy(Stream& stream, const TensorView& y, const ConstTensorView& x, const CallerLine& line) {
  copy_in_order(stream, y, x, line);
  if (stream.on_cuda() && y.device.is_cpu() && y.numel() > 0) stream.synchronize();
}

void copy_in_order(Stream& stream, const TensorView& y, const ConstTensorView& x, const CallerLine& line) {
  check_as_long(stream, x, "x", y, "y", line);
  check_memory(stream, y, "y", line);
  if (stream.on_cuda()) return cuda::copy_in_order(stream, y, x);
  auto* const to = static_cast<std::byte*>(y.data);
  const auto* const from = static_cast<const std::byte*>(x.data);
  cpu::for_chunks(stream.pool(), static_cast<std::int64_t>(x.bytes()), 4 * cpu::chunk_elements,
                  [=](std::int64_t begin, std::int64_t end) {
                    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
                  });
}

void convert(Stream& stream, const TensorView& y, const ConstTensorView& x, const CallerLine& line) {
  if (y.data == x.data && y.dtype == x.dtype && y.numel() == x.numel()) return;
  if (y.dtype == x.dtype) return copy(stream, y, x, line);
  ConstTensorView as_y = x;
  as_y.dtype = y.dtype;
  check_as_long(stream, as_y, "x", y, "y", line);
  check_memory(stream, y, "y", line);
  if (accumulator(y.dtype) != DType::float32 || accumulator(x.dtype) != DType::float32) {
    refuse_call(line, fmt::format("convert works between float32 and bfloat16, but x is {} and y is {}",
                                  name_of(x.dtype), name_of(y.dtype)));
  }
  if (stream.on_cuda()) return cuda::convert(stream, y, x);
  const auto pass = [&]<class To, class From>(To* to, const From* from) {
    cpu::map<float>(stream.pool(), x.numel(), [=](auto at) { at.put(to, at(from)); });
  };
  if (y.dtype == DType::float32) return pass(y.as<float>(), x.as<BFloat16>());
  pass(y.as<BFloat16>(), x.as<float>());
}

void scale(Stream& stream, const TensorView& x, double factor, const CallerLine& line) {
  check_number(stream, x, "x", line);
  if (stream.on_cuda()) return cuda::scale(stream, x, factor);
  dispatch_dtype(x.dtype, [&]<class S, class A>() {
    S* const data = x.as<S>();
    const A by = static_cast<A>(factor);
    cpu::map<A>(stream.pool(), x.numel(), [=](auto at) { at.put(data, at(data) * by); });
  });
}

void add(Stream& stream, const TensorView& y, const ConstTensorView& x, const CallerLine& line) {
  check_number(stream, y, "y", line);
  const bool wide = y.dtype == DType::bfloat16 && x.dtype == DType::float32;
  ConstTensorView as_y = x;
  if (wide) as_y.dtype = y.dtype;
  check_as_long(stream, as_y, "x", y, "y", line);
  check_memory(stream, y, "y", line);
  if (stream.on_cuda()) return cuda::add(stream, y, x);
  const auto pass = [&]<class A>(auto* to, const auto* from) {
    cpu::map<A>(stream.pool(), y.numel(), [=](auto at) { at.put(to, at(to) + at(from)); });
  };
  if (wide) return pass.operator()<float>(y.as<BFloat16>(), x.as<float>());
  dispatch_dtype(y.dtype, [&]<class S, class A>() { pass.template operator()<A>(y.as<S>(), x.as<S>()); });
}

void sum_of_squares(Stream& stream, const TensorView& result, const ConstTensorView& x, bool accumulate,
                    const CallerLine& line) {
  check_argument(stream, result, "result", {{"1", 1}}, DType::float64, line);
  check_number(stream, x, "x", line);
  if (stream.on_cuda()) return cuda::sum_of_squares(stream, result, x, accumulate);
  dispatch_dtype(x.dtype, [&]<class S, class>() {
    const S* const data = x.as<S>();
    const double sum = cpu::sum_over_tree(stream.pool(), x.numel(), [=](std::int64_t begin, std::int64_t end) {
      return cpu::sum_in_double(begin, end, [=](auto at) {
        const auto value = at(data);
        return value * value;
      });
    });
    double& to = *result.as<double>();
    to = accumulate ? to + sum : sum;
  });
}

void fill_normal(Stream& stream, const TensorView& x, double stddev, std::uint64_t seed, std::uint64_t first_index,
                 const CallerLine& line) {
  check_number(stream, x, "x", line);
  if (stream.on_cuda()) return cuda::fill_normal(stream, x, stddev, seed, first_index);
  dispatch_dtype(x.dtype, [&]<class S, class A>() {
    S* const data = x.as<S>();
    cpu::for_chunks(stream.pool(), x.numel(), cpu::chunk_elements, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double normal = random_normal(seed, Purpose::weights, first_index + static_cast<std::uint64_t>(i));
        data[i] = cpu::rounded_to<S>(static_cast<A>(stddev * normal));
      }
    });
  });
}

}  // namespace ringtrain
