#include "train/planning/ring_simulation.h"

#include <algorithm>
#include <cmath>

#include "framework/error.h"
#include "framework/random.h"
#include "train/planning/even_ring.h"
#include "train/planning/shared_ring.h"

namespace ringtrain {

namespace {

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}

void raise(double& value, double other) {
  value = std::max(value, other);
}

}  // namespace

/// The state of all ranks in one pass; times are absolute seconds.
struct RingSimulation::Pass {
  Pass(const RingSimulation& simulation, const PassCosts& pass_costs, std::span<double> ring_clocks,
       std::uint64_t pass_call)
      : s(simulation),
        work(simulation.work_),
        costs(pass_costs),
        call(pass_call),
        N(work.ranks()),
        clocks(ring_clocks),
        posted(at(N)),
        keys(at(N), 0.0),
        departing(at(N), 0.0),
        egress(at(N), 0.0),
        ingress(at(N), 0.0),
        gradients(at(work.parts()), std::vector<double>(at(N), 0.0)),
        times{std::vector<double>(at(N), 0.0), std::vector<double>(at(N), 0.0), 0} {}

  /// Brings a rank's clock to a time at which what it waits for is there.
  void wait(int rank, double until) {
    double& clock = clocks[at(rank)];
    if (until > clock) {
      times.wait[at(rank)] += until - clock;
      clock = until;
    }
  }
  void compute(int rank, int visit, std::int64_t pairs) {
    const double seconds = s.compute_seconds(costs, call, rank, visit, pairs);
    times.compute[at(rank)] += seconds;
    clocks[at(rank)] += seconds;
    ++times.events;
  }
  /// Return when a message that sender and receiver posted at these times has come.
  double send(int from, int to, double bytes, double sent, double expected) {
    const double begin = std::max({sent, expected, egress[at(from)], ingress[at(to)]});
    const MessageTime time = s.message_time(from, to, bytes);
    egress[at(from)] = ingress[at(to)] = begin + time.busy;
    ++times.events;
    return begin + time.seconds;
  }

  /// Moves the blocks for the next hop; every rank has posted them at posted[rank].
  void move_keys(int hop) {
    std::ranges::fill(keys, 0.0);
    for (int rank = 0; rank < N; ++rank) {
      const auto step = work.step(rank, hop);
      if (!step) continue;
      const int from = step->receive_from;
      const double bytes = costs.key_value_bytes * static_cast<double>(work.tokens(step->owner));
      const double come = send(from, rank, bytes, posted[at(from)], posted[at(rank)]);
      raise(keys[at(rank)], come);
      // A block sent on is waited for with the next one; the owner's own only at the end of the pass.
      raise(from == step->owner ? departing[at(from)] : keys[at(from)], come);
    }
  }
  /// Moves a part's gradients, posted now by every rank, on or home.
  void move_gradients(int hop, int part) {
    std::vector<double>& ready = gradients[at(part)];
    std::ranges::fill(ready, 0.0);
    for (int rank = 0; rank < N; ++rank) {
      const auto step = work.step(rank, hop);
      if (!step || step->gradient_to < 0) continue;
      const int to = step->gradient_to;
      const double bytes = costs.gradient_bytes * static_cast<double>(work.part_tokens(step->owner, part));
      const double come = send(rank, to, bytes, clocks[at(rank)], clocks[at(to)]);
      raise(ready[at(to)], come);
      raise(ready[at(rank)], come);
    }
  }

  void forward_hop(int hop) {
    for (int rank = 0; rank < N; ++rank) {
      if (const auto step = work.step(rank, hop)) compute(rank, hop, work.pairs(rank, step->owner));
    }
  }
  void backward_hop(int hop) {
    for (int part = 0; part < work.parts(); ++part) {
      for (int rank = 0; rank < N; ++rank) {
        wait(rank, gradients[at(part)][at(rank)]);
        const auto step = work.step(rank, hop);
        if (!step) continue;
        const std::int64_t pairs = work.pairs(rank, step->owner, part);
        if (pairs > 0) compute(rank, hop * work.parts() + part, pairs);
      }
      if (N > 1) move_gradients(hop, part);
    }
  }

  PassTimes run() {
    const bool backward = costs.gradient_bytes > 0;
    for (int hop = 0; hop < N; ++hop) {
      for (int rank = 0; rank < N; ++rank) {
        if (hop > 0) wait(rank, keys[at(rank)]);
        posted[at(rank)] = clocks[at(rank)];
      }
      if (hop + 1 < N) move_keys(hop + 1);
      if (backward) {
        backward_hop(hop);
      } else {
        forward_hop(hop);
      }
    }
    for (int rank = 0; rank < N; ++rank) {
      if (backward) {
        clocks[at(rank)] += costs.overlap_seconds * s.slowness(rank);
        for (const std::vector<double>& ready : gradients) wait(rank, ready[at(rank)]);
      }
      wait(rank, departing[at(rank)]);
    }
    return std::move(times);
  }

  const RingSimulation& s;
  const RingWork& work;
  const PassCosts& costs;
  const std::uint64_t call;
  const int N;
  std::span<double> clocks;
  std::vector<double> posted;                  // when a rank posted the transfers for the next hop
  std::vector<double> keys, departing;         // when these are done
  std::vector<double> egress, ingress;         // when a rank's link is free, each way
  std::vector<std::vector<double>> gradients;  // [part][rank]: when the last round's messages are done
  PassTimes times;
};

RingSimulation::RingSimulation(const RingWork& work, const Hardware& hardware, std::int64_t first_rank,
                               const Disturbance& disturbance, const SharedProcessors& processors)
    : work_(work),
      hardware_(hardware),
      first_rank_(first_rank),
      disturbance_(disturbance),
      processors_(processors),
      slowness_(at(work.ranks()), 1.0) {
  for (const Disturbance::Straggler& straggler : disturbance.stragglers) {
    const std::int64_t place = straggler.rank - first_rank;
    if (place >= 0 && place < work.ranks()) slowness_[static_cast<std::size_t>(place)] *= straggler.factor;
  }
}

MessageTime RingSimulation::message_time(int from, int to, double bytes) const {
  const LinkLevel& level = hardware_.level_between(first_rank_ + from, first_rank_ + to);
  double factor = 1;
  for (const Disturbance::SlowLink& link : disturbance_.slow_links) {
    if (link.from == first_rank_ + from && link.to == first_rank_ + to) factor *= link.factor;
  }
  const double busy = bytes / level.bandwidth * factor;
  return {.seconds = busy + level.latency,
          .busy = busy,
          .carry = level.core_bandwidth > 0 ? bytes / level.core_bandwidth : 0};
}

double RingSimulation::compute_seconds(const PassCosts& costs, std::uint64_t call, int rank, int visit,
                                       std::int64_t pairs) const {
  return (costs.visit_seconds + static_cast<double>(pairs) * costs.pair_seconds) * slowness(rank) *
         jitter(call, rank, visit);
}

double RingSimulation::jitter(std::uint64_t call, int rank, int visit) const {
  if (disturbance_.jitter == 0) return 1;
  const auto index =
      (call << 40) ^ (static_cast<std::uint64_t>(first_rank_ + rank) << 20) ^ static_cast<std::uint64_t>(visit);
  return std::exp(disturbance_.jitter * random_normal(disturbance_.seed, Purpose::simulation, index));
}

PassTimes RingSimulation::pass(const PassCosts& costs, std::span<double> clocks, std::uint64_t call) const {
  ensure(std::ssize(clocks) == work_.ranks(), "a clock for each rank of the ring");
  const TimeMessage time_message = [&](int from, int to, double bytes) { return message_time(from, to, bytes); };
  if (processors_.cores > 0 && work_.ranks() <= largest_shared_ring) {
    const auto compute = [&](int rank, int visit, std::int64_t pairs) {
      return compute_seconds(costs, call, rank, visit, pairs);
    };
    const auto overlap = [&](int rank) { return costs.overlap_seconds * slowness(rank); };
    return shared_pass(work_, processors_, compute, overlap, time_message, costs, clocks);
  }
  if (work_.even() && disturbance_.jitter == 0) return even_pass(work_, slowness_, time_message, costs, clocks);
  return Pass(*this, costs, clocks, call).run();
}

}  // namespace ringtrain
