// A stable sort of up to 256K small numbers on the GPU: least significant digit first, 8 bits at a time, three launches
// per digit. Equal numbers keep their order, and the result does not depend on how blocks and warps are scheduled.
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/cuda/context.h"

namespace ringtrain::cuda {

/// The most numbers of one sort; its memory is part of the context's partial sums.
inline constexpr int max_sorted = 1 << 18;

/// keys[n], ascending, and the earlier index of each: keys[i] = input[positions[i]].
struct Sorted {
  const std::uint32_t* keys;
  const std::uint32_t* positions;
};

/// Sorts input[n] (device memory, each in [0, bound)), 1 <= n <= max_sorted. The result is in the context's partial
/// sums until the next call that uses them.
Sorted sort(Context& context, const std::int32_t* input, int n, std::int64_t bound);

}  // namespace ringtrain::cuda
