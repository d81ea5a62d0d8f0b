#include "extras/planner/ring_simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "framework/error.h"
#include "framework/random.h"

namespace ringtrain {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

void raise(double& value, double other) {
  value = std::max(value, other);
}

/// A point of every rank's way through a pass. There it waits, then computes, then posts messages.
struct Turn {
  int hop = 0;    // the number of ranks: after the last hop
  int part = -1;  // of the block; -1: before it is computed, when the next block's transfer is posted
};

struct Message {
  int from = -1, to = -1;
  double bytes = 0;
  int sender_slot = 0, receiver_slot = 0;  // what waits for it
};

}  // namespace

/// The state of all ranks in one pass, and what each does at a turn. Times are seconds since the first rank's begin.
class RingSimulation::Pass {
 public:
  Pass(const RingSimulation& simulation, const PassCosts& costs, std::span<double> clocks, std::uint64_t call,
       bool stepped)
      : N_(simulation.work_.ranks()),
        backward_(costs.gradient_bytes > 0),
        parts_(backward_ ? simulation.work_.parts() : 0),
        turns_of_hop_(1 + std::max(1, parts_)),
        clocks_(clocks),
        s_(simulation),
        work_(simulation.work_),
        costs_(costs),
        call_(call),
        rows_(stepped ? 2 : N_),
        steps_(at(rows_) * at(N_)),
        come_(at(slots()) * at(N_), 0.0),
        egress_(at(N_), 0.0),
        ingress_(at(N_), 0.0) {
    times_.compute.assign(at(N_), 0.0);
    times_.wait.assign(at(N_), 0.0);
    for (int hop = 0; hop < rows_; ++hop) learn(hop);
  }

 protected:
  static constexpr int keys = 0, departing = 1, gradients = 2;  // slots; gradients + part
  int slots() const { return gradients + parts_; }

  /// Learns who meets which block at a hop; of a stepped pass, instead of two hops before.
  void learn(int hop) {
    for (int rank = 0; hop < N_ && rank < N_; ++rank) {
      steps_[at(hop % rows_) * at(N_) + at(rank)] = work_.step(rank, hop).value_or(RingStep{.owner = -1});
    }
  }
  const RingStep& step(int rank, int hop) const { return steps_[at(hop % rows_) * at(N_) + at(rank)]; }
  double& come(int slot, int rank) { return come_[at(slot) * at(N_) + at(rank)]; }

  /// Returns the first and the end of the slots that a rank waits for before it computes.
  std::pair<int, int> waits_for(const Turn& turn) const {
    if (turn.hop == N_) return turn.part < 0 ? std::pair{0, 0} : std::pair{departing, slots()};
    if (turn.part < 0) return {keys, keys + 1};
    return backward_ ? std::pair{gradients + turn.part, gradients + turn.part + 1} : std::pair{0, 0};
  }

  /// Returns the seconds that a rank computes at a turn; of ranks that share processors, while all compute.
  double seconds(int rank, const Turn& turn) {
    if (turn.hop == N_) return turn.part < 0 ? checked_seconds(costs_.overlap_seconds * s_.slowness(rank)) : 0;
    const int owner = step(rank, turn.hop).owner;
    if (turn.part < 0 || owner < 0) return 0;
    const std::int64_t pairs = work_.pairs(rank, owner, backward_ ? turn.part : -1);
    if (backward_ && pairs == 0) return 0;
    ++times_.events;
    return checked_seconds((costs_.visit_seconds + static_cast<double>(pairs) * costs_.pair_seconds) *
                           s_.slowness(rank) * s_.jitter(call_, rank, turn.hop * std::max(1, parts_) + turn.part));
  }

  /// Finds a message that ranks post at the end of a turn: keys and values by their receiver, gradients by their
  /// sender. Returns false if there is none.
  bool message(const Turn& turn, int rank, Message& found) const {
    if (turn.hop == N_ || (turn.part >= 0 && !backward_)) return false;
    if (turn.part < 0) {
      if (turn.hop + 1 == N_) return false;
      const RingStep& next = step(rank, turn.hop + 1);
      if (next.owner < 0) return false;
      // A block sent on is waited for with the next one; the owner's own only at the end of the pass.
      const double bytes = costs_.key_value_bytes * static_cast<double>(work_.travelling_tokens(next.owner, rank));
      found = {next.receive_from, rank, bytes, next.receive_from == next.owner ? departing : keys, keys};
      return true;
    }
    const RingStep& here = step(rank, turn.hop);
    if (here.owner < 0 || here.gradient_to < 0) return false;
    const int slot = gradients + turn.part;
    const std::int64_t tokens = work_.travelling_tokens(here.owner, rank, turn.part);
    found = {rank, here.gradient_to, costs_.gradient_bytes * static_cast<double>(tokens), slot, slot};
    return tokens > 0;  // a part of which nothing travels is not sent
  }

  /// Moves a message that both sides have posted. Returns when it has come.
  double move(const Message& message, double posted) {
    const bool from_left = message.from + 1 == message.to;
    const Link link = from_left ? s_.from_left_[at(message.to)] : s_.link_between(message.from, message.to);
    const double busy = message.bytes / link.level->bandwidth * link.factor;
    double &out = egress_[at(message.from)], &in = ingress_[at(message.to)];
    const double begin = std::max({posted, out, in});
    out = in = begin + busy;
    const double there = begin + checked_seconds(busy + link.level->latency);
    raise(come(message.sender_slot, message.from), there);
    raise(come(message.receiver_slot, message.to), there);
    times_.bytes += message.bytes;
    ++times_.events;
    return there;
  }

  const int N_;
  const bool backward_;
  const int parts_;  // of gradients: none in forward
  const int turns_of_hop_;
  const std::span<double> clocks_;
  const RingSimulation& s_;
  PassTimes times_;

 private:
  const RingWork& work_;
  const PassCosts& costs_;
  const std::uint64_t call_;
  const int rows_;
  std::vector<RingStep> steps_;           // [hop % rows][rank]; owner -1: meets no block
  std::vector<double> come_;              // [slot][rank]: when the last message that a slot waits for had come
  std::vector<double> egress_, ingress_;  // when a rank's link is free, each way
};

/// Ranks with devices of their own. All take a turn before any takes the next one, so what a rank waits for is known
/// when it waits, and a pass is a few loops. A link takes messages of one turn by rank.
class RingSimulation::SteppedPass : public Pass {
 public:
  SteppedPass(const RingSimulation& simulation, const PassCosts& costs, std::span<double> clocks, std::uint64_t call)
      : Pass(simulation, costs, clocks, call, /*stepped=*/true) {}

  PassTimes run() {
    for (int hop = 0; hop < N_; ++hop) {
      if (hop > 0) learn(hop + 1);
      for (int part = -1; part < turns_of_hop_ - 1; ++part) take({hop, part});
    }
    for (const int part : {-1, 0}) take({N_, part});
    return std::move(times_);
  }

 private:
  void take(const Turn& turn) {
    const auto [first, end] = waits_for(turn);
    for (int rank = 0; rank < N_; ++rank) {
      double& clock = clocks_[at(rank)];
      for (int slot = first; slot < end; ++slot) {
        const double there = come(slot, rank);
        if (there <= clock) continue;
        times_.wait[at(rank)] += there - clock;
        clock = there;
      }
      const double computed = seconds(rank, turn);
      clock += computed;
      if (turn.hop < N_) times_.compute[at(rank)] += computed;
    }
    if (turn.part >= 0 && !backward_) return;
    Message one;
    for (int rank = 0; rank < N_; ++rank) {
      if (message(turn, rank, one)) move(one, std::max(clocks_[at(one.from)], clocks_[at(one.to)]));
    }
  }
};

/// Ranks of one machine, event by event. While some wait, the others compute faster. A rank that is not in the pass
/// yet, or no longer, computes elsewhere and holds a core. A message that a processor carries itself (TCP, a copy
/// between processes) takes some of its time. A link takes messages by time. An event costs a look at each rank.
class RingSimulation::SharedPass : public Pass {
 public:
  SharedPass(const RingSimulation& simulation, const PassCosts& costs, std::span<double> clocks, std::uint64_t call)
      : Pass(simulation, costs, clocks, call, /*stepped=*/false),
        processors_(simulation.processors_),
        ranks_(at(N_)),
        posted_(at(turns()) * at(N_), 0),
        pending_(at(slots()) * at(N_), 0) {}

  /// An event ends a rank's computing or a rank's waiting, whatever the magnitudes. For the event is the least of what
  /// is left to compute, or else the next arrival. The least, taken off itself, leaves exactly zero; a rank whose
  /// message has come goes on even if the clock is too large to move. A rank computes and waits once a turn at most and
  /// comes to the pass once, so there are no more events than most.
  PassTimes run() {
    const std::int64_t most = std::int64_t{N_} * (2 * turns() + 1);
    std::int64_t ended = 0;
    while (std::ranges::any_of(ranks_, [&](const Rank& rank) { return rank.turn < turns(); })) {
      ensure(++ended <= most, "more events than a pass of the ring has");
      event();
    }
    return std::move(times_);
  }

 private:
  enum class Doing { outside, waiting, computing };

  struct Rank {
    Doing doing = Doing::outside;
    int turn = 0;
    double left = 0, whole = 0;  // of what it computes, in seconds of all ranks computing
    double waits_since = 0;
  };
  struct Carried {
    Message message;
    double come = 0, seconds = 0;         // of a core, on each side
    bool sender = true, receiver = true;  // whose time it will still take
  };

  int turns() const { return N_ * turns_of_hop_ + 2; }
  Turn turn_of(int turn) const { return {turn / turns_of_hop_, turn % turns_of_hop_ - 1}; }

  /// Returns when a rank that does not compute goes on; never: not known yet, or it has left the pass.
  double goes_on(int rank) {
    const Rank& self = ranks_[at(rank)];
    if (self.turn == turns()) return never;
    return self.doing == Doing::outside ? clocks_[at(rank)] : ready(rank, turn_of(self.turn));
  }
  double ready(int rank, const Turn& turn) {
    double last = 0;
    const auto [first, end] = waits_for(turn);
    for (int slot = first; slot < end; ++slot) {
      raise(last, pending_[at(slot) * at(N_) + at(rank)] > 0 ? never : come(slot, rank));
    }
    return last;
  }

  void event() {
    double least = never, arrival = never;
    int active = 0;  // ranks that want a core
    for (int rank = 0; rank < N_; ++rank) {
      const Rank& self = ranks_[at(rank)];
      const bool computing = self.doing == Doing::computing;
      active += computing || self.doing == Doing::outside ? 1 : 0;
      if (computing) {
        least = std::min(least, self.left);
      } else {
        arrival = std::min(arrival, goes_on(rank));
      }
    }
    ensure(least < never || arrival < never, "a rank of the ring waits for what never comes");
    const double speed = processors_.speed(active);
    const bool completes = now_ + least / speed <= arrival;
    const double next = completes ? now_ + least / speed : std::max(now_, arrival), passed = next - now_;
    const double done = completes ? least : passed * speed;
    now_ = next;
    for (int rank = 0; rank < N_; ++rank) {
      Rank& self = ranks_[at(rank)];
      if (self.doing != Doing::computing) continue;
      self.left -= done;
      if (self.left <= 1e-12 * self.whole) self.left = 0;  // less is rounding
      if (self.turn / turns_of_hop_ < N_) times_.compute[at(rank)] += passed;
    }
    for (int rank = 0; rank < N_; ++rank) {
      const Rank& self = ranks_[at(rank)];
      if (self.doing == Doing::computing ? self.left == 0 : goes_on(rank) <= now_) advance(rank);
    }
  }

  /// Goes on with a rank until it computes, waits or leaves.
  void advance(int rank) {
    Rank& self = ranks_[at(rank)];
    bool computed = self.doing == Doing::computing;
    if (self.doing == Doing::waiting) times_.wait[at(rank)] += now_ - self.waits_since;
    self.doing = Doing::waiting;
    self.waits_since = now_;
    for (; self.turn < turns(); ++self.turn, computed = false) {
      const Turn turn = turn_of(self.turn);
      if (!computed) {
        if (ready(rank, turn) > now_) return;
        compute(rank, seconds(rank, turn));
        if (self.doing == Doing::computing) return;
      }
      post(rank, turn);
    }
    self.doing = Doing::outside;
    clocks_[at(rank)] = now_;
  }
  /// Begins to compute; what is under way and was not carried yet is carried meanwhile.
  void compute(int rank, double seconds) {
    if (seconds == 0) return;
    Rank& self = ranks_[at(rank)];
    self.doing = Doing::computing;
    self.left = self.whole = seconds;
    std::erase_if(under_way_, [&](const Carried& carried) { return carried.come <= now_; });
    for (Carried& carried : under_way_) carry(carried, rank);
  }
  void carry(Carried& carried, int rank) {
    if (ranks_[at(rank)].doing != Doing::computing) return;
    for (const auto& [side, takes] :
         {std::pair{carried.message.from, &carried.sender}, std::pair{carried.message.to, &carried.receiver}}) {
      if (side != rank || !std::exchange(*takes, false)) continue;
      const double seconds = carried.seconds / processors_.cores_of_rank();
      ranks_[at(rank)].left += seconds;
      ranks_[at(rank)].whole += seconds;
    }
  }

  /// Posts a rank's side of the messages of a turn; moves those that the other side has posted.
  void post(int rank, const Turn& turn) {
    Message one;
    for (int other = 0; other < N_; ++other) {
      if (!message(turn, other, one) || (one.from != rank && one.to != rank)) continue;
      ++pending(rank, one);
      const std::int64_t round = std::int64_t{turn.hop} * turns_of_hop_ + turn.part + 1;
      if (!std::exchange(posted_[at(round * N_ + other)], 1)) continue;
      const double there = move(one, now_);
      --pending(one.from, one);
      --pending(one.to, one);
      const double core = s_.link_between(one.from, one.to).level->core_bandwidth;
      under_way_.push_back(
          {.message = one, .come = there, .seconds = core > 0 ? checked_seconds(one.bytes / core) : 0});
      for (const int side : {one.from, one.to}) carry(under_way_.back(), side);
    }
  }
  int& pending(int rank, const Message& message) {
    return pending_[at(rank == message.from ? message.sender_slot : message.receiver_slot) * at(N_) + at(rank)];
  }

  const SharedProcessors processors_;
  std::vector<Rank> ranks_;
  std::vector<char> posted_;  // [turn][message's rank]: by one side
  std::vector<int> pending_;  // [slot][rank]: messages that a rank posted and the other side did not
  std::vector<Carried> under_way_;
  double now_ = 0;
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
    if (place >= 0 && place < work.ranks()) slowness_[at(place)] *= straggler.factor;
  }
  for (int rank = 0; rank < work.ranks(); ++rank) from_left_.push_back(link_between(std::max(0, rank - 1), rank));
}

RingSimulation::Link RingSimulation::link_between(int from, int to) const {
  Link link{.level = &hardware_.level_between(first_rank_ + from, first_rank_ + to)};
  for (const Disturbance::SlowLink& slow : disturbance_.slow_links) {
    if (slow.from == first_rank_ + from && slow.to == first_rank_ + to) link.factor *= slow.factor;
  }
  return link;
}

double RingSimulation::jitter(std::uint64_t call, int rank, int visit) const {
  if (disturbance_.jitter == 0) return 1;
  const auto index =
      (call << 40) ^ (static_cast<std::uint64_t>(first_rank_ + rank) << 20) ^ static_cast<std::uint64_t>(visit);
  return std::exp(disturbance_.jitter * random_normal(disturbance_.seed, Purpose::simulation, index));
}

PassTimes RingSimulation::pass(const PassCosts& costs, std::span<double> clocks, std::uint64_t call) const {
  ensure(std::ssize(clocks) == work_.ranks(), "a clock for each rank of the ring");
  const double begin = *std::ranges::min_element(clocks);
  for (double& clock : clocks) clock -= begin;
  const bool shared = processors_.cores > 0 && work_.ranks() <= largest_shared_ring;
  PassTimes times =
      shared ? SharedPass(*this, costs, clocks, call).run() : SteppedPass(*this, costs, clocks, call).run();
  for (double& clock : clocks) clock += begin;
  return times;
}

}  // namespace ringtrain
