// The narrow interface between ranks: exchange, wait, barrier, split, abort. A rank's code is the same whether ranks
// are threads, processes or GPUs. Reductions are written once above it (parallel/collectives.h), in an order of our
// own; NCCL alone brings some too. One communicator object belongs to one rank and is used by that rank's thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/const_tensor_view.h"
#include "framework/error.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// What a call is for: named in the report when it fails or waits too long, and the same on both sides of a message.
/// operation: a literal, it is kept. layer and hop: -1 where they mean nothing. What moves a bucket gives its number as
/// layer: 0 the embedding, l + 1 layer l, the last one the head.
struct CallSite {
  const char* operation = "exchange";
  int layer = -1;
  int hop = -1;
};

/// Names one exchange under way. 0 is "nothing under way" and may be waited on.
struct Request {
  std::uint64_t id = 0;
};

/// A peer that takes no part: with it, that half of an exchange is left out.
inline constexpr int no_peer = -1;

class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Returns this rank, from 0.
  virtual int rank() const = 0;
  /// Returns the number of ranks.
  virtual int size() const = 0;

  /// Starts one grouped act: send to `to`, receive from `from` (either may be no_peer; both may be this rank). Returns
  /// at once. Neither buffer may be written, nor receive read, before wait(). Between two ranks messages keep their
  /// order. Sizes and call sites of the two sides must agree: ranks that do different things end with Error(rank) that
  /// names both. 0 bytes are a message too. Of several exchanges that begin together, those that send come first: then
  /// messages in both directions between two processes move at once (see MpiWorld::exchange).
  /// A peer that there is not, or a side without memory, is an Error(usage) that names the caller's line.
  virtual Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from,
                           const CallSite& site, const CallerLine& line = CallerLine::current()) = 0;
  /// Sets the stream of all exchanges of GPU memory, here and in communicators that are split off later. They begin
  /// after the work that the stream had when they were posted; work that it gets after wait() runs after them. wait()
  /// itself does not wait for the GPU. stream must outlive them. Without one only host memory may be exchanged.
  virtual void set_stream(Stream& stream) = 0;
  /// Exchanges posted between the two are one act: what a rank posts in a round may depend on what others post in the
  /// same round, in any order. None of them may be waited for before the end. (post_together calls both.)
  virtual void begin_group() {}
  /// Ends what begin_group() began.
  virtual void end_group() {}
  /// Returns how many multiprocessors of a GPU its acts may take from the kernels beside them.
  virtual int multiprocessors() const { return 0; }
  /// Whether it sums and gathers GPU memory by itself, too: faster than exchanges, and without staging.
  virtual bool reduces_gpu_memory() const { return false; }
  /// Both begin at once and return, as exchange does. x: a flat tensor in GPU memory, as long on every rank. Its slices
  /// are those of slice_of (parallel/collectives.h). reduce_scatter makes this rank's slice the sum over ranks, in any
  /// order, rounded to x's type at every addition; the other slices are lost. all_gather makes every slice its owner's.
  /// Neither is part of a group. Only where reduces_gpu_memory().
  virtual Request reduce_scatter([[maybe_unused]] const TensorView& x, [[maybe_unused]] const CallSite& site) {
    fail(ExitCode::internal, "a communicator without reductions of its own is asked for one");
  }
  /// See reduce_scatter.
  virtual Request all_gather([[maybe_unused]] const TensorView& x, [[maybe_unused]] const CallSite& site) {
    fail(ExitCode::internal, "a communicator without gathers of its own is asked for one");
  }
  /// Whether every act on GPU memory begins when all ranks that it joins have come, and ends before the call that posts
  /// it returns. Meant for a first pass, in which cuBLASLt loads kernels: a rank that loads may wait for all GPUs of
  /// its process, and so for an act that waits for that rank. Collective. Changes something only where NCCL joins
  /// threads of one process, and holds for all communicators that were split from one another.
  virtual void set_lockstep([[maybe_unused]] bool on) {}
  /// Returns when both halves are done. Throws Error(rank) that names rank, peer, operation, layer and hop when it
  /// waits longer than the timeout, and the first error of any rank once one has aborted. A request that is not under
  /// way here is an Error(usage) that names the caller's line.
  virtual void wait(Request request, const CallerLine& line = CallerLine::current()) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier(const CallSite& site) = 0;
  /// Returns a communicator of the ranks that gave the same colour, ordered by this one's rank. All ranks must call it.
  virtual std::unique_ptr<Communicator> split(int colour) = 0;
  /// Leaves in order, with all communicators that were split off it: everything was waited for, and nothing is called
  /// afterwards. Collective; throws the first error of any rank. A destructor neither throws nor communicates: what was
  /// not closed before is given up. (Only NCCL has something to do here.)
  virtual void close() {}
  /// Ends every pending and later call of every rank, in this and all related communicators, with this error (the first
  /// one stays).
  virtual void abort(const Error& error) = 0;
  /// Throws that error once some rank has aborted. Any thread may ask.
  virtual void throw_if_aborted() = 0;
};

/// Calls post(); the exchanges that it posts are one act. If it throws, the act is left open: the rank ends anyway.
template <class Post>
void post_together(Communicator& communicator, const Post& post) {
  communicator.begin_group();
  post();
  communicator.end_group();
}

}  // namespace ringtrain
