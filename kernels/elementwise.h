// Fills, copies, sums and norms of flat tensors. Shapes of a call's tensors agree in numel.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

void fill(Stream& stream, const TensorView& x, double value);
/// y = x; same dtype and numel; on CUDA either side may be the host's. A copy into host memory is finished when the
/// call returns. Any other is ordered with the stream, so the host memory that it reads stays as it is until the stream
/// has passed it (Stream::synchronize, Event).
void copy(Stream& stream, const TensorView& y, const ConstTensorView& x);
/// The same, but ordered with the stream even into host memory, which nobody reads before the stream has passed it.
/// (The call itself waits where the host's memory is not pinned.)
void copy_in_order(Stream& stream, const TensorView& y, const ConstTensorView& x);
/// y = x rounded to y's dtype (float32 or bfloat16), or x as it is if that is the same. Nothing happens if y is x.
void convert(Stream& stream, const TensorView& y, const ConstTensorView& x);
/// x *= factor.
void scale(Stream& stream, const TensorView& x, double factor);
/// y += x.
void add(Stream& stream, const TensorView& y, const ConstTensorView& x);
/// result[1] (float64) = or += sum of x^2, accumulated in double over a fixed tree.
void sum_of_squares(Stream& stream, const TensorView& result, const ConstTensorView& x, bool accumulate);
/// Fills x with mean 0 normals of the given standard deviation; element i uses random index first_index + i. On a
/// device the numbers are made on the host and copied, so that they are the same everywhere.
void fill_normal(Stream& stream, const TensorView& x, double stddev, std::uint64_t seed, std::uint64_t first_index);

}  // namespace ringtrain
