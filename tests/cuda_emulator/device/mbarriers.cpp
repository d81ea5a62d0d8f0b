// mbarriers: arrivals and bytes end a phase, and wake the threads that wait for it.
#include "device/mbarriers.h"

#include <fmt/format.h>

#include "api/settings.h"
#include "cuda_emulator_hopper.h"
#include "device/block.h"

namespace cuda_emulator {

namespace {

constexpr std::uint32_t max_arrivals = (1u << 20) - 1;
constexpr std::int64_t max_bytes = (1 << 20) - 1;
// Stored in a barrier's word, so that other writes to it are detected.
constexpr std::uint64_t mark = 0x6d62617272696572u;

}  // namespace

void Mbarriers::init(std::uint64_t* word, std::uint32_t arrivals, const std::source_location& where) {
  if (reinterpret_cast<std::uintptr_t>(word) % 8 != 0) block_.fail("an mbarrier must be aligned to 8 bytes", where);
  if (arrivals < 1 || arrivals > max_arrivals) {
    block_.fail(fmt::format("an mbarrier for {} arrivals: 1 to {} are possible", arrivals, max_arrivals), where);
  }
  *word = mark;
  Barrier barrier;
  barrier.expected = barrier.pending = arrivals;
  barrier.initialized_by = block_.thread();
  barriers_[word] = barrier;
}

void Mbarriers::fence_init() {
  for (auto& [word, barrier] : barriers_) {
    if (barrier.initialized_by == block_.thread()) barrier.fenced = true;
  }
}

Mbarriers::Barrier& Mbarriers::find(std::uint64_t* word, const std::source_location& where) {
  const auto found = barriers_.find(word);
  if (found == barriers_.end()) {
    block_.fail(fmt::format("{} is no mbarrier that this block has initialized", static_cast<void*>(word)), where);
  }
  if (*word != mark) {
    block_.fail(fmt::format("the mbarrier at {} was overwritten", static_cast<void*>(word)), where);
  }
  return found->second;
}

void Mbarriers::check_for_copy(std::uint64_t* word) {
  if (!find(word, {}).fenced) block_.fail("TMA was given an mbarrier without fence_mbarrier_init after its init");
}

void Mbarriers::end_phase_if_done(Barrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  for (const int thread : barrier.waiting) block_.wake(thread);
  barrier.waiting.clear();
}

void Mbarriers::arrive(std::uint64_t* word, std::uint32_t bytes, const std::source_location& where) {
  if (lost(Signal::arrival)) return;
  Barrier& barrier = find(word, where);
  if (barrier.pending == 0) {
    block_.fail(fmt::format("one more than the {} arrivals of the mbarrier's phase {}, which waits for {} bytes",
                            barrier.expected, barrier.phase, barrier.bytes),
                where);
  }
  barrier.bytes += bytes;
  if (barrier.bytes > max_bytes) {
    block_.fail(fmt::format("{} bytes announced to an mbarrier: {} are possible", barrier.bytes, max_bytes), where);
  }
  --barrier.pending;
  end_phase_if_done(barrier);
}

void Mbarriers::complete(std::uint64_t* word, std::uint32_t bytes) {
  Barrier& barrier = find(word, {});
  barrier.bytes -= bytes;
  if (barrier.pending == 0 && barrier.bytes < 0) {
    block_.fail(fmt::format("copies brought {} bytes more than the mbarrier's phase {} announced", -barrier.bytes,
                            barrier.phase));
  }
  end_phase_if_done(barrier);
}

void Mbarriers::wait(std::uint64_t* word, std::uint32_t parity, const std::source_location& where) {
  if (parity > 1) block_.fail(fmt::format("mbarrier_wait for parity {}", parity), where);
  for (;;) {
    Barrier& barrier = find(word, where);
    if ((barrier.phase & 1u) != parity) return;
    barrier.waiting.push_back(block_.thread());
    block_.wait({"mbarrier_wait", where, missing, &barrier});
  }
}

bool Mbarriers::try_wait(std::uint64_t* word, std::uint32_t parity, const std::source_location& where) {
  if (parity > 1) block_.fail(fmt::format("mbarrier_try_wait for parity {}", parity), where);
  Barrier& barrier = find(word, where);
  if ((barrier.phase & 1u) != parity) return true;
  barrier.waiting.push_back(block_.thread());
  block_.spin({"mbarrier_try_wait", where, missing, &barrier});
  std::erase(barrier.waiting, block_.thread());
  return (barrier.phase & 1u) != parity;
}

bool Mbarriers::awaited(std::uint64_t* word) const {
  const auto found = barriers_.find(word);
  return found != barriers_.end() && !found->second.waiting.empty();
}

std::string Mbarriers::missing(const void* object, int) {
  const auto& barrier = *static_cast<const Barrier*>(object);
  return fmt::format("phase {} (parity {}) of a barrier lacks {} of {} arrivals and {} bytes", barrier.phase,
                     barrier.phase & 1u, barrier.pending, barrier.expected, barrier.bytes);
}

void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals, Where where) {
  running().mbarriers().init(barrier, arrivals, where);
}
void fence_mbarrier_init() {
  running().mbarriers().fence_init();
}
void mbarrier_arrive(std::uint64_t* barrier, Where where) {
  running().mbarriers().arrive(barrier, 0, where);
}
void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes, Where where) {
  running().mbarriers().arrive(barrier, bytes, where);
}
bool mbarrier_try_wait(std::uint64_t* barrier, std::uint32_t parity, Where where) {
  running().need_hopper("mbarrier_try_wait");
  return running().mbarriers().try_wait(barrier, parity, where);
}
void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity, Where where) {
  running().need_hopper("mbarrier_wait");
  running().mbarriers().wait(barrier, parity, where);
}

}  // namespace cuda_emulator
