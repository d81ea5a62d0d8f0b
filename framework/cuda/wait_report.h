// The report of a kernel that waited too long. In a build with RINGTRAIN_BOUNDED_WAITS (kernels/cuda/bounded_wait.cuh)
// every wait of a kernel has a limit. Each warp that exceeds it writes here which wait it was, where, and whose, and
// then the kernel stops. The GPU's next error includes this report (framework/cuda/check.h).
#pragma once

#include <cstdint>
#include <string>

namespace ringtrain::cuda {

/// A wait of one warp that took too long. Texts end with a 0.
struct LongWait {
  static constexpr int text_bytes = 48;
  int filled;                                    // 1: the other members are valid
  char kernel[text_bytes];                       // "attention backward"
  char wait[text_bytes];                         // what it waited for: "a full buffer of dq"
  char role[text_bytes];                         // of the warp: "adder of dq"
  char expected[text_bytes], found[text_bytes];  // what the two numbers are, such as "phase"; empty: no such number
  int expected_value, found_value;
  std::int64_t cycles;  // how long it waited, by the multiprocessor's clock
  int block, warp;
};

/// Written by the warps of one kernel, each in its own entry, and read by the host after the kernel has ended.
struct WaitReport {
  static constexpr int max_waits = 64;
  LongWait waits[max_waits];
};

/// Returns the process's report, in pinned host memory that every GPU can write; empty initially. Throws Error(device).
WaitReport& wait_report();

/// Returns a clause, beginning with "; ", about the warps of the block that waited longest, or nothing if no kernel has
/// waited too long.
std::string wait_clause();

/// Clears the report. For tests.
void clear_wait_report();

}  // namespace ringtrain::cuda
