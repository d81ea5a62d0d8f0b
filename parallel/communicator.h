// The narrow interface between ranks: exchange, wait, barrier, split, abort. A rank's code is the same whether ranks
// are threads, processes, or GPUs. Reductions are implemented once on top of it (parallel/collectives.h), in our own
// order; only NCCL also provides some. Each communicator object belongs to one rank and is used only by that rank's
// thread.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/const_tensor_view.h"
#include "framework/error.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// The purpose of a call: named in the report when it fails or waits too long, and equal on both sides of a message.
/// operation: a literal; the pointer is kept. layer and hop: -1 if not applicable. Transfers of a bucket give its
/// number as layer: 0 the embedding, l + 1 layer l, the last one the head.
struct CallSite {
  const char* operation = "exchange";
  int layer = -1;
  int hop = -1;
};

/// Identifies a pending exchange. 0 is "nothing pending" and may be waited for.
struct Request {
  std::uint64_t id = 0;
};

/// No peer: that half of an exchange is left out.
inline constexpr int no_peer = -1;

class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Returns this rank's number, from 0.
  virtual int rank() const = 0;
  /// Returns the number of ranks.
  virtual int size() const = 0;

  /// Starts one grouped operation: send to `to`, receive from `from` (either may be no_peer; both may be this rank).
  /// Returns at once. Neither buffer may be written, nor receive read, before wait(). Messages between two ranks keep
  /// their order. Sizes and call sites of the two sides must agree: ranks that do different things end with Error(rank)
  /// that names both. 0 bytes are also a message. If several exchanges begin together, those that send come first: then
  /// messages in both directions between two processes move at the same time (see MpiWorld::exchange). A nonexistent
  /// peer, or a side without memory, is an Error(usage) that names the caller's line.
  virtual Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from,
                           const CallSite& site, const CallerLine& line = CallerLine::current()) = 0;
  /// Sets the stream of all exchanges of GPU memory, here and in communicators that are split off later. They begin
  /// after the work that the stream has when they are posted; work that it receives after wait() runs after them.
  /// wait() itself does not wait for the GPU. stream must outlive them. Without a stream, only host memory may be
  /// exchanged.
  virtual void set_stream(Stream& stream) = 0;
  /// Exchanges posted between the two calls are one operation: a rank's posts in a round may depend on the posts of
  /// others in the same round, in any order. None of them may be waited for before the end. (post_together calls both.)
  virtual void begin_group() {}
  /// Ends the group of begin_group().
  virtual void end_group() {}
  /// Returns how many multiprocessors of a GPU its operations may take from concurrent kernels.
  virtual int multiprocessors() const { return 0; }
  /// Returns whether it also sums and gathers GPU memory by itself, faster than exchanges and without staging.
  virtual bool reduces_gpu_memory() const { return false; }
  /// Both begin at once and return, like exchange. x: a flat tensor in GPU memory, with the same length on every rank.
  /// Its slices are those of slice_of (parallel/collectives.h). reduce_scatter sets this rank's slice to the sum over
  /// ranks, in any order, rounded to x's type at every addition; the other slices are lost. all_gather sets every slice
  /// to its owner's. Neither is part of a group. Only if reduces_gpu_memory().
  virtual Request reduce_scatter([[maybe_unused]] const TensorView& x, [[maybe_unused]] const CallSite& site) {
    fail(ExitCode::internal, "a communicator without reductions of its own is asked for one");
  }
  /// See reduce_scatter.
  virtual Request all_gather([[maybe_unused]] const TensorView& x, [[maybe_unused]] const CallSite& site) {
    fail(ExitCode::internal, "a communicator without gathers of its own is asked for one");
  }
  /// Sets whether every operation on GPU memory begins when all ranks that take part have arrived, and ends before the
  /// call that posts it returns. It is for a first pass, in which cuBLASLt loads kernels: a rank that loads may wait
  /// for all GPUs of its process, and so for an operation that waits for that rank. Collective. It has an effect only
  /// if NCCL connects threads of one process, and applies to all communicators that were split from one another.
  virtual void set_lockstep([[maybe_unused]] bool on) {}
  /// Returns when both halves are done. Throws Error(rank) that names the rank, peer, operation, layer, and hop if it
  /// waits longer than the timeout, and the first error of any rank once one has aborted. A request that is not pending
  /// here is an Error(usage) that names the caller's line.
  virtual void wait(Request request, const CallerLine& line = CallerLine::current()) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier(const CallSite& site) = 0;
  /// Returns a communicator of the ranks that pass the same color, ordered by this one's rank. All ranks must call it.
  virtual std::unique_ptr<Communicator> split(int color) = 0;
  /// Leaves in an orderly way, with all communicators that were split off it: everything has been waited for, and
  /// nothing is called afterwards. Collective; throws the first error of any rank. A destructor neither throws nor
  /// communicates: communicators that were not closed are abandoned. (Only NCCL needs this.)
  virtual void close() {}
  /// Ends every pending and later call of every rank, in this and all related communicators, with this error (if there
  /// are several, the first one counts).
  virtual void abort(const Error& error) = 0;
  /// Throws that error once some rank has aborted. Any thread may call it.
  virtual void throw_if_aborted() = 0;
};

/// Calls post(); its exchanges are one operation. If it throws, the operation remains open: the rank ends anyway.
template <class Post>
void post_together(Communicator& communicator, const Post& post) {
  communicator.begin_group();
  post();
  communicator.end_group();
}

}  // namespace ringtrain
