#include "device/registers.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda_emulator_hopper.h"
#include "device/block.h"

namespace cuda_emulator {

namespace {

constexpr int of_a_multiprocessor = 65536, of_a_thread = 248;  // in multiples of 8; 255 is the most that code can name

}  // namespace

void Registers::reset(int block_threads) {
  const auto threads = static_cast<std::size_t>(block_threads);
  free_ = 0;
  of_.assign(threads, std::min(of_a_multiprocessor / block_threads / 8 * 8, of_a_thread));
  changes_.assign(threads, 0);
  waiting_.clear();
}

void Registers::set(int registers, bool increase, const std::source_location& where) {
  const auto thread = static_cast<std::size_t>(block_.thread());
  int& mine = of_[thread];
  ++changes_[thread];
  if (increase ? registers < mine : registers > mine) {
    block_.fail(
        fmt::format("setmaxnreg.{} to {} registers of a thread that has {}", increase ? "inc" : "dec", registers, mine),
        where);
  }
  while (registers - mine > free_) {
    waiting_.push_back(block_.thread());
    block_.wait({"setmaxnreg.inc", where, missing, this});
  }
  free_ -= registers - mine;
  mine = registers;
  for (const int other : waiting_) block_.wake(other);
  waiting_.clear();
}

void Registers::check_whole_warpgroups() const {
  constexpr std::size_t warpgroup = 128;
  for (std::size_t t = 0; t < changes_.size(); ++t) {
    if (changes_[t] == changes_[t / warpgroup * warpgroup]) continue;
    block_.fail(fmt::format("thread {} executed {} setmaxnreg where the first of its warpgroup executed {}", t,
                            changes_[t], changes_[t / warpgroup * warpgroup]));
  }
}

std::string Registers::missing(const void* object, int thread) {
  const auto& registers = *static_cast<const Registers*>(object);
  return fmt::format("the block has {} registers to spare, of which a thread that has {} wants more", registers.free_,
                     registers.of_[static_cast<std::size_t>(thread)]);
}

void set_registers(int registers, bool increase, Where where) {
  running().need_hopper("setmaxnreg");
  running().registers().set(registers, increase, where);
}

}  // namespace cuda_emulator
