// Fills, copies, sums, and norms of flat tensors of any shape. The tensors of a call have the same number of elements
// and, unless stated otherwise, the same dtype: float32, float64, or bfloat16. A tensor that does not fit is an
// Error(usage) that names the caller's line. No communication.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// x = value, rounded to its dtype.
void fill(Stream& stream, const TensorView& x, double value, const CallerLine& line = CallerLine::current());
/// y = x, of any dtype; on CUDA, either side may be on the host. A copy into host memory is finished when the call
/// returns. Any other copy is ordered with the stream, so host memory that it reads must not change until the stream
/// has passed it (Stream::synchronize, Event).
void copy(Stream& stream, const TensorView& y, const ConstTensorView& x,
          const CallerLine& line = CallerLine::current());
/// The same, but ordered with the stream even into host memory, which must not be read before the stream has passed the
/// copy. (The call itself waits if the host's memory is not pinned.)
void copy_in_order(Stream& stream, const TensorView& y, const ConstTensorView& x,
                   const CallerLine& line = CallerLine::current());
/// y = x rounded to y's dtype (float32 or bfloat16), or x itself if the dtypes are equal. Does nothing if y is x.
void convert(Stream& stream, const TensorView& y, const ConstTensorView& x,
             const CallerLine& line = CallerLine::current());
/// x *= factor.
void scale(Stream& stream, const TensorView& x, double factor, const CallerLine& line = CallerLine::current());
/// y += x. x may be float32 where y is bfloat16: the sum is rounded once.
void add(Stream& stream, const TensorView& y, const ConstTensorView& x, const CallerLine& line = CallerLine::current());
/// result[1] (float64) = or += sum of x^2, accumulated in double in a fixed tree.
void sum_of_squares(Stream& stream, const TensorView& result, const ConstTensorView& x, bool accumulate,
                    const CallerLine& line = CallerLine::current());
/// Fills x with normals of mean 0 and the given standard deviation; element i uses random index first_index + i. For a
/// device, the numbers are generated on the host and copied, so they are the same everywhere.
void fill_normal(Stream& stream, const TensorView& x, double stddev, std::uint64_t seed, std::uint64_t first_index,
                 const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
