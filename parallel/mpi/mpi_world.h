// The ranks that are processes of an MPI launcher: the engine of the MPI communicators. All MPI calls are made here,
// under one lock, and only the first and the last block: every wait of a rank is our own loop, which checks the time
// and the first error.
//
// A thread of each rank, the watchdog, lets MPI make progress while the rank computes, and listens to the other ranks'
// sockets. After the first error (an abort, a timeout, a message that disagrees, a process that dies), no data moves:
// every pending and later call throws that error, and buffers may be freed. If a rank does not leave a long computation
// by then, its watchdog ends it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/threads.h"
#include "parallel/call_history.h"
#include "parallel/communicator.h"
#include "parallel/mpi/mpi_library.h"
#include "parallel/mpi/rank_sockets.h"

namespace ringtrain {

class MpiWorld {
 public:
  /// Joins the other processes. Collective; may wait until the slowest of them has started.
  MpiWorld();
  ~MpiWorld();

  int rank() const { return session_.rank(); }
  int size() const { return session_.size(); }
  const std::vector<int>& ranks_here() const { return sockets_.ranks_here(); }
  /// Sets the longest wait of calls that begin from now on.
  void set_timeout(double seconds);

  /// Collective end of a program in which everything succeeded: returns when all ranks have arrived. Throws the first
  /// error if one of them does not. exit_code: the code with which the process is ended, after a message on stderr, if
  /// it has not ended 5 s later because of MPI: in MPI_Finalize, or in exit handlers of its libraries. Nothing except
  /// returning from main may follow.
  void finish(int exit_code);
  /// Ends all ranks with this error, unless there already is one. Its message then names this rank and its host.
  void abort(const Error& error);
  /// Throws the first error, if there is one.
  void throw_if_aborted();
  /// The same; then waits (at most a second) for the reports of the other ranks, and returns the first error, with the
  /// last calls of all reachable ranks. The lowest of them prints it. A higher one returns when the lower ones have
  /// ended (at most 2.5 s after the error): a launcher kills them all when the first process ends.
  ErrorReport report(const Error& error);

  // The following functions are for communicators. Ranks are world ranks; a context separates communicators.

  struct Peers {
    int context = 0;
    int to = no_peer, from = no_peer;
  };
  Request exchange(const ConstTensorView& send, const TensorView& receive, const Peers& peers, const CallSite& site,
                   const void* owner);
  void wait(Request request, const CallerLine& line);
  void barrier(const std::vector<int>& members, int context, const CallSite& site, const void* owner);
  /// Returns the first context in which this rank takes no part; all contexts from begin on are free for it after
  /// use_contexts(begin).
  int next_context() const { return next_context_; }
  void use_contexts(int begin);
  /// Called when an owner is destroyed: if it has pending exchanges, no data moves from now on.
  void forget(const void* owner);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  /// Precedes each message, so that diverged ranks end with a message. Both sides compute the tag of the data from the
  /// same numbers: data that disagree match no receive (a message longer than its buffer may overwrite the memory after
  /// it; Open MPI's shared memory does), and the receive need not wait for the header.
  struct Header {
    std::uint64_t bytes = 0;
    std::int32_t layer = 0, hop = 0;
    char operation[64] = {};
    CallSite site() const { return {operation, layer, hop}; }
  };
  struct Half {
    bool done = true, header_done = false;
    int peer = no_peer;
    Header header;  // as sent, or as expected
    Header received;
    mpi::Transfer header_transfer, data_transfer;
    ExchangeSide side() const { return {done, peer, header.bytes}; }
  };
  struct Exchange {
    Half send, receive;
    CallSite site;
    std::uint64_t call = 0;  // in the history
    const void* owner = nullptr;
    bool done() const { return send.done && receive.done; }
  };

  void watchdog();
  void take(const RankMessage& message);
  void fail_with(ExitCode code, const std::string& sentence);
  /// After the first error: returns the last calls of all ranks, and whether this rank must report it.
  std::string calls_of_all(Lock& lock);
  bool is_reporter(Lock& lock);
  void throw_if_failed();
  /// Fills in a message's header and returns the tag of its data.
  int begin(Half& half, std::uint64_t bytes, int peer, int context, const CallSite& site);
  void progress(Half& half, bool sends);
  void progress_all();
  /// Runs an action that calls MPI; an error that MPI reports becomes the failure of all ranks.
  template <class Action>
  void guarded(const Action& action);
  template <class Ready, class Describe>
  void await(Lock& lock, const Ready& ready, const Describe& describe);
  std::string name(int rank) const { return rank_name(rank, size()); }

  mpi::Session session_;
  RankSockets sockets_;
  int next_context_ = 1;  // used only by the rank's thread

  std::mutex mutex_;  // guards MPI and all below
  std::condition_variable heard_from_ranks_;
  double timeout_seconds_ = 60;
  CallHistory history_;
  std::unordered_map<std::uint64_t, Exchange> pending_;  // its elements do not move
  std::uint64_t requests_ = 0;
  double poll_pause_ = 0;    // seconds from one poll of the watchdog to the next
  bool rank_waits_ = false;  // and lets MPI work itself
  bool frozen_ = false;      // buffers may be gone, or MPI ends: no more calls
  bool stopping_ = false;

  struct Failure {
    ExitCode code;
    std::string sentence;
    Clock::time_point when;
    std::string calls;  // of this rank at that time
  };
  std::optional<Failure> failure_;
  struct PeerState {
    bool heard = false;  // its failure was received
    bool gone = false;   // socket closed
    bool goodbye = false;
    std::string calls;
  };
  std::vector<PeerState> peers_;  // by rank
  bool reported_ = false;         // another rank has printed the report

  Thread watchdog_thread_;  // last: it uses all of the above
};

}  // namespace ringtrain
