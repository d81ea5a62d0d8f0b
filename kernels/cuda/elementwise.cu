// Flat tensors on the GPU. Sums of squares use double in a fixed tree; normals are generated on the host.
#include <vector>

#include "framework/random.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/reduce.cuh"

namespace ringtrain::cuda {

namespace {

template <class C>
struct Fill {
  C value;
  __device__ void operator()(const C (&)[1], C (&out)[1]) const { out[0] = value; }
};

template <class C>
struct Scale {
  C factor;
  __device__ void operator()(const C (&in)[1], C (&out)[1]) const { out[0] = in[0] * factor; }
};

struct Convert {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const { out[0] = in[0]; }
};

template <class C>
struct Add {
  __device__ void operator()(const C (&in)[2], C (&out)[1]) const { out[0] = in[0] + in[1]; }
};

/// y += x, rounded.
__global__ void __launch_bounds__(map_threads)
    add_to_bfloat16_kernel(bf16* const y, const float* const x, const std::int64_t n) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * (map_threads * 8) + threadIdx.x;
  const std::int64_t end = min(n, begin + map_threads * 8);
#pragma unroll 8
  for (std::int64_t i = begin; i < end; i += map_threads) y[i] = __float2bfloat16_rn(__bfloat162float(y[i]) + x[i]);
}

template <class T>
struct Square {
  const T* x;
  template <int W>
  __device__ double at(std::int64_t i) const {
    const Pack<Compute<T>, W> values = widened(load<W>(x + i));
    double sum = 0;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      const auto value = static_cast<double>(values.at[w]);
      sum += value * value;
    }
    return sum;
  }
};

/// Like dispatch_storage, but also for double: sums over ranks may have any of the three types.
template <class Body>
void dispatch_all(DType dtype, Body&& body) {
  if (dtype == DType::float64) return body.template operator()<double>();
  dispatch_storage(dtype, body);
}

}  // namespace

void fill(Stream& stream, const TensorView& x, double value) {
  dispatch_all(x.dtype, [&]<class T>() {
    using C = Compute<T>;
    map(stream.cuda(), x.numel(), Fill<C>{static_cast<C>(value)}, MapTensors<T, T, 1, 0>{{x.as<T>()}, {}});
  });
}

void copy_in_order(Stream& stream, const TensorView& y, const ConstTensorView& x) {
  if (x.numel() == 0) return;
  const cudaMemcpyKind kind = x.device.is_cpu()
                                  ? (y.device.is_cpu() ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice)
                                  : (y.device.is_cpu() ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice);
  check(cudaMemcpyAsync(y.data, x.data, x.bytes(), kind, stream.cuda().stream()), "copying a tensor");
}

void convert(Stream& stream, const TensorView& y, const ConstTensorView& x) {
  dispatch_storage(y.dtype, [&]<class To>() {
    using From = std::conditional_t<std::is_same_v<To, float>, bf16, float>;
    map(stream.cuda(), x.numel(), Convert{}, MapTensors<To, From, 1, 1>{{y.as<To>()}, {x.as<From>()}});
  });
}

void scale(Stream& stream, const TensorView& x, double factor) {
  dispatch_storage(x.dtype, [&]<class T>() {
    using C = Compute<T>;
    map(stream.cuda(), x.numel(), Scale<C>{static_cast<C>(factor)}, MapTensors<T, T, 1, 1>{{x.as<T>()}, {x.as<T>()}});
  });
}

void add(Stream& stream, const TensorView& y, const ConstTensorView& x) {
  if (y.dtype != x.dtype) {
    return launch<add_to_bfloat16_kernel>(stream.cuda(), blocks_for(y.numel(), map_threads * 8), map_threads, 0,
                                          y.as<bf16>(), x.as<float>(), y.numel());
  }
  dispatch_all(y.dtype, [&]<class T>() {
    map(stream.cuda(), y.numel(), Add<Compute<T>>{}, MapTensors<T, T, 1, 2>{{y.as<T>()}, {y.as<T>(), x.as<T>()}});
  });
}

void sum_of_squares(Stream& stream, const TensorView& result, const ConstTensorView& x, bool accumulate) {
  dispatch_all(x.dtype, [&]<class T>() {
    constexpr int W = pack_width<T>;
    sum_over_tree<W>(stream.cuda(), result.as<double>(), x.numel(), aligned_to(16, {x.data}), accumulate,
                     Square<T>{x.as<T>()});
  });
}

void fill_normal(Stream& stream, const TensorView& x, double stddev, std::uint64_t seed, std::uint64_t first_index) {
  constexpr std::int64_t chunk = std::int64_t{1} << 20, grain = 4096;
  dispatch_storage(x.dtype, [&]<class T>() {
    std::vector<T> numbers(static_cast<std::size_t>(std::min(chunk, x.numel())));
    for (std::int64_t begin = 0; begin < x.numel(); begin += chunk) {
      const std::int64_t count = std::min(chunk, x.numel() - begin);
      stream.pool().run((count + grain - 1) / grain, [&](std::int64_t task, int) {
        for (std::int64_t i = task * grain; i < std::min(count, (task + 1) * grain); ++i) {
          const double normal =
              random_normal(seed, Purpose::weights, first_index + static_cast<std::uint64_t>(begin + i));
          numbers[static_cast<std::size_t>(i)] = static_cast<T>(static_cast<float>(stddev * normal));
        }
      });
      // The source is not pinned, so the call returns after it has been read.
      cuda::copy_in_order(stream, x.flat(begin, begin + count),
                          TensorView{numbers.data(), {count}, x.dtype, Device::cpu()});
    }
  });
}

}  // namespace ringtrain::cuda
