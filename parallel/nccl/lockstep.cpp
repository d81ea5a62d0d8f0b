#include "parallel/nccl/lockstep.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ringtrain {

namespace {

/// Returns what the other rank's operation must have to match this side of a rank's.
OperationSide other_side(int rank, OperationSide::Kind kind) {
  using Kind = OperationSide::Kind;
  return {rank, kind == Kind::sends ? Kind::receives : kind == Kind::receives ? Kind::sends : kind};
}

}  // namespace

std::shared_ptr<Lockstep> Lockstep::of_process(std::int64_t number, int ranks) {
  static std::mutex mutex;
  static std::map<std::int64_t, std::weak_ptr<Lockstep>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<Lockstep> lockstep = all[number].lock();
  if (!lockstep) all[number] = lockstep = std::make_shared<Lockstep>(ranks);
  return lockstep;
}

/// Returns the ranks that take part in this rank's operation, including itself; none if one of them has not arrived.
std::vector<int> Lockstep::joined_by(int rank) const {
  std::vector<int> ranks{rank};
  for (std::size_t next = 0; next < ranks.size(); ++next) {
    const int member = ranks[next];
    for (const OperationSide& side : ranks_[member].sides) {
      const RankState& there = ranks_[side.peer];
      if (!there.waits || std::ranges::count(there.sides, other_side(member, side.kind)) == 0) return {};
      if (std::ranges::find(ranks, side.peer) == ranks.end()) ranks.push_back(side.peer);
    }
  }
  return ranks;
}

template <class Done>
void Lockstep::await(std::unique_lock<std::mutex>& lock, const Look& look, Done done) {
  while (!changed_.wait_for(lock, look_interval, done)) {
    lock.unlock();
    look();
    lock.lock();
  }
}

void Lockstep::begin(int rank, std::vector<OperationSide> sides, const Look& look) {
  std::unique_lock lock(mutex_);
  RankState& state = ranks_[rank];
  state.waits = true;
  state.sides = std::move(sides);
  if (const std::vector<int> ranks = joined_by(rank); !ranks.empty()) {
    const auto under_way = std::make_shared<int>(static_cast<int>(ranks.size()));
    for (const int member : ranks) {
      ranks_[member].waits = false;
      ranks_[member].under_way = under_way;
    }
    changed_.notify_all();
  }
  await(lock, look, [&] { return !state.waits; });
}

void Lockstep::end(int rank, const Look& look) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<int> under_way = std::exchange(ranks_[rank].under_way, nullptr);
  if (--*under_way == 0) changed_.notify_all();
  await(lock, look, [&] { return *under_way == 0; });
}

}  // namespace ringtrain
