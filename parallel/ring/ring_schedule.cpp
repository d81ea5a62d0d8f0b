#include "parallel/ring/ring_schedule.h"

#include "framework/error.h"

namespace ringtrain {

std::vector<char> ring_needs(const AttentionMask& mask, std::span<const ShardExtents> extents) {
  const std::size_t N = extents.size();
  std::vector<char> needed(N * N);
  for (std::size_t i = 0; i < N; ++i) {
    for (std::size_t j = 0; j < N; ++j) needed[i * N + j] = i == j || may_see(mask, extents[i], extents[j]);
  }
  return needed;
}

namespace {

/// The needs of all ranks, queried by owner and hop.
struct Needs {
  std::span<const char> needed;  // [N, N]: whether rank i needs the block of rank j
  int N;

  Needs(std::span<const char> all, int ranks, int rank) : needed(all), N(ranks) {
    ensure(rank >= 0 && rank < ranks && needed.size() == static_cast<std::size_t>(N) * static_cast<std::size_t>(N),
           "a plan needs a rank of the ring and all needs");
  }
  int wrapped(int rank) const { return rank >= N ? rank - N : rank < 0 ? rank + N : rank; }
  /// Returns whether the block of `owner` is met at this hop, by the rank this many positions to the right.
  bool met(int owner, int hop) const {
    return hop == 0 || (hop < N && needed[std::int64_t{wrapped(owner + hop)} * N + owner] != 0);
  }
  std::optional<RingStep> step(int rank, int hop) const {
    const int owner = wrapped(rank - hop), left = wrapped(rank - 1), right = wrapped(rank + 1);
    if (!met(owner, hop)) return std::nullopt;
    RingStep step{.hop = hop, .owner = owner};
    const bool goes_on = met(owner, hop + 1);
    if (hop == 0) {
      step.gradient_to = goes_on ? right : no_peer;
    } else {
      const bool comes_along = met(owner, hop - 1);
      step.receive_from = comes_along ? left : owner;
      step.gradient_from = comes_along ? left : no_peer;
      step.forward_to = goes_on ? right : no_peer;
      step.gradient_to = goes_on ? right : owner;
    }
    return step;
  }
};

}  // namespace

std::optional<RingStep> ring_step(std::span<const char> needed, int ranks, int rank, int hop) {
  ensure(hop >= 0, "hops are numbered from 0");
  return Needs(needed, ranks, rank).step(rank, hop);
}

RingPlan ring_plan(std::span<const char> needed, int ranks, int rank) {
  const Needs needs(needed, ranks, rank);
  RingPlan plan(ranks + 1);
  bool from_owner = true;  // every hop so far was made: this run carries the owner's own share
  for (int hop = 0; hop < ranks; ++hop) {
    plan[hop].step = needs.step(rank, hop);
    from_owner = from_owner && needs.met(rank, hop);
    if (hop == 0 || !needs.met(rank, hop)) continue;
    const int other = needs.wrapped(rank + hop);
    if (hop == 1 || !needs.met(rank, hop - 1)) plan[hop].deliver_to = other;
    if (needs.met(rank, hop + 1)) continue;
    plan[hop].return_from = other;
    plan[hop].return_replaces = from_owner;
  }
  return plan;
}

}  // namespace ringtrain
