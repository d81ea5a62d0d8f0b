#include "train/planning/even_ring.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "framework/cores.h"
#include "framework/error.h"
#include "framework/thread_pool.h"

namespace ringtrain {

namespace {

using Times = std::vector<double>;

std::size_t at(std::int64_t rank) {
  return static_cast<std::size_t>(rank);
}

/// Messages of one size from each rank's left neighbour to it.
struct Messages {
  Times seconds, busy;
};

/// How far ranks that stand side by side have come. Link r leads to rank r.
struct Ranks {
  Times clock, link;             // when a rank is done, when its link is free
  Times keys;                    // when the last keys and values had come over the link
  std::vector<Times> gradients;  // and the last gradients of a part; 0 where there were none
};

class EvenPass {
 public:
  EvenPass(const RingWork& work, std::span<const double> slowness, const TimeMessage& time_message,
           const PassCosts& costs, std::span<double> clocks)
      : work_(work),
        slowness_(slowness),
        time_message_(time_message),
        costs_(costs),
        clocks_(clocks),
        N_(work.ranks()),
        backward_(costs.gradient_bytes > 0),
        parts_(backward_ ? work.parts() : 0),
        causal_contiguous_(!work.even_needs().later),
        start_(clocks.begin(), clocks.end()),
        home_(at(parts_)) {
    ensure(work.even(), "an even pass of an even ring");
    all_.clock = start_;
    all_.link.assign(at(N_), 0.0);
    all_.keys.assign(at(N_), 0.0);
    all_.gradients.assign(at(parts_), Times(at(N_), 0.0));
    messages_.push_back(messages(costs.key_value_bytes * static_cast<double>(work.tokens(0))));
    for (int part = 0; part < parts_; ++part) {
      messages_.push_back(messages(costs.gradient_bytes * static_cast<double>(work.part_tokens(0, part))));
    }
    for (int part = backward_ ? 0 : -1; part < parts_; ++part) {
      for (const Place place : {Place::own, Place::earlier, Place::later}) {
        seconds_.push_back(visit_seconds(place, part));
      }
    }
  }

  PassTimes run() {
    if (causal_contiguous_) {  // gradients that the last rank returns go across the ring: no tiles
      for (int hop = 0; hop < N_; ++hop) {
        advance(all_, 0, hop);
        if (hop == 0) departing_ = all_.keys;
      }
    } else {
      run_in_tiles();
    }
    finish();
    return result();
  }

 private:
  /// Where the owner of a block is, beside the rank that meets it.
  enum class Place { own, earlier, later };

  Messages messages(double bytes) const {
    Messages all;
    for (int rank = 0; rank < N_; ++rank) {
      const MessageTime time = time_message_(rank > 0 ? rank - 1 : N_ - 1, rank, bytes);
      all.seconds.push_back(time.seconds);
      all.busy.push_back(time.busy);
    }
    return all;
  }
  /// Return the seconds of a visit of a block, or of a part.
  double visit_seconds(Place place, int part) const {
    if (N_ == 1 && place != Place::own) return 0;
    const int rank = place == Place::earlier ? 1 : 0, owner = place == Place::later ? 1 : 0;
    const std::int64_t pairs = part < 0 ? work_.pairs(rank, owner) : work_.pairs(rank, owner, part);
    const bool met =
        place == Place::own || (place == Place::earlier ? work_.even_needs().earlier : work_.even_needs().later);
    if (!met || (part >= 0 && pairs == 0)) return 0;
    return costs_.visit_seconds + static_cast<double>(pairs) * costs_.pair_seconds;
  }
  double seconds(Place place, int part) const {
    return seconds_[at(3 * std::max(part, 0)) + static_cast<std::size_t>(place)];
  }

  // In what follows, `some` holds the ranks from `first` on, around the ring. Its outermost ones lack a neighbour, and
  // each round of messages makes one more on either side wrong.

  /// Adds the visits of a hop to the clocks.
  void compute(Ranks& some, int first, int hop, int part) const {
    const auto count = std::ssize(some.clock);
    for (std::int64_t i = 0; i < count;) {
      const auto rank = static_cast<int>((first + i) % N_);
      const std::int64_t until = std::min<std::int64_t>(count, i + (rank < hop ? hop : N_) - rank);
      const double each = seconds(hop == 0 ? Place::own : rank < hop ? Place::later : Place::earlier, part);
      if (each > 0) {
        const double* slow = slowness_.data() + rank - i;
        for (std::int64_t j = i; j < until; ++j) some.clock[at(j)] += each * slow[j];
      }
      i = until;
    }
  }
  /// Sends a message over each link [begin, end); come: when it has.
  void send(const Ranks& ranks, Times& link, Times& come, const Messages& sent, int first, std::int64_t begin) const {
    const double* clock = ranks.clock.data();
    const auto count = std::ssize(ranks.clock);
    for (std::int64_t i = begin; i < count;) {
      const auto rank = static_cast<int>((first + i) % N_);
      const std::int64_t until = std::min<std::int64_t>(count, i + N_ - rank);
      const double *seconds = sent.seconds.data() + rank - i, *busy = sent.busy.data() + rank - i;
      double *free = link.data(), *done = come.data();
      for (std::int64_t j = i; j < until; ++j) {
        const double from = std::max(std::max(clock[j - 1], clock[j]), free[j]);
        free[j] = from + busy[j];
        done[j] = from + seconds[j];
      }
      i = until;
    }
  }
  /// Waits for messages that have come to a rank and, if so, for those that it has sent.
  static void wait(Times& clock, const Times& come, bool sent, std::int64_t begin) {
    const auto count = std::ssize(clock) - 1;
    double* own = clock.data();
    const double* here = come.data();
    if (!sent) {
      for (std::int64_t j = begin; j <= count; ++j) own[j] = std::max(own[j], here[j]);
      return;
    }
    for (std::int64_t j = begin; j < count; ++j) own[j] = std::max(own[j], std::max(here[j], here[j + 1]));
    own[count] = std::max(own[count], here[count]);
  }

  void advance(Ranks& some, int first, int hop) {
    // A contiguous rank meets no later block: at a hop the ranks from that one on are left, and rank 0 has no link.
    const std::int64_t left = causal_contiguous_ ? hop : 0;
    if (hop > 0) wait(some.clock, some.keys, /*sent=*/hop > 1, std::max<std::int64_t>(0, left - 1));
    if (hop + 1 < N_) {
      if (causal_contiguous_) some.keys[at(left)] = 0;
      send(some, some.link, some.keys, messages_[0], first, causal_contiguous_ ? left + 1 : 1);
    }
    if (!backward_) return compute(some, first, hop, -1);
    for (int part = 0; part < parts_; ++part) {
      Times& gradients = some.gradients[at(part)];
      wait(some.clock, gradients, /*sent=*/true, std::max<std::int64_t>(0, left - 1));
      if (causal_contiguous_) wait_for_home(some.clock, part);
      compute(some, first, hop, part);
      if (N_ == 1) continue;
      if (causal_contiguous_) gradients[at(left)] = 0;
      send(some, some.link, gradients, messages_[at(1 + part)], first, causal_contiguous_ ? left + 1 : 1);
      if (causal_contiguous_ && hop > 0) send_home(some, hop, part);
    }
  }

  /// A part's gradients that the last rank of a causal contiguous ring has sent back to their owner.
  struct Home {
    int owner = -1;
    double come = 0;
  };
  void send_home(Ranks& all, int hop, int part) {
    const int last = N_ - 1, owner = last - hop;
    const double bytes = costs_.gradient_bytes * static_cast<double>(work_.part_tokens(owner, part));
    const MessageTime time = time_message_(last, owner, bytes);
    double& into = owner > 0 ? all.link[at(owner)] : into_first_;  // nobody else sends to the owner
    const double begin = std::max({all.clock[at(last)], all.clock[at(owner)], out_of_last_, into});
    into = out_of_last_ = begin + time.busy;
    home_[at(part)] = {owner, begin + time.seconds};
  }
  void wait_for_home(Times& clock, int part) {
    const Home home = std::exchange(home_[at(part)], Home{});
    if (home.owner < 0) return;
    for (const int rank : {home.owner, N_ - 1}) clock[at(rank)] = std::max(clock[at(rank)], home.come);
  }

  /// A tile is some ranks for some hops, small enough for a core's cache. It begins with a few more ranks on each side,
  /// which are wrong at its end.
  void run_in_tiles() {
    constexpr std::int64_t tile = 1536;
    constexpr int hops = 8;
    const std::int64_t margin = std::int64_t{hops} * (1 + parts_) + 2, tiles = (N_ + tile - 1) / tile;
    advance_all(0);
    departing_ = all_.keys;
    ThreadPool pool(static_cast<int>(std::min<std::int64_t>(tiles, available_cores())));
    std::vector<Ranks> tile_of_worker(static_cast<std::size_t>(pool.workers()));
    Ranks next = all_;
    for (int hop = 1; hop < N_; hop += hops) {
      pool.run(tiles, [&](std::int64_t task, int worker) {
        Ranks& some = tile_of_worker[static_cast<std::size_t>(worker)];
        const std::int64_t begin = task * tile;
        const std::int64_t count = std::min<std::int64_t>(tile, N_ - begin);
        const auto first = static_cast<int>((((begin - margin) % N_) + N_) % N_);
        for_all(some, all_, [&](Times& to, const Times& from) { copy_around(to, from, first, count + 2 * margin); });
        for (int h = hop; h < std::min(N_, hop + hops); ++h) advance(some, first, h);
        for_all(next, some,
                [&](Times& to, const Times& from) { std::copy_n(from.begin() + margin, count, to.begin() + begin); });
      });
      std::swap(all_, next);
    }
  }
  /// Advances all ranks by a hop.
  void advance_all(int hop) {
    Ranks some;
    const int margin = 3 + parts_, first = ((-margin % N_) + N_) % N_;
    for_all(some, all_, [&](Times& to, const Times& from) { copy_around(to, from, first, N_ + 2 * margin); });
    advance(some, first, hop);
    for_all(all_, some, [&](Times& to, const Times& from) { std::copy_n(from.begin() + margin, N_, to.begin()); });
  }
  template <class Body>
  static void for_all(Ranks& to, const Ranks& from, const Body& body) {
    body(to.clock, from.clock);
    body(to.link, from.link);
    body(to.keys, from.keys);
    to.gradients.resize(from.gradients.size());
    for (std::size_t part = 0; part < from.gradients.size(); ++part) body(to.gradients[part], from.gradients[part]);
  }
  void copy_around(Times& to, const Times& from, int first, std::int64_t count) const {
    to.resize(at(count));
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t rank = (first + i) % N_, some = std::min<std::int64_t>(count - i, N_ - rank);
      std::copy_n(from.begin() + rank, some, to.begin() + i);
      i += some;
    }
  }

  /// Waits for what is under way at the end: the last gradients, and own keys and values that were sent at hop 0.
  void finish() {
    const auto right = [&](int rank) { return at(rank + 1 < N_ ? rank + 1 : 0); };
    for (int rank = 0; rank < N_; ++rank) {
      double& clock = all_.clock[at(rank)];
      if (backward_) clock += costs_.overlap_seconds * slowness_[at(rank)];
      for (const Times& come : all_.gradients) clock = std::max({clock, come[at(rank)], come[right(rank)]});
    }
    for (int part = 0; part < parts_; ++part) wait_for_home(all_.clock, part);
    for (int rank = 0; rank < N_ && N_ > 1; ++rank) {
      all_.clock[at(rank)] = std::max(all_.clock[at(rank)], departing_[right(rank)]);
    }
  }

  PassTimes result() {
    PassTimes times;
    const std::array<std::int64_t, 3> calls{calls_of(Place::own), calls_of(Place::earlier), calls_of(Place::later)};
    for (int rank = 0; rank < N_; ++rank) {
      const std::array<int, 3> met{1, rank, N_ - 1 - rank};
      double computed = 0;
      for (std::size_t i = 0; i < met.size(); ++i) {
        for (std::size_t part = 0; part < seconds_.size() / 3; ++part) computed += met[i] * seconds_[3 * part + i];
        times.events += met[i] * calls[i];
      }
      computed *= slowness_[at(rank)];
      const double overlap = backward_ ? costs_.overlap_seconds * slowness_[at(rank)] : 0;
      times.compute.push_back(computed);
      const double passed = all_.clock[at(rank)] - start_[at(rank)], waited = passed - computed - overlap;
      times.wait.push_back(waited > 1e-9 * passed ? waited : 0);  // less is rounding
    }
    const std::int64_t blocks = causal_contiguous_ ? std::int64_t{N_} * (N_ - 1) / 2 : std::int64_t{N_} * (N_ - 1);
    times.events += blocks;  // keys and values
    if (N_ > 1) {            // gradients: of contiguous ranks, on to the right and home
      times.events += parts_ * (causal_contiguous_ ? blocks + N_ - 1 : blocks + N_);
    }
    std::ranges::copy(all_.clock, clocks_.begin());
    return times;
  }
  /// Return the kernel calls of a block.
  std::int64_t calls_of(Place place) const {
    std::int64_t calls = 0;
    for (std::size_t part = 0; part < seconds_.size() / 3; ++part) {
      calls += seconds_[3 * part + static_cast<std::size_t>(place)] > 0 ? 1 : 0;
    }
    return calls;
  }

  const RingWork& work_;
  const std::span<const double> slowness_;
  const TimeMessage& time_message_;
  const PassCosts& costs_;
  const std::span<double> clocks_;
  const int N_;
  const bool backward_;
  const int parts_;  // of gradients: none in forward
  const bool causal_contiguous_;
  const Times start_;
  std::vector<Messages> messages_;  // keys and values; the gradients of each part
  Times seconds_;                   // [part][place]; of a forward pass one part, the whole
  Ranks all_;
  Times departing_;                          // when each link had carried the keys and values of hop 1
  std::vector<Home> home_;                   // by part
  double into_first_ = 0, out_of_last_ = 0;  // when the links that gradients go home by are free, at their ends
};

}  // namespace

PassTimes even_pass(const RingWork& work, std::span<const double> slowness, const TimeMessage& time_message,
                    const PassCosts& costs, std::span<double> clocks) {
  return EvenPass(work, slowness, time_message, costs, clocks).run();
}

}  // namespace ringtrain
