// One rank's state of NCCL: its communicators, one stream for all their exchanges, and a watchdog.
//
// NCCL requires the operations of all communicators on a GPU in one order, the same on every rank: two operations that
// wait for each other's multiprocessors would wait forever. Here they share a stream, so the order is that in which the
// rank posts them. Ranks run the same program, so it is the same everywhere. Operations that are posted together are
// one group of NCCL, opened and closed in one call. No group remains open between calls, because it would belong to the
// thread: any later call of the thread, including an abort, would wait for its end.
//
// NCCL moves data with kernels, and a kernel of attention occupies all multiprocessors until it ends, with all their
// registers or shared memory. So that messages move during it and not after it, attention leaves nccl_thread_blocks
// free during the ring's messages (KeptFree), and NCCL's stream has the highest priority. Other kernels also fill the
// GPU: work that the rank's stream receives after a group waits until it is the group's turn, which is then scheduled
// first. This applies only if that stream has already waited for all earlier groups, so that the turn comes at once; it
// does not wait unnecessarily.
//
// CUDA loads a kernel at its first launch, and may then wait for all GPUs of the process. A kernel of NCCL on one of
// them that waits for the rank that loads would never end. So ranks that are threads run a first pass in lockstep: see
// lockstep.h.
//
// Communicators do not block: NCCL continues in the background, and the rank polls until it is done, releasing the lock
// in between. So the watchdog, a thread, can always poll too: for the first error of any rank, NCCL's own errors, and a
// group that could run but has not ended within the timeout. Any of them ends all ranks, and aborts every communicator
// here, so that no kernel of NCCL remains on the GPU.
//
// NCCL notices over a network that a process has ended, but not within a machine. In both cases, the host's
// communicator knows better why it ended, so NCCL's own message ("remote error") is printed only if that communicator
// receives nothing.
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
#include "parallel/waited.h"

namespace ringtrain {

/// One NCCL call on GPU memory: a side of a message, or a collective, with at least one element (per rank, for a
/// collective).
struct NcclOperation {
  int peer = no_peer;  // a rank of the communicator; no_peer: all gather
  OperationSide::Kind kind = OperationSide::Kind::gathers;
  std::function<ncclResult_t(ncclComm_t, cudaStream_t)> post;
};

/// Operations that begin together: one group of NCCL.
struct NcclGroup {
  std::vector<NcclOperation> operations;
  std::vector<CallSite> sites;     // their purposes; each once
  cuda::Event ready, begun, done;  // what they wait for, their turn on NCCL's stream, and their end
  bool waited_for = false;         // by the rank's stream
  std::optional<Waited> waited;    // since it was first noticed that it could run
};

/// This rank's state of one of NCCL's communicators; null handle: not joined, or aborted.
struct NcclComm {
  ncclComm_t handle = nullptr;
  ncclComm_t part = nullptr;        // being split off: NCCL may write it at any time until the split has ended
  std::vector<std::int64_t> ranks;  // the numbers of its ranks among those that NCCL connected first
};

/// Returns a number that no other process has.
std::int64_t number_of_process();

class NcclRank {
 public:
  /// host: all ranks, for their host memory. stream: of the rank's GPU; must outlive this object.
  NcclRank(std::unique_ptr<Communicator> host, Stream& stream, double timeout_seconds);
  /// Unless close() was called, aborts the rank's NCCL communicators without waiting for other ranks.
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  Communicator& host() { return *host_; }
  Stream& stream() { return stream_; }

  /// Makes comm this rank's part of a new communicator of all ranks. Collective. Throws Error(device) if NCCL refuses,
  /// and Error(rank) after the timeout.
  void join(const std::shared_ptr<NcclComm>& comm);
  /// The same for a communicator of some ranks of whole. part: their host memory, in the order of their ranks in whole,
  /// of which this one's is `rank`. All exchanges of whole must have been waited for. Waits for the GPU to finish
  /// NCCL's work. All ranks of whole must call it.
  void split(NcclComm& whole, int rank, Communicator& part, const std::shared_ptr<NcclComm>& comm);
  /// Leaves all communicators, in reverse order of joining. Collective. All exchanges must have been waited for. Throws
  /// the first error of any rank.
  void close();
  /// Releases a communicator, which remains joined until close(). idle: all its exchanges were waited for. If they were
  /// not, or the GPU has not finished NCCL's work, the rank aborts NCCL: when this returns, nothing uses the memory of
  /// exchanges. Neither throws nor communicates.
  void let_go(bool idle) noexcept;

  /// Starts the group's operations, after the work that the rank's stream has received so far. Waits for the other side
  /// if two ranks exchange for the first time, never for the GPU. Throws the first error of any rank.
  void launch(NcclComm& comm, const std::shared_ptr<NcclGroup>& group);
  /// Work that the rank's stream receives from now on runs after the group. Throws the first error of any rank.
  void wait(NcclGroup& group);
  void throw_if_aborted();
  /// See Communicator::set_lockstep. Collective over all ranks that NCCL connected first.
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
  int unwaited_ = 0;                    // posted groups; only used by the rank's thread, like the next two
  std::shared_ptr<Lockstep> lockstep_;  // null: the ranks are processes
  bool in_lockstep_ = false;
  std::mutex mutex_;  // guards everything below, and calls of NCCL
  std::condition_variable stop_changed_;
  bool stop_ = false, aborted_ = false;
  std::vector<std::shared_ptr<NcclComm>> comms_;      // in the order of joining
  std::deque<std::shared_ptr<NcclGroup>> under_way_;  // in the order of the stream
  std::optional<Thread> watchdog_;                    // it uses all of the above
};

}  // namespace ringtrain
