// Meetings of lanes, and the collectives of CUDA C++ that use them: __syncwarp, shuffles, votes, reductions.
#include "device/warp.h"

#include <fmt/format.h>

#include <cstring>

#include "cuda_emulator_builtins.h"
#include "device/block.h"

namespace cuda_emulator {

void Warp::reset(Block& block, int first_thread, int lanes) {
  block_ = &block;
  first_thread_ = first_thread;
  unfinished_ = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1;
  meetings_.clear();
}

void Warp::meet(const char* name, std::uint32_t mask, void* argument, Complete complete,
                const std::source_location& where) {
  const int lane = block_->lane();
  if ((mask >> lane & 1u) == 0) {
    block_->fail(fmt::format("{} with mask {:#010x}, which lacks the calling lane {}", name, mask, lane), where);
  }
  std::size_t at = 0;
  while (at < meetings_.size() && meetings_[at].mask != mask) ++at;
  if (at == meetings_.size()) meetings_.push_back({name, mask, complete, {}});
  Meeting& meeting = meetings_[at];
  if (meeting.complete != complete || (meeting.name != name && std::strcmp(meeting.name, name) != 0)) {
    block_->fail(fmt::format("{} of lane {} meets {} of lanes {:#010x} of the same mask {:#010x}", name, lane,
                             meeting.name, meeting.lanes.present, mask),
                 where);
  }
  meeting.lanes.argument[static_cast<std::size_t>(lane)] = argument;
  meeting.lanes.present |= 1u << lane;
  if (completed(at)) {
    block_->give_way();
  } else {
    block_->wait({name, where, missing, this});
  }
}

void Warp::meet_all(const char* name, void* argument, Complete complete, const std::source_location& where) {
  if (unfinished_ != 0xffffffffu) {
    block_->fail(
        fmt::format("{} needs all 32 lanes, but lanes {:#010x} have finished or do not exist", name, ~unfinished_),
        where);
  }
  meet(name, 0xffffffffu, argument, complete, where);
}

// Does the meeting's work and wakes its lanes, if all have arrived.
bool Warp::completed(std::size_t at) {
  const Meeting meeting = meetings_[at];
  if ((meeting.mask & unfinished_ & ~meeting.lanes.present) != 0) return false;
  meetings_[at] = meetings_.back();
  meetings_.pop_back();
  meeting.complete(*block_, meeting.lanes);
  for (int lane = 0; lane < 32; ++lane) {
    if (meeting.lanes.has(lane) && first_thread_ + lane != block_->thread()) block_->wake(first_thread_ + lane);
  }
  return true;
}

void Warp::lane_finished(int lane) {
  unfinished_ &= ~(1u << lane);
  for (std::size_t at = 0; at < meetings_.size();) {
    if (!completed(at)) ++at;
  }
}

std::string Warp::missing(const void* object, int thread) {
  const Warp& warp = *static_cast<const Warp*>(object);
  for (const Meeting& meeting : warp.meetings_) {
    if (!meeting.lanes.has(thread - warp.first_thread_)) continue;
    return fmt::format("mask {:#010x}, lanes {:#010x} have not come", meeting.mask,
                       meeting.mask & warp.unfinished_ & ~meeting.lanes.present);
  }
  return {};
}

namespace {

struct Shuffle {
  std::uint64_t value;
  int source;
  std::uint64_t result;
};

void exchange(Block& block, const Lanes& lanes) {
  for (int lane = 0; lane < 32; ++lane) {
    if (!lanes.has(lane)) continue;
    auto& mine = lanes.of<Shuffle>(lane);
    if (mine.source < 0 || mine.source > 31 || !lanes.has(mine.source)) {
      block.fail(fmt::format("a shuffle: lane {} reads from lane {}, which takes no part", lane, mine.source));
    }
    mine.result = lanes.of<Shuffle>(mine.source).value;
  }
}

struct Vote {
  bool predicate;
  std::uint32_t result;
};

void count_votes(Block&, const Lanes& lanes) {
  std::uint32_t result = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if (lanes.has(lane) && lanes.of<Vote>(lane).predicate) result |= 1u << lane;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (lanes.has(lane)) lanes.of<Vote>(lane).result = result;
  }
}

}  // namespace

void sync_warp(std::uint32_t mask, Where where) {
  running().warp().meet(
      "__syncwarp", mask, nullptr, [](Block&, const Lanes&) {}, where);
}

std::uint64_t shuffle(std::uint32_t mask, std::uint64_t value, int source, Where where) {
  Shuffle mine{value, source, 0};
  running().warp().meet("a shuffle", mask, &mine, exchange, where);
  return mine.result;
}

std::uint32_t ballot(std::uint32_t mask, bool predicate, Where where) {
  Vote mine{predicate, 0};
  running().warp().meet("a vote", mask, &mine, count_votes, where);
  return mine.result;
}

int lane() {
  return running().lane();
}
void trap(Where where) {
  running().fail("__trap", where);
}

}  // namespace cuda_emulator
