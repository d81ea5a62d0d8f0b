// Waits within kernels: for a barrier's phase, or for other blocks' turns. As a rule they have no end. In a build with
// RINGTRAIN_BOUNDED_WAITS each has one, after max_wait_cycles of the multiprocessor's clock: warps that have waited so
// long leave a report (framework/cuda/wait_report.h), and then one stops the kernel, so that a hang becomes an error of
// one sentence. Without it no instruction differs.
//
// What has no bound of its own are barriers of all threads (bar.sync) and setmaxnreg: who is missing there waits at one
// of these, and reports.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "framework/cuda/wait_report.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

namespace ringtrain::cuda {

/// Whether the attention kernels of this program were compiled with bounded waits.
bool waits_are_bounded();

/// A wait's names: string literals of the kernel's text, of less than LongWait::text_bytes each.
struct WaitNames {
  const char *kernel, *wait, *role;
};

#if defined(RINGTRAIN_BOUNDED_WAITS)

/// About 9 s on a Hopper. No wait of a sound kernel is that long at sizes that tests have; a million tokens may take
/// longer.
constexpr long long max_wait_cycles = 1LL << 34;

#if defined(RINGTRAIN_CUDA_EMULATED)
inline WaitReport* report_of_waits = nullptr;
#else
static __device__ WaitReport* report_of_waits;  // device code of each file has its own
static __device__ int reports_of_waits;
#endif

static __global__ void arm_waits_kernel(WaitReport* report) {
  report_of_waits = report;
}

/// Tells the kernels of this file where to report. Before each launch of one that waits, on its stream.
[[maybe_unused]] static void arm_waits(Context& context) {
  launch<arm_waits_kernel>(context, dim3(1), dim3(1), 0, &wait_report());
}

__device__ inline void copy_text(char* to, const char* from) {
  for (int i = 0; i + 1 < LongWait::text_bytes && from[i] != 0; ++i) to[i] = from[i];
}

/// Returns which entry of the report is the calling thread's, perhaps beyond its end.
__device__ inline int next_entry() {
#if defined(RINGTRAIN_CUDA_EMULATED)
  int entry = 0;
  while (entry < WaitReport::max_waits && report_of_waits->waits[entry].filled != 0) ++entry;
  return entry;
#else
  return atomicAdd(&reports_of_waits, 1);
#endif
}

/// What a thread has waited for too long.
struct VainWait {
  WaitNames names;
  const char *expected, *found;
  int expected_value, found_value;
};

/// Reports, and a little later, when others had time for it, too, stops the kernel. It does not return, so that the
/// code around a wait keeps its registers. Every wait is one of lane 0, or of all lanes; lane 0 reports.
__device__ __forceinline__ void report_and_stop(const VainWait& vain, long long begin) {
  const int entry = threadIdx.x % 32 != 0 || report_of_waits == nullptr ? WaitReport::max_waits : next_entry();
  if (entry < WaitReport::max_waits) {
    LongWait& wait = report_of_waits->waits[entry];
    copy_text(wait.kernel, vain.names.kernel), copy_text(wait.wait, vain.names.wait);
    copy_text(wait.role, vain.names.role);
    copy_text(wait.expected, vain.expected), copy_text(wait.found, vain.found);
    wait.expected_value = vain.expected_value, wait.found_value = vain.found_value;
    wait.cycles = clock_cycles() - begin;
    wait.block = static_cast<int>(blockIdx.x), wait.warp = static_cast<int>(threadIdx.x / 32);
    __threadfence_system();
    wait.filled = 1;
    __threadfence_system();
  }
  while (clock_cycles() - begin < max_wait_cycles + max_wait_cycles / 4) let_others_run();
  stop_kernel();
}

/// Waits until ready(); vain: says what for.
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
