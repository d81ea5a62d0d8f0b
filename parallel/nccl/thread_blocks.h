// How much of a GPU NCCL may use, for the communicators that set it, and for plans.
#pragma once

namespace ringtrain {

/// Thread blocks of NCCL's kernels, each of which occupies a multiprocessor; without a limit, there are up to 32. Of
/// 132, this is 6 %, and a hop's message needs less: 33 MB in 0.11 ms at 300 GB/s, while a hop computes for 1 to 2 ms.
/// Hopper's attention leaves as many free during the ring's messages. Not yet run on several cards.
inline constexpr int nccl_thread_blocks = 8;

}  // namespace ringtrain
