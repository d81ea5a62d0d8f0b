#include "extras/planner/ring_simulation.h"

#include <algorithm>
#include <utility>

#include "framework/error.h"

namespace ringtrain {

namespace {

/// The state of all ranks in one pass.
class RingPass {
 public:
  RingPass(const PlacedRing& ring, const PassCosts& costs, std::span<double> clocks)
      : N_(ring.work.ranks()),
        backward_(costs.gradient_bytes > 0),
        parts_(backward_ ? ring.work.parts() : 0),
        ring_(ring),
        costs_(costs),
        clocks_(clocks),
        arrivals_((gradients + parts_) * N_, 0.0),
        egress_(N_, 0.0),
        ingress_(N_, 0.0),
        carried_(N_),
        times_{.compute = std::vector(N_, 0.0), .wait = std::vector(N_, 0.0)} {}

  PassTimes run() {
    for (int hop = 0; hop < N_; ++hop) {
      wait(keys, keys + 1);
      if (hop + 1 < N_) send_blocks(hop + 1);
      if (!backward_) compute_block(hop, -1);
      for (int part = 0; part < parts_; ++part) {
        wait(gradients + part, gradients + part + 1);
        compute_block(hop, part);
        send_gradients(hop, part);
      }
    }
    for (double& clock : clocks_) clock += checked_seconds(costs_.overlap_seconds);
    wait(departing, gradients + parts_);
    return std::move(times_);
  }

 private:
  static constexpr int keys = 0, departing = 1, gradients = 2;  // slots for which a rank waits; gradients + part

  /// Returns a rank's step at a hop; owner -1: none.
  RingStep step(int rank, int hop) const { return ring_.work.step(rank, hop).value_or(RingStep{.owner = -1}); }
  double& arrival(int slot, int rank) { return arrivals_[slot * N_ + rank]; }

  /// Lets all ranks wait for the slots [first, end).
  void wait(int first, int end) {
    for (int rank = 0; rank < N_; ++rank) {
      double& clock = clocks_[rank];
      double there = clock;
      for (int slot = first; slot < end; ++slot) there = std::max(there, arrival(slot, rank));
      if (there == clock) continue;
      times_.wait[rank] += there - clock;
      clock = there;
    }
  }

  /// Lets all ranks compute a block, or a part of it. A rank that has none in backward waits for the gradients of its
  /// own block, and leaves its cores to the others. In forward it continues with the next layer.
  void compute_block(int hop, int part) {
    const auto pairs_of = [&](int rank) {
      const int owner = step(rank, hop).owner;
      return owner < 0 ? 0 : ring_.work.pairs(rank, owner, part);
    };
    int active = N_;
    for (int rank = 0; backward_ && rank < N_; ++rank) active -= pairs_of(rank) == 0 ? 1 : 0;
    const double speed = ring_.processors.speed(active);
    for (int rank = 0; rank < N_; ++rank) {
      const std::int64_t pairs = pairs_of(rank);
      if (step(rank, hop).owner < 0 || (backward_ && pairs == 0)) continue;
      const double work = costs_.visit_seconds + static_cast<double>(pairs) * costs_.pair_seconds + carried(rank);
      const double seconds = checked_seconds(work / speed);
      clocks_[rank] += seconds;
      times_.compute[rank] += seconds;
    }
  }
  /// Returns the seconds that a rank's cores need for the messages in transit, once.
  double carried(int rank) {
    const Carried all = std::exchange(carried_[rank], {});
    return all.arrival > clocks_[rank] ? all.seconds : 0;
  }

  /// Sends the blocks that ranks compute at a hop.
  void send_blocks(int next_hop) {
    for (int rank = 0; rank < N_; ++rank) {
      const RingStep next = step(rank, next_hop);
      if (next.owner < 0) continue;
      // The wait for the next block includes a block that is passed on; the owner's own is only waited for at the end
      // of the pass.
      const double bytes = costs_.key_value_bytes * static_cast<double>(ring_.work.traveling_tokens(next.owner, rank));
      move(next.receive_from, rank, bytes, next.receive_from == next.owner ? departing : keys, keys);
    }
  }
  /// Sends the gradients of a part of each rank's block; a part without transferred tokens is not sent.
  void send_gradients(int hop, int part) {
    for (int rank = 0; rank < N_; ++rank) {
      const RingStep here = step(rank, hop);
      if (here.owner < 0 || here.gradient_to < 0) continue;
      const std::int64_t tokens = ring_.work.traveling_tokens(here.owner, rank, part);
      const int slot = gradients + part;
      if (tokens > 0) move(rank, here.gradient_to, costs_.gradient_bytes * static_cast<double>(tokens), slot, slot);
    }
  }
  /// Moves a message that both sides have posted. On each side, a processor may have to transfer it.
  void move(int from, int to, double bytes, int sender_slot, int receiver_slot) {
    const LinkLevel& link = ring_.hardware.level_between(ring_.first_rank + from, ring_.first_rank + to);
    const double busy = bytes / link.bandwidth;
    double &out = egress_[from], &in = ingress_[to];
    const double begin = std::max({clocks_[from], clocks_[to], out, in});
    out = in = begin + busy;
    const double there = begin + checked_seconds(busy + link.latency);
    arrival(sender_slot, from) = std::max(arrival(sender_slot, from), there);
    arrival(receiver_slot, to) = std::max(arrival(receiver_slot, to), there);
    if (link.core_bandwidth == 0) return;
    const double seconds = checked_seconds(bytes / link.core_bandwidth / ring_.processors.cores_of_rank());
    for (const int side : {from, to}) {
      Carried& carried = carried_[side];
      carried = {carried.seconds + seconds, std::max(carried.arrival, there)};
    }
  }

  /// Messages that a rank's cores transfer: seconds of the rank, and when the last one arrives.
  struct Carried {
    double seconds = 0, arrival = 0;
  };

  const int N_;
  const bool backward_;
  const int parts_;  // of gradients: none in forward
  const PlacedRing& ring_;
  const PassCosts& costs_;
  const std::span<double> clocks_;
  std::vector<double> arrivals_;          // [slot][rank]: when the last message of a slot has arrived
  std::vector<double> egress_, ingress_;  // when a rank's link is free, in each direction
  std::vector<Carried> carried_;          // by rank
  PassTimes times_;
};

}  // namespace

PassTimes simulate_pass(const PlacedRing& ring, const PassCosts& costs, std::span<double> clocks) {
  ensure(std::ssize(clocks) == ring.work.ranks(), "a clock for each rank of the ring");
  const double begin = *std::ranges::min_element(clocks);
  for (double& clock : clocks) clock -= begin;
  PassTimes times = RingPass(ring, costs, clocks).run();
  for (double& clock : clocks) clock += begin;
  return times;
}

}  // namespace ringtrain
