// Random numbers for the inputs of benchmarks: never zeros, which hide missing writes and run faster than real data.
// The library's own numbers are generated on the host, which would take minutes for a billion weights; here, a few
// million of them are put on the GPU once and copied repeatedly. Also has the check that an output was written.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "framework/allocator.h"
#include "kernels/elementwise.h"

namespace ringtrain::bench {

class RandomValues {
 public:
  /// Makes count normals with mean 0 and the given stddev, in dtype, on the allocator's device. The stream must outlive
  /// it.
  RandomValues(Allocator& allocator, Stream& stream, DType dtype, double stddev, std::int64_t count)
      : stream_(stream), values_(allocator.make(Tag::workspace, "random values", dtype, {count})) {
    ringtrain::fill_normal(stream, values_, stddev, /*seed=*/20, 0);
  }

  /// Fills x, which has the dtype of these values, on the stream. Every call begins at another position among them.
  void fill(const TensorView& x) {
    const std::int64_t count = values_.view().numel(), n = x.numel();
    for (std::int64_t done = 0; done < n;) {
      const std::int64_t length = std::min(n - done, count - next_);
      copy(stream_, x.flat(done, done + length), values_.view().flat(next_, next_ + length));
      done += length;
      next_ = (next_ + length) % count;
    }
    // Not where the next call would begin anyway: two tensors of `count` elements must not be equal.
    next_ = (next_ + 64 * 4099) % count / 64 * 64;
  }

 private:
  Stream& stream_;
  Tensor values_;
  std::int64_t next_ = 0;
};

/// Returns whether x, which was filled with NaN before it was computed, contains numbers, and not only zeros.
inline bool is_written(Allocator& allocator, Stream& stream, const TensorView& x) {
  const Tensor sum = allocator.make(Tag::workspace, "sum of squares", DType::float64, {1});
  double squares = 0;
  sum_of_squares(stream, sum, x, /*accumulate=*/false);
  copy(stream, host_view(&squares, {1}), sum);
  return std::isfinite(squares) && squares > 0;
}

}  // namespace ringtrain::bench
