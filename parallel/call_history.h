// What a rank did last and what it waits for: the part of a failure's report that tells who was where. Each rank keeps
// one for all its communicators. Not thread-safe: guarded by the lock of the backend that keeps it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "parallel/communicator.h"

namespace ringtrain {

/// What a process does with the error it ends with. is_reporter: it is this process that prints it; sentence: the first
/// error, with rank and host where ranks are processes; calls: what each rank did last, as lines.
struct ErrorReport {
  bool is_reporter = true;
  std::string sentence, calls;
};

/// Returns "ring keys and values, layer 1, hop 2".
std::string described(const CallSite& site);
/// Returns whether two sites are the same operation of the same layer and hop.
bool same_site(const CallSite& a, const CallSite& b);

/// One side of an exchange, as the sentence of a timeout names it: with the world rank of its peer.
struct ExchangeSide {
  bool done = true;
  int peer = no_peer;
  std::size_t bytes = 0;
};
/// Returns which of an exchange's sides are not done.
std::string unfinished(const CallSite& site, const ExchangeSide& send, const ExchangeSide& receive);

/// Returns "rank 1 of 4".
std::string rank_name(std::size_t rank, std::size_t size);

class CallHistory {
 public:
  static constexpr std::size_t kept = 16;

  /// Notes a call. to, from: world ranks or no_peer. Returns its number, by which finished() and waits_for() know it.
  std::uint64_t started(const CallSite& site, int to = no_peer, std::size_t sent_bytes = 0, int from = no_peer,
                        std::size_t received_bytes = 0);
  void finished(std::uint64_t number);
  /// The rank waits for this call, until finished(number).
  void waits_for(std::uint64_t number);

  /// Returns one line that says what the rank does now, then one for each of its last calls, oldest first; each line
  /// ends with a newline and begins with `indent`.
  std::string text(std::string_view indent) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {
    std::uint64_t number = 0;  // from 1; 0: none
    CallSite site;
    int to = no_peer, from = no_peer;
    std::size_t sent_bytes = 0, received_bytes = 0;
    bool done = false;
  };
  Call& call(std::uint64_t number) { return calls_[number % kept]; }

  std::array<Call, kept> calls_;
  std::uint64_t last_ = 0;
  Call waiting_;                            // number 0: computing
  Clock::time_point since_ = Clock::now();  // it waits, or computes
};

}  // namespace ringtrain
