// What one rank has of NCCL: its communicators, one stream for all their exchanges, and a watchdog.
//
// NCCL wants the operations of all communicators on a GPU in one order, the same on every rank: two that wait for
// each other's room on the GPUs would wait for ever. Here they share a stream, so the order is that in which the rank
// posts them; ranks run the same program, so it is the same everywhere. What is posted together is one group of
// NCCL, opened and closed in one call. No group stays open between calls, for it would be the thread's: whatever the
// thread calls next, an abort as well, would wait for its end.
//
// NCCL moves data by kernels, and a kernel of attention is on all multiprocessors to its end, with all their registers
// or shared memory. So that messages move beside it and not after it, attention leaves nccl_thread_blocks free beside
// the ring's messages (KeptFree), and NCCL's stream has the highest priority. Other kernels fill the GPU, too:
// what the rank's stream is given after a group waits until it is the group's turn, which is then the first to be
// placed. But only where that stream has waited for all groups before, so that the turn comes at once; it does not wait
// for what it need not.
//
// CUDA loads a kernel at its first launch, and may then wait for all GPUs of the process. A kernel of NCCL's that waits
// there for the rank that loads would never end. So ranks that are threads go through a first pass in lockstep: see
// lockstep.h.
//
// Communicators do not block: NCCL goes on in the background, and the rank polls until it is done, without the lock in
// between. So the watchdog, a thread, can always poll, too: for the first error of any rank, NCCL's own errors, and for
// a group that could run but has not ended within the timeout. Any of them ends all ranks, and aborts every
// communicator here, so that no kernel of NCCL's stays on the GPU.
//
// A process that ends is noticed by NCCL over a network, and not within a machine. Either way the host's communicator
// knows better what ended it, so NCCL's word for it ("remote error") is told only if nothing is heard there.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "framework/cuda/event.h"
#include "framework/threads.h"
#include "parallel/call_history.h"
#include "parallel/communicator.h"
#include "parallel/nccl/lockstep.h"

namespace ringtrain {

/// One call of NCCL on GPU memory: a side of a message, or a collective; of at least one element (a rank's, of a
/// collective).
struct NcclOperation {
  int peer = no_peer;  // a rank of the communicator; no_peer: all gather
  OperationSide::Kind kind = OperationSide::Kind::gathers;
  std::function<ncclResult_t(ncclComm_t, cudaStream_t)> post;
};

/// Operations that begin together: one group of NCCL.
struct NcclGroup {
  std::vector<NcclOperation> operations;
  std::vector<CallSite> sites;     // what they are for; each once
  cuda::Event ready, begun, done;  // what they wait for, their turn on NCCL's stream, and their end
  bool waited_for = false;         // by the rank's stream
  bool could_run = false;
  std::chrono::steady_clock::time_point since{};  // when it was first seen that it could run
};

/// One of NCCL's communicators, as this rank has it; null handle: not joined, or aborted.
struct NcclComm {
  ncclComm_t handle = nullptr;
  ncclComm_t part = nullptr;        // that is being split off: NCCL's to write, at any time, until the split has ended
  std::vector<std::int64_t> ranks;  // who its ranks are among those that NCCL joined first
};

/// Returns a number that no other process has.
std::int64_t number_of_process();

class NcclRank {
 public:
  /// host: all ranks, their host memory. stream: of the rank's GPU; must outlive this.
  NcclRank(std::unique_ptr<Communicator> host, Stream& stream, double timeout_seconds);
  /// Without close() before, aborts what the rank has of NCCL; other ranks are not waited for.
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  Communicator& host() { return *host_; }
  Stream& stream() { return stream_; }

  /// Makes comm this rank's part of a new communicator of all ranks. Collective. Throws Error(device) if NCCL refuses,
  /// Error(rank) after the timeout.
  void join(const std::shared_ptr<NcclComm>& comm);
  /// The same for a communicator of some ranks of whole; part: their host memory, in the order of their ranks in whole,
  /// of which this one's is `rank`. Nothing of whole's may be posted and not waited for. Waits for the GPU to come to
  /// the end of what NCCL was given. All ranks of whole must call it.
  void split(NcclComm& whole, int rank, Communicator& part, const std::shared_ptr<NcclComm>& comm);
  /// Leaves all communicators, those that were joined last first. Collective. Nothing is under way that was
  /// not waited for. Throws the first error of any rank.
  void close();
  /// Lets go of a communicator, which stays joined until close(). idle: all its exchanges were waited for. If they were
  /// not, or the GPU has not ended all that NCCL was given, the rank aborts NCCL: when it returns, nothing uses the
  /// memory of exchanges. Neither throws nor communicates.
  void let_go(bool idle) noexcept;

  /// Starts the group's operations, after what the rank's stream was given so far. Waits for the other side where two
  /// ranks exchange for the first time, never for the GPU. Throws the first error of any rank.
  void launch(NcclComm& comm, const std::shared_ptr<NcclGroup>& group);
  /// What the rank's stream is given from now on runs after the group. Throws the first error of any rank.
  void wait(NcclGroup& group);
  void throw_if_aborted();
  /// See Communicator::set_lockstep. Collective over all ranks that NCCL joined first.
  void set_lockstep(bool on);

 private:
  using Lock = std::unique_lock<std::mutex>;

  void await(Lock& lock, const NcclComm& comm, ncclResult_t result, const CallSite& site);
  void await_idle(Lock& lock);
  void meet_threads();
  void post_and_record(NcclComm& comm, const std::shared_ptr<NcclGroup>& group, bool until_done);
  template <class Body>
  void enter(Body body);
  [[noreturn]] void fail_with(Lock& lock, ncclResult_t result, const NcclComm& comm, const std::string& what);
  void abort_comms(Lock& lock);
  void abandon(Lock& lock) noexcept;
  void throw_if_comms_aborted() const;
  void watchdog();
  void poll(Lock& lock);
  std::string name() const { return rank_name(host_->rank(), host_->size()); }

  const std::unique_ptr<Communicator> host_;
  Stream& stream_;
  const std::chrono::duration<double> timeout_;
  cudaStream_t own_stream_ = nullptr;
  int unwaited_ = 0;                    // groups that were posted; used by the rank's thread alone, as the next two
  std::shared_ptr<Lockstep> lockstep_;  // null: the ranks are processes
  bool in_lockstep_ = false;
  std::mutex mutex_;  // of all below, and of calls into NCCL
  std::condition_variable stop_changed_;
  bool stop_ = false, aborted_ = false;
  std::vector<std::shared_ptr<NcclComm>> comms_;      // in the order of joining
  std::deque<std::shared_ptr<NcclGroup>> under_way_;  // in the order of the stream
  std::optional<Thread> watchdog_;                    // it uses all of the above
};

}  // namespace ringtrain
