// Fills, copies, sums and norms of flat tensors of any shape; those of a call have one number of elements and, unless
// it says otherwise, one dtype, float32, float64 or bfloat16. A tensor that does not fit is an Error(usage) that names
// the caller's line. No communication.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// x = value, rounded to its dtype.
void fill(Stream& stream, const TensorView& x, double value, const CallerLine& line = CallerLine::current());
/// y = x, of any dtype; on CUDA either side may be the host's. A copy into host memory is finished when the
/// call returns. Any other is ordered with the stream, so the host memory that it reads stays as it is until the stream
/// has passed it (Stream::synchronize, Event).
void copy(Stream& stream, const TensorView& y, const ConstTensorView& x,
          const CallerLine& line = CallerLine::current());
/// The same, but ordered with the stream even into host memory, which nobody reads before the stream has passed it.
/// (The call itself waits where the host's memory is not pinned.)
void copy_in_order(Stream& stream, const TensorView& y, const ConstTensorView& x,
                   const CallerLine& line = CallerLine::current());
/// y = x rounded to y's dtype (float32 or bfloat16), or x as it is if that is the same. Nothing happens if y is x.
void convert(Stream& stream, const TensorView& y, const ConstTensorView& x,
             const CallerLine& line = CallerLine::current());
/// x *= factor.
void scale(Stream& stream, const TensorView& x, double factor, const CallerLine& line = CallerLine::current());
/// y += x.
void add(Stream& stream, const TensorView& y, const ConstTensorView& x, const CallerLine& line = CallerLine::current());
/// result[1] (float64) = or += sum of x^2, accumulated in double over a fixed tree.
void sum_of_squares(Stream& stream, const TensorView& result, const ConstTensorView& x, bool accumulate,
                    const CallerLine& line = CallerLine::current());
/// Fills x with mean 0 normals of the given standard deviation; element i uses random index first_index + i. On a
/// device the numbers are made on the host and copied, so that they are the same everywhere.
void fill_normal(Stream& stream, const TensorView& x, double stddev, std::uint64_t seed, std::uint64_t first_index,
                 const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
