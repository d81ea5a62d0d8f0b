// The GPU half of kernels/*.h: one function for each public one, with the same type (without the caller's line) and the
// same contract, on device tensors. kernels/NAME.cpp has checked shapes and dtypes before it calls these functions.
// None of them waits for the device, except for copies of host memory that is not pinned. A build without CUDA has a
// stub for each of them, so no caller needs to check how it was built. Dtypes: float32 everywhere, or bfloat16 with
// float32 accumulators (framework/dtype.h). Any shape is legal; heads of 64 and 128 elements are fast, and other sizes
// up to 256 are correct.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "framework/device.h"
#include "framework/error.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/attention_sinks.h"
#include "kernels/cross_entropy.h"
#include "kernels/decode_attention.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace ringtrain::cuda {

/// The type of a public kernel without its last parameter, the caller's line.
template <class Function>
struct GpuKernel;
template <class Result, class... Arguments>
struct GpuKernel<Result(Arguments...)> {
  using All = std::tuple<Arguments...>;
  static constexpr std::size_t last = sizeof...(Arguments) - 1;
  static constexpr bool has_line = std::is_same_v<std::tuple_element_t<last, All>, const CallerLine&>;
  template <std::size_t... i>
  static auto first(std::index_sequence<i...>) -> Result (*)(std::tuple_element_t<i, All>...);
  using Type = std::remove_pointer_t<decltype(first(std::make_index_sequence<last + (has_line ? 0 : 1)>()))>;
};

#if RINGTRAIN_CUDA
#define RINGTRAIN_GPU_KERNEL(name) GpuKernel<decltype(ringtrain::name)>::Type name
#else
/// A kernel that is missing in this build. Configs that request a GPU were refused long before one is called.
template <class Function>
struct KernelNotBuilt;
template <class Result, class... Arguments>
struct KernelNotBuilt<Result(Arguments...)> {
  Result operator()(Arguments...) const { fail(ExitCode::internal, "this program was built without CUDA"); }
};
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name
#define RINGTRAIN_GPU_KERNEL(name) inline constexpr KernelNotBuilt<GpuKernel<decltype(ringtrain::name)>::Type> name = {}
#endif

RINGTRAIN_GPU_KERNEL(fill);
RINGTRAIN_GPU_KERNEL(copy_in_order);
RINGTRAIN_GPU_KERNEL(convert);
RINGTRAIN_GPU_KERNEL(scale);
RINGTRAIN_GPU_KERNEL(add);
RINGTRAIN_GPU_KERNEL(sum_of_squares);
RINGTRAIN_GPU_KERNEL(fill_normal);

RINGTRAIN_GPU_KERNEL(activation_forward);
RINGTRAIN_GPU_KERNEL(activation_backward);

RINGTRAIN_GPU_KERNEL(adamw_update);  // one launch for as many slices as a kernel's arguments hold

RINGTRAIN_GPU_KERNEL(attention_workspace_bytes);
RINGTRAIN_GPU_KERNEL(attention_forward);
RINGTRAIN_GPU_KERNEL(attention_finalize);
RINGTRAIN_GPU_KERNEL(attention_delta);
RINGTRAIN_GPU_KERNEL(attention_backward);
RINGTRAIN_GPU_KERNEL(attention_sinks_backward);

RINGTRAIN_GPU_KERNEL(decode_attention);
RINGTRAIN_GPU_KERNEL(combine_attention);

RINGTRAIN_GPU_KERNEL(cap_logits);
RINGTRAIN_GPU_KERNEL(cross_entropy);
RINGTRAIN_GPU_KERNEL(weighted_sum);

RINGTRAIN_GPU_KERNEL(embedding_forward);
RINGTRAIN_GPU_KERNEL(embedding_backward);

RINGTRAIN_GPU_KERNEL(linear_forward);  // the three: cuBLASLt
RINGTRAIN_GPU_KERNEL(linear_backward_input);
RINGTRAIN_GPU_KERNEL(linear_backward_weight);

RINGTRAIN_GPU_KERNEL(norm_forward);
RINGTRAIN_GPU_KERNEL(norm_backward);

RINGTRAIN_GPU_KERNEL(rope_table);
RINGTRAIN_GPU_KERNEL(rope_forward);
RINGTRAIN_GPU_KERNEL(rope_backward);

#undef RINGTRAIN_GPU_KERNEL

}  // namespace ringtrain::cuda
