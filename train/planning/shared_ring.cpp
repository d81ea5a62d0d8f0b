#include "train/planning/shared_ring.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "framework/error.h"

namespace ringtrain {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

struct Message {
  int from = -1, to = -1;
  double carry = 0;  // seconds of a core, on each side
  bool sent = false, expected = false;
  double come = never;                            // known once both sides have posted it
  bool carried_from = false, carried_to = false;  // its processor time is in a visit of that rank
};

class SharedPass {
 public:
  SharedPass(const RingWork& work, const SharedProcessors& processors,
             const std::function<double(int, int, std::int64_t)>& compute_seconds,
             const std::function<double(int)>& overlap_seconds, const TimeMessage& time_message, const PassCosts& costs,
             std::span<double> clocks)
      : work_(work),
        processors_(processors),
        compute_seconds_(compute_seconds),
        overlap_seconds_(overlap_seconds),
        time_message_(time_message),
        costs_(costs),
        clocks_(clocks),
        N_(work.ranks()),
        backward_(costs.gradient_bytes > 0),
        parts_(backward_ ? work.parts() : 0),
        ranks_(at(N_)),
        egress_(at(N_), 0.0),
        ingress_(at(N_), 0.0) {
    times_.compute.assign(at(N_), 0.0);
    times_.wait.assign(at(N_), 0.0);
    for (int rank = 0; rank < N_; ++rank) {
      ranks_[at(rank)].until = clocks[at(rank)];
      ranks_[at(rank)].gradients.resize(at(parts_));
    }
    now_ = *std::ranges::min_element(clocks);
  }

  PassTimes run() {
    while (true) {
      const double speed = processors_.speed(active());
      double next = never;
      for (const Rank& rank : ranks_) next = std::min(next, rank.computing ? now_ + rank.left / speed : rank.until);
      if (next == never) break;
      const double passed = std::max(0.0, next - now_);
      now_ = std::max(now_, next);
      for (Rank& rank : ranks_) {
        if (!rank.computing) continue;
        rank.left -= passed * speed;
        const bool in_kernel = rank.place == Place::post_gradients;
        if (in_kernel) times_.compute[at(&rank - ranks_.data())] += passed;
      }
      for (int rank = 0; rank < N_; ++rank) {
        Rank& one = ranks_[at(rank)];
        if (one.computing ? one.left <= 1e-12 : one.until <= now_) proceed(rank);
      }
    }
    for (int rank = 0; rank < N_; ++rank) {
      ensure(ranks_[at(rank)].place == Place::done, "a rank of the ring waits for what never comes");
      clocks_[at(rank)] = ranks_[at(rank)].ended;
    }
    return std::move(times_);
  }

 private:
  /// What a rank does next.
  enum class Place { keys, post_keys, gradients, visit, post_gradients, overlap, last_gradients, departing, done };
  using Waiting = std::vector<std::size_t>;  // messages

  struct Rank {
    Place place = Place::keys;
    int hop = 0, part = 0;
    bool computing = false;
    bool outside = true;   // has not come to the pass yet, or has left it: computes something else
    double left = 0;       // of what it computes, in seconds of all ranks computing
    double until = never;  // what it waits for has come then
    double waits_since = 0;
    double ended = 0;
    Waiting keys, departing, wanted;  // wanted: what it waits for now
    std::vector<Waiting> gradients;   // by part
  };

  /// Return how many ranks want a core.
  int active() const {
    return static_cast<int>(
        std::ranges::count_if(ranks_, [](const Rank& rank) { return rank.computing || rank.outside; }));
  }

  /// Goes on with a rank until it computes or waits.
  void proceed(int rank) {
    Rank& self = ranks_[at(rank)];
    self.computing = self.outside = false;
    if (!self.wanted.empty()) times_.wait[at(rank)] += now_ - self.waits_since;
    self.wanted.clear();
    self.until = never;
    while (!self.computing && self.wanted.empty() && self.place != Place::done) act(rank, self);
  }
  void act(int rank, Rank& self) {
    switch (self.place) {
      case Place::keys:
        self.place = Place::post_keys;
        return wait(self, self.keys);
      case Place::post_keys:
        if (self.hop + 1 < N_) post_keys(rank, self.hop + 1);
        self.part = 0;
        self.place = backward_ ? Place::gradients : Place::visit;
        return;
      case Place::gradients:
        self.place = Place::visit;
        return wait(self, self.gradients[at(self.part)]);
      case Place::visit:
        self.place = Place::post_gradients;
        return visit(rank, self);
      case Place::post_gradients:
        if (backward_ && N_ > 1) post_gradients(rank, self.hop, self.part);
        if (++self.part < parts_) {
          self.place = Place::gradients;
        } else {
          self.place = ++self.hop < N_ ? Place::keys : Place::overlap;
        }
        return;
      case Place::overlap:
        self.part = 0;
        self.place = Place::last_gradients;
        if (backward_ && overlap_seconds_(rank) > 0) compute(rank, self, overlap_seconds_(rank));
        return;
      case Place::last_gradients:
        if (self.part == parts_) {
          self.place = Place::departing;
          return;
        }
        return wait(self, self.gradients[at(self.part++)]);
      case Place::departing:
        if (!self.departing.empty()) return wait(self, self.departing);
        self.ended = now_;
        self.outside = true;
        self.place = Place::done;
        return;
      case Place::done:
        return;
    }
  }

  void wait(Rank& self, Waiting& messages) {
    Waiting wanted;
    std::swap(wanted, messages);
    std::erase_if(wanted, [&](std::size_t message) { return messages_[message].come <= now_; });
    self.wanted = std::move(wanted);
    self.waits_since = now_;
    self.until = self.wanted.empty() ? never : come(self.wanted);
  }
  double come(const Waiting& wanted) const {
    double last = 0;
    for (const std::size_t message : wanted) last = std::max(last, messages_[message].come);
    return last;
  }

  void visit(int rank, Rank& self) {
    const auto step = work_.step(rank, self.hop);
    if (!step) return;
    const std::int64_t pairs = backward_ ? work_.pairs(rank, step->owner, self.part) : work_.pairs(rank, step->owner);
    if (backward_ && pairs == 0) return;
    ++times_.events;
    compute(rank, self, compute_seconds_(rank, self.hop * std::max(1, parts_) + self.part, pairs));
  }
  /// Begins to compute; what is under way and was not carried yet is carried meanwhile.
  void compute(int rank, Rank& self, double seconds) {
    self.left = seconds;
    self.computing = seconds > 0;
    std::erase_if(under_way_, [&](std::size_t message) { return messages_[message].come <= now_; });
    for (const std::size_t message : under_way_) carry(messages_[message], rank, self);
  }
  void carry(Message& message, int rank, Rank& self) {
    if (!self.computing || (message.from != rank && message.to != rank)) return;
    bool& carried = message.from == rank ? message.carried_from : message.carried_to;
    if (!carried) self.left += message.carry / processors_.cores_of_rank();
    carried = true;
  }

  // Messages, by round: keys and values for a hop by their receiver, gradients of a part by their sender.

  std::size_t message_of(std::int64_t round, int rank) {
    const std::size_t id = at(round * N_ + rank);
    if (id >= index_.size()) index_.resize(id + 1, no_message);
    if (index_[id] == no_message) {
      index_[id] = messages_.size();
      messages_.emplace_back();
    }
    return index_[id];
  }
  void post_keys(int rank, int hop) {
    const std::int64_t round = std::int64_t{hop} * (1 + parts_);
    if (const auto step = work_.step(rank, hop)) {
      const std::size_t message = message_of(round, rank);
      const double bytes = costs_.key_value_bytes * static_cast<double>(work_.tokens(step->owner));
      ranks_[at(rank)].keys.push_back(message);
      post(message, step->receive_from, rank, bytes, /*sends=*/false);
    }
    for (int to = 0; to < N_; ++to) {  // mostly the neighbour
      const auto step = work_.step(to, hop);
      if (!step || step->receive_from != rank) continue;
      const std::size_t message = message_of(round, to);
      const double bytes = costs_.key_value_bytes * static_cast<double>(work_.tokens(step->owner));
      Rank& self = ranks_[at(rank)];
      (step->owner == rank ? self.departing : self.keys).push_back(message);
      post(message, rank, to, bytes, /*sends=*/true);
    }
  }
  void post_gradients(int rank, int hop, int part) {
    const std::int64_t round = std::int64_t{hop} * (1 + parts_) + 1 + part;
    for (int from = 0; from < N_; ++from) {
      const auto step = work_.step(from, hop);
      if (!step || step->gradient_to < 0 || (from != rank && step->gradient_to != rank)) continue;
      const std::size_t message = message_of(round, from);
      const double bytes = costs_.gradient_bytes * static_cast<double>(work_.part_tokens(step->owner, part));
      ranks_[at(rank)].gradients[at(part)].push_back(message);
      post(message, from, step->gradient_to, bytes, from == rank);
    }
  }
  void post(std::size_t id, int from, int to, double bytes, bool sends) {
    Message& message = messages_[id];
    message.from = from;
    message.to = to;
    (sends ? message.sent : message.expected) = true;
    if (!message.sent || !message.expected) return;
    const MessageTime time = time_message_(from, to, bytes);
    const double begin = std::max({now_, egress_[at(from)], ingress_[at(to)]});
    egress_[at(from)] = ingress_[at(to)] = begin + time.busy;
    message.come = begin + time.seconds;
    message.carry = time.carry;
    ++times_.events;
    under_way_.push_back(id);
    for (const int side : {from, to}) {
      Rank& rank = ranks_[at(side)];
      carry(message, side, rank);
      if (std::ranges::find(rank.wanted, id) != rank.wanted.end()) rank.until = come(rank.wanted);
    }
  }

  static constexpr std::size_t no_message = static_cast<std::size_t>(-1);

  const RingWork& work_;
  const SharedProcessors& processors_;
  const std::function<double(int, int, std::int64_t)>& compute_seconds_;
  const std::function<double(int)>& overlap_seconds_;
  const TimeMessage& time_message_;
  const PassCosts& costs_;
  const std::span<double> clocks_;
  const int N_;
  const bool backward_;
  const int parts_;  // of gradients: none in forward
  std::vector<Rank> ranks_;
  std::vector<double> egress_, ingress_;  // when a rank's link is free, each way
  std::vector<Message> messages_;
  std::vector<std::size_t> index_, under_way_;
  double now_ = 0;
  PassTimes times_;
};

}  // namespace

PassTimes shared_pass(const RingWork& work, const SharedProcessors& processors,
                      const std::function<double(int, int, std::int64_t)>& compute_seconds,
                      const std::function<double(int)>& overlap_seconds, const TimeMessage& time_message,
                      const PassCosts& costs, std::span<double> clocks) {
  return SharedPass(work, processors, compute_seconds, overlap_seconds, time_message, costs, clocks).run();
}

}  // namespace ringtrain
