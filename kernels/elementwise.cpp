// Flat tensors on the CPU: fixed chunks over the pool; sums in double over a fixed tree.
#include "kernels/elementwise.h"

#include <cstring>

#include "framework/random.h"
#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

using cpu::Vector;

void fill(Stream& stream, const TensorView& x, double value) {
  if (stream.on_cuda()) return cuda::fill(stream, x, value);
  dispatch_float(x.dtype, [&]<class T>() {
    T* const data = x.as<T>();
    cpu::for_chunks(stream.pool(), x.numel(), cpu::chunk_elements, [=](std::int64_t begin, std::int64_t end) {
      std::fill(data + begin, data + end, static_cast<T>(value));
    });
  });
}

void copy(Stream& stream, const TensorView& y, const ConstTensorView& x) {
  copy_in_order(stream, y, x);
  if (stream.on_cuda() && y.device.is_cpu() && y.numel() > 0) stream.synchronize();
}

void copy_in_order(Stream& stream, const TensorView& y, const ConstTensorView& x) {
  check_flat(x, y, "copy joins tensors of one size and dtype");
  if (stream.on_cuda()) return cuda::copy_in_order(stream, y, x);
  ensure(x.device.is_cpu() && y.device.is_cpu(), "copy on a CPU stream joins host tensors");
  auto* const to = static_cast<std::byte*>(y.data);
  const auto* const from = static_cast<const std::byte*>(x.data);
  cpu::for_chunks(stream.pool(), static_cast<std::int64_t>(x.bytes()), 4 * cpu::chunk_elements,
                  [=](std::int64_t begin, std::int64_t end) {
                    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
                  });
}

void convert(Stream& stream, const TensorView& y, const ConstTensorView& x) {
  ensure(y.numel() == x.numel(), "convert joins tensors of one size");
  if (y.data == x.data && y.dtype == x.dtype) return;
  if (stream.on_cuda() && y.dtype != x.dtype) return cuda::convert(stream, y, x);
  copy(stream, y, x);
}

void scale(Stream& stream, const TensorView& x, double factor) {
  if (stream.on_cuda()) return cuda::scale(stream, x, factor);
  dispatch_float(x.dtype, [&]<class T>() {
    T* const data = x.as<T>();
    const T by = static_cast<T>(factor);
    cpu::map<T>(stream.pool(), x.numel(), [=](auto at) { at.put(data, at(data) * by); });
  });
}

void add(Stream& stream, const TensorView& y, const ConstTensorView& x) {
  check_flat(x, y, "add joins tensors of one size and dtype");
  if (stream.on_cuda()) return cuda::add(stream, y, x);
  dispatch_float(y.dtype, [&]<class T>() {
    T* const y_data = y.as<T>();
    const T* const x_data = x.as<T>();
    cpu::map<T>(stream.pool(), y.numel(), [=](auto at) { at.put(y_data, at(y_data) + at(x_data)); });
  });
}

void sum_of_squares(Stream& stream, const TensorView& result, const ConstTensorView& x, bool accumulate) {
  ensure(result.numel() == 1 && result.dtype == DType::float64, "sum_of_squares has one float64 result");
  if (stream.on_cuda()) return cuda::sum_of_squares(stream, result, x, accumulate);
  dispatch_float(x.dtype, [&]<class T>() {
    const T* const data = x.as<T>();
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

void fill_normal(Stream& stream, const TensorView& x, double stddev, std::uint64_t seed, std::uint64_t first_index) {
  if (stream.on_cuda()) return cuda::fill_normal(stream, x, stddev, seed, first_index);
  dispatch_float(x.dtype, [&]<class T>() {
    T* const data = x.as<T>();
    cpu::for_chunks(stream.pool(), x.numel(), cpu::chunk_elements, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double normal = random_normal(seed, Purpose::weights, first_index + static_cast<std::uint64_t>(i));
        data[i] = static_cast<T>(stddev * normal);
      }
    });
  });
}

}  // namespace ringtrain
