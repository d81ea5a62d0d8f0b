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

RingPlan ring_plan(std::span<const char> needed, int ranks, int rank) {
  const int N = ranks;
  ensure(N >= 1 && rank >= 0 && rank < N && needed.size() == static_cast<std::size_t>(N) * static_cast<std::size_t>(N),
         "a plan needs a rank of the ring and all needs");
  // Whether the block of `owner` is met at this hop, by the rank so many places to the right.
  const auto met = [&](int owner, int hop) {
    const auto row = static_cast<std::size_t>((owner + hop) % N), column = static_cast<std::size_t>(owner);
    return hop == 0 || (hop < N && needed[row * static_cast<std::size_t>(N) + column]);
  };
  const int left = (rank + N - 1) % N, right = (rank + 1) % N;

  RingPlan plan;
  for (int hop = 0; hop < N; ++hop) {
    const int owner = (rank - hop + N) % N;
    if (!met(owner, hop)) continue;
    RingStep step{.hop = hop, .owner = owner};
    const bool goes_on = met(owner, hop + 1);
    if (hop == 0) {
      step.gradient_to = goes_on ? right : -1;
    } else {
      const bool comes_along = met(owner, hop - 1);
      step.receive_from = comes_along ? left : owner;
      step.gradient_from = comes_along ? left : -1;
      step.forward_to = goes_on ? right : -1;
      step.gradient_to = goes_on ? right : owner;
    }
    plan.steps.push_back(step);
  }
  bool from_owner = true;  // every hop so far was made: this run carries the owner's own share
  for (int hop = 1; hop < N; ++hop) {
    const int other = (rank + hop) % N;
    if (!met(rank, hop)) {
      from_owner = false;
      continue;
    }
    if (hop == 1 || !met(rank, hop - 1)) plan.deliveries.push_back({.hop = hop, .to = other});
    if (!met(rank, hop + 1)) plan.returns.push_back({.hop = hop, .from = other, .replaces = from_owner});
  }
  return plan;
}

}  // namespace ringtrain
