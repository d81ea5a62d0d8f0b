// Waits within kernels: for a barrier's phase, or for other blocks' turns. Usually they have no limit. In a build with
// RINGTRAIN_BOUNDED_WAITS, each has a limit of max_wait_cycles of the multiprocessor's clock: warps that have waited
// that long write a report (framework/cuda/wait_report.h), and then one of them stops the kernel, so a hang becomes an
// error with a message. Without that option, the instructions are the same as without this file.
//
// Barriers of all threads (bar.sync) and setmaxnreg have no limit of their own: a thread that never reaches them waits
// in one of the waits above, and reports.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "framework/cuda/wait_report.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

namespace ringtrain::cuda {

/// Whether the attention kernels of this program were compiled with bounded waits.
bool waits_are_bounded();

/// A wait's names: string literals in the kernel's source, each shorter than LongWait::text_bytes.
struct WaitNames {
  const char *kernel, *wait, *role;
};

#if defined(RINGTRAIN_BOUNDED_WAITS)

/// About 9 s on a Hopper. No wait of a correct kernel takes that long at the sizes of the tests; a million tokens may
/// take longer.
constexpr long long max_wait_cycles = 1LL << 34;

#if defined(RINGTRAIN_CUDA_EMULATED)
inline WaitReport* report_of_waits = nullptr;
#else
static __device__ WaitReport* report_of_waits;  // each file's device code has its own
static __device__ int reports_of_waits;
#endif

static __global__ void arm_waits_kernel(WaitReport* report) {
  report_of_waits = report;
}

/// Passes the report's address to the kernels of this file. Called before each launch of one that waits, on its stream.
[[maybe_unused]] static void arm_waits(Context& context) {
  launch<arm_waits_kernel>(context, dim3(1), dim3(1), 0, &wait_report());
}

__device__ inline void copy_text(char* to, const char* from) {
  for (int i = 0; i + 1 < LongWait::text_bytes && from[i] != 0; ++i) to[i] = from[i];
}

/// Returns the index of the calling thread's entry of the report, which may be beyond its end.
__device__ inline int next_entry() {
#if defined(RINGTRAIN_CUDA_EMULATED)
  int entry = 0;
  while (entry < WaitReport::max_waits && report_of_waits->waits[entry].filled != 0) ++entry;
  return entry;
#else
  return atomicAdd(&reports_of_waits, 1);
#endif
}

/// A wait that has taken too long.
struct VainWait {
  WaitNames names;
  const char *expected, *found;
  int expected_value, found_value;
};

/// Reports, and stops the kernel a little later, when other threads have had time to report too. It does not return, so
/// the code around a wait keeps its registers. Every wait is executed by lane 0, or by all lanes; lane 0 reports.
__device__ __forceinline__ void report_and_stop(const VainWait& vain, long long begin) {
  const int entry = threadIdx.x % 32 != 0 || report_of_waits == nullptr ? WaitReport::max_waits : next_entry();
  if (entry < WaitReport::max_waits) {
    LongWait& wait = report_of_waits->waits[entry];
    copy_text(wait.kernel, vain.names.kernel), copy_text(wait.wait, vain.names.wait);
    copy_text(wait.role, vain.names.role);
    copy_text(wait.expected, vain.expected), copy_text(wait.found, vain.found);
    wait.expected_value = vain.expected_value;
    wait.found_value = vain.found_value;
    wait.cycles = clock_cycles() - begin;
    wait.block = static_cast<int>(blockIdx.x);
    wait.warp = static_cast<int>(threadIdx.x / 32);
    __threadfence_system();
    wait.filled = 1;
    __threadfence_system();
  }
  while (clock_cycles() - begin < max_wait_cycles + max_wait_cycles / 4) let_others_run();
  stop_kernel();
}

/// Waits until ready(); vain: describes the wait.
template <class Ready, class Vain>
__device__ __forceinline__ void wait_within_bounds(const Ready& ready, const Vain& vain) {
  const long long begin = clock_cycles();
  while (!ready()) {
    if (clock_cycles() - begin >= max_wait_cycles) report_and_stop(vain(), begin);
  }
}

#else

inline void arm_waits(Context&) {}

#endif

}  // namespace ringtrain::cuda
