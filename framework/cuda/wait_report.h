// What a kernel leaves behind that waits for what never comes. In a build with RINGTRAIN_BOUNDED_WAITS
// (kernels/cuda/bounded_wait.cuh) every wait of a kernel has an end: each warp that waits too long writes here which
// wait it was, where and whose, and then the kernel stops. The next error of the GPU says so (framework/cuda/check.h).
#pragma once

#include <cstdint>
#include <string>

namespace ringtrain::cuda {

/// A wait of one warp that took too long. Texts end with a 0.
struct LongWait {
  static constexpr int text_bytes = 48;
  int filled;                                    // 1: the rest is there
  char kernel[text_bytes];                       // "attention backward"
  char wait[text_bytes];                         // what it waited for: "a full buffer of dq"
  char role[text_bytes];                         // of the warp: "adder of dq"
  char expected[text_bytes], found[text_bytes];  // what the two numbers are, as "phase"; empty: there is no such number
  int expected_value, found_value;
  std::int64_t cycles;  // of the multiprocessor's clock, how long it waited
  int block, warp;
};

/// Written by the warps of one kernel, each its own entry, and read by the host after the kernel has ended.
struct WaitReport {
  static constexpr int max_waits = 64;
  LongWait waits[max_waits];
};

/// Returns the process's report, in pinned host memory that every GPU can write; empty at first. Throws Error(device).
WaitReport& wait_report();

/// Returns a clause that says what the warps of the block that waited longest wait for, beginning with "; ", or nothing
/// where no kernel has waited in vain.
std::string wait_clause();

/// Forgets what the report says. For tests.
void clear_wait_report();

}  // namespace ringtrain::cuda
