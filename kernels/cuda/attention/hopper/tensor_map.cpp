#include "kernels/cuda/attention/hopper/tensor_map.h"

#include <cuda_runtime.h>

#include "framework/cuda/check.h"
#include "framework/error.h"

namespace ringtrain::cuda::hopper {

namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// Returns the driver's function, which is requested at run time: the program does not link the driver's library.
Encode encode_function() {
  static const Encode function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
          "asking the driver for tensor maps");
    if (result != cudaDriverEntryPointSuccess || found == nullptr) {
      fail(ExitCode::device,
           "the NVIDIA driver has no tensor maps (cuTensorMapEncodeTiled): install a driver for CUDA 12 "
           "or newer");
    }
    return reinterpret_cast<Encode>(found);
  }();
  return function;
}

}  // namespace

CUtensorMap head_map(const ConstTensorView& x, int tokens) {
  constexpr int rank = 4, box_bytes = 128;
  const auto size = size_of(x.dtype);
  const auto dim = [&](int index) { return static_cast<cuuint64_t>(x.dim(index)); };
  const cuuint64_t B = dim(0), T = dim(1), H = dim(2), D = dim(3);
  const cuuint64_t sizes[rank] = {D, H, T, B};
  const cuuint64_t strides[rank - 1] = {D * size, H * D * size, T * H * D * size};  // bytes; the first is dense
  const cuuint32_t box[rank] = {static_cast<cuuint32_t>(box_bytes / size), 1, static_cast<cuuint32_t>(tokens), 1};
  const cuuint32_t steps[rank] = {1, 1, 1, 1};
  // The driver requires a map at a multiple of 64 bytes. GCC 12 aligns the caller's memory for the result to at most
  // 32, so the map is not made there (as it would be if it were a variable of its own).
  struct AlignedMap {
    CUtensorMap map;
  } slot;
  static_assert(alignof(AlignedMap) >= 64);
  const CUresult result = encode_function()(
      &slot.map, x.dtype == DType::bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank,
      const_cast<void*>(x.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    fail(ExitCode::device, "the NVIDIA driver refuses a tensor map of {} at {} (error {})", x.shape.to_string(),
         static_cast<const void*>(x.data), static_cast<int>(result));
  }
  return slot.map;
}

}  // namespace ringtrain::cuda::hopper
