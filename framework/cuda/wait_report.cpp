#include "framework/cuda/wait_report.h"

#include <cuda_runtime.h>
#include <fmt/core.h>

#include <atomic>
#include <map>
#include <new>

#include "framework/cuda/check.h"

namespace ringtrain::cuda {

namespace {

std::atomic<WaitReport*> made = nullptr;

WaitReport* make() {
#if defined(RINGTRAIN_CUDA_EMULATED)
  static WaitReport memory;  // host memory: a reset of the emulator frees its own memory
  return made = &memory;
#else
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, sizeof(WaitReport), cudaHostAllocPortable | cudaHostAllocMapped),
        "asking for pinned host memory for a report of waits");
  return made = new (memory) WaitReport{};
#endif
}

bool is_filled(const LongWait& wait) {
  return __atomic_load_n(&wait.filled, __ATOMIC_ACQUIRE) != 0;
}

/// Returns what a warp waited for: "its turn to add dq (blocks before it 1, blocks that have added 0)".
std::string what_of(const LongWait& wait) {
  return fmt::format("{} ({} {}, {} {})", wait.wait, wait.expected, wait.expected_value, wait.found, wait.found_value);
}

}  // namespace

WaitReport& wait_report() {
  static WaitReport* const report = make();  // never freed: a kernel may write it at any time
  return *report;
}

std::string wait_clause() {
  const WaitReport* const report = made;
  if (report == nullptr) return "";
  const LongWait* longest = nullptr;
  for (const LongWait& wait : report->waits) {
    if (is_filled(wait) && (longest == nullptr || wait.cycles > longest->cycles)) longest = &wait;
  }
  if (longest == nullptr) return "";
  std::map<int, const LongWait*> of_block;  // by warp
  for (const LongWait& wait : report->waits) {
    if (is_filled(wait) && wait.block == longest->block) of_block.emplace(wait.warp, &wait);
  }
  std::string clause =
      fmt::format("; {} hangs: in block {}, after {} cycles", longest->kernel, longest->block, longest->cycles);
  for (auto at = of_block.begin(); at != of_block.end();) {
    const auto first = at;
    const std::string what = what_of(*first->second);
    int last = first->first;
    for (++at; at != of_block.end() && at->first == last + 1 && what_of(*at->second) == what; ++at) last = at->first;
    const bool single = last == first->first;
    const std::string warps = single ? fmt::format("warp {}", last) : fmt::format("warps {} to {}", first->first, last);
    clause += fmt::format("{} {} ({}) {} for {}", first == of_block.begin() ? "," : ";", warps, first->second->role,
                          single ? "waits" : "wait", what);
  }
  return clause;
}

void clear_wait_report() {
  if (WaitReport* const report = made) *report = {};
}

}  // namespace ringtrain::cuda
