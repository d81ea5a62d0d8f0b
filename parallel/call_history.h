// A rank's last calls and the call for which it waits: the part of a failure's report that describes each rank's state.
// Each rank has one for all its communicators. Not thread-safe: guarded by the lock of the backend that owns it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "parallel/communicator.h"

namespace ringtrain {

/// How a process handles the error with which it ends. is_reporter: whether this process prints it; code, sentence: of
/// the first error of any rank, with rank and host if ranks are processes; calls: the last calls of each rank, as
/// lines.
struct ErrorReport {
  bool is_reporter = true;
  ExitCode code = ExitCode::rank;
  std::string sentence, calls;
};

/// Returns "ring keys and values, layer 1, hop 2".
std::string described(const CallSite& site);
/// Returns whether two sites are the same operation of the same layer and hop.
bool same_site(const CallSite& a, const CallSite& b);

/// One side of an exchange for the message of a timeout: with the world rank of its peer.
struct ExchangeSide {
  bool done = true;
  int peer = no_peer;
  std::size_t bytes = 0;
};
/// Returns which sides of an exchange are not done.
std::string unfinished(const CallSite& site, const ExchangeSide& send, const ExchangeSide& receive);

/// Returns the message of a timeout: which rank waited how long where ("in recv", "at the end for rank 1"), and what to
/// do if ranks were only slow.
std::string timeout_text(const std::string& name, double seconds, const std::string& where);

/// Returns "rank 1 of 4".
std::string rank_name(std::size_t rank, std::size_t size);

class CallHistory {
 public:
  static constexpr std::size_t kept = 16;

  /// Records a call. to, from: world ranks or no_peer. Returns its number, which identifies it in finished() and
  /// waits_for().
  std::uint64_t started(const CallSite& site, int to = no_peer, std::size_t sent_bytes = 0, int from = no_peer,
                        std::size_t received_bytes = 0);
  void finished(std::uint64_t number);
  /// The rank waits for this call until finished(number). site: the call's, which may be too old to be kept.
  void waits_for(std::uint64_t number, const CallSite& site);

  /// Returns one line about the rank's current state, then one for each of its last calls, oldest first; each line ends
  /// with a newline and begins with `indent`.
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
  std::uint64_t waiting_ = 0;  // the number of a call; 0: computing
  CallSite waiting_site_;
  Clock::time_point since_ = Clock::now();  // when it began to wait, or to compute
};

}  // namespace ringtrain
