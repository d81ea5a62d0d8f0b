// Reductions and copies among all ranks of a communicator, built only on exchanges. Sums use rank order (0, 1, ...), so
// threads and processes give the same bits on the same mesh. (If a communicator has its own copies, they are used, and
// so are its own sums if SumOrder allows.) All ranks call each function with matching arguments. Blocking. An argument
// that does not fit is an Error(usage) that names the caller's line; if sizes differ between ranks, they end with
// Error(rank) that names both.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/stream.h"
#include "parallel/communicator.h"

namespace ringtrain {

/// values[i] = sum over ranks, in rank order. Small host vectors: losses, counts, norms.
void all_reduce_sum(Communicator& communicator, std::span<double> values, const CallSite& site);
/// The same for integers.
void all_reduce_sum(Communicator& communicator, std::span<std::int64_t> values, const CallSite& site);
/// values[i] = maximum over ranks.
void all_reduce_max(Communicator& communicator, std::span<std::int64_t> values, const CallSite& site);
/// Returns every rank's values (all of equal length), in rank order.
std::vector<std::int64_t> all_gather(Communicator& communicator, std::span<const std::int64_t> values,
                                     const CallSite& site);
/// The same for doubles.
std::vector<double> all_gather(Communicator& communicator, std::span<const double> values, const CallSite& site);
/// Sets x on every rank to root's x.
void broadcast(Communicator& communicator, const TensorView& x, int root, const CallSite& site,
               const CallerLine& line = CallerLine::current());
/// Returns root's text on every rank.
std::string broadcast_text(Communicator& communicator, std::string text, int root, const CallSite& site);

/// The slice [begin, end) of n elements that rank r of R owns: as even as possible, larger ones first.
struct Slice {
  std::int64_t begin, end;
  /// Returns the number of its elements.
  std::int64_t count() const { return end - begin; }
};
/// Returns the slice of a rank.
Slice slice_of(std::int64_t n, int ranks, int rank, const CallerLine& line = CallerLine::current());

/// The order in which numbers of all ranks are added. by_rank: the same bits on all backends, and in every run.
/// by_communicator: that of the communicator's own reductions, which it must support.
enum class SumOrder { by_rank, by_communicator };

/// Returns the elements of staging that a ReduceScatter of n elements needs.
std::int64_t reduce_scatter_staging(std::int64_t n, int ranks, const CallerLine& line = CallerLine::current());

/// A pending reduce-scatter: this rank's slice becomes the sum over ranks; the other slices of x are lost. start()
/// posts all exchanges and returns; finish() waits and adds. staging: numel >= reduce_scatter_staging(n, ranks), with
/// the dtype and device of x; none for SumOrder::by_communicator. Neither may be touched between the two calls. x is
/// float32, float64, or bfloat16.
class ReduceScatter {
 public:
  /// Posts all exchanges and returns. x[n], staging: as above; must not be touched until finish().
  void start(Communicator& communicator, const TensorView& x, const TensorView& staging, const CallSite& site,
             SumOrder order = SumOrder::by_rank, const CallerLine& line = CallerLine::current());
  /// Waits, and adds on the stream: this rank's slice of x then is the sum.
  void finish(Stream& stream, const CallerLine& line = CallerLine::current());
  /// Returns whether it was started and not finished.
  bool pending() const { return communicator_ != nullptr; }

 private:
  Communicator* communicator_ = nullptr;
  TensorView x_, staging_;
  SumOrder order_ = SumOrder::by_rank;
  std::vector<Request> requests_;
};

/// A pending gather: x's slices (slice_of), each correct on its owner, become correct on every rank, in place. start()
/// posts it and returns; finish() waits. x must not be touched between the two calls.
class AllGather {
 public:
  /// Posts all exchanges and returns. x[n]: must not be touched until finish().
  void start(Communicator& communicator, const TensorView& x, const CallSite& site,
             const CallerLine& line = CallerLine::current());
  /// Waits until all slices of x have arrived.
  void finish(const CallerLine& line = CallerLine::current());
  /// Returns whether it was started and not finished.
  bool pending() const { return communicator_ != nullptr; }

 private:
  Communicator* communicator_ = nullptr;
  std::vector<Request> requests_;
};

/// Calls start() and finish().
inline void all_gather_slices(Communicator& communicator, const TensorView& x, const CallSite& site,
                              const CallerLine& line = CallerLine::current()) {
  AllGather gather;
  gather.start(communicator, x, site, line);
  gather.finish(line);
}

}  // namespace ringtrain
