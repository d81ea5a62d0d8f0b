// Reductions and copies among all ranks of a communicator, from exchanges alone. Sums run in rank order (0, 1, ...), so
// threads and processes give the same bits on the same mesh. (Where a communicator has its own, a copy is that, and a
// sum if SumOrder lets it.) All ranks call each with agreeing arguments. Blocking. An argument that does not fit is an
// Error(usage) that names the caller's line; ranks whose sizes differ end with Error(rank) that names both.
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
/// The same of integers.
void all_reduce_sum(Communicator& communicator, std::span<std::int64_t> values, const CallSite& site);
/// values[i] = maximum over ranks.
void all_reduce_max(Communicator& communicator, std::span<std::int64_t> values, const CallSite& site);
/// Returns every rank's values (all of equal length), in rank order.
std::vector<std::int64_t> all_gather(Communicator& communicator, std::span<const std::int64_t> values,
                                     const CallSite& site);
/// The same of doubles.
std::vector<double> all_gather(Communicator& communicator, std::span<const double> values, const CallSite& site);
/// x on every rank = x of root.
void broadcast(Communicator& communicator, const TensorView& x, int root, const CallSite& site,
               const CallerLine& line = CallerLine::current());
/// Returns root's text on every rank.
std::string broadcast_text(Communicator& communicator, std::string text, int root, const CallSite& site);

/// The slice [begin, end) of n elements that rank r of R owns: as even as can be, larger ones first.
struct Slice {
  std::int64_t begin, end;
  /// Returns its elements.
  std::int64_t count() const { return end - begin; }
};
/// Returns the slice of a rank.
Slice slice_of(std::int64_t n, int ranks, int rank, const CallerLine& line = CallerLine::current());

/// In which order numbers of all ranks are added. by_rank: the same bits on all backends, and from run to run.
/// by_communicator: that of the communicator's own reductions, which it must have.
enum class SumOrder { by_rank, by_communicator };

/// Returns the elements of staging that a ReduceScatter of n elements needs.
std::int64_t reduce_scatter_staging(std::int64_t n, int ranks, const CallerLine& line = CallerLine::current());

/// A reduce-scatter under way: this rank's slice becomes the sum over ranks; the other slices of x are lost. start()
/// posts all exchanges and returns; finish() waits and adds. staging: numel >= reduce_scatter_staging(n, ranks), same
/// dtype and device as x; none for SumOrder::by_communicator. Neither may be touched between the two. x is of float32,
/// float64 or bfloat16.
class ReduceScatter {
 public:
  /// Posts all exchanges and returns. x[n], staging: as above; untouched until finish().
  void start(Communicator& communicator, const TensorView& x, const TensorView& staging, const CallSite& site,
             SumOrder order = SumOrder::by_rank, const CallerLine& line = CallerLine::current());
  /// Waits, and adds on the stream: this rank's slice of x is the sum.
  void finish(Stream& stream, const CallerLine& line = CallerLine::current());
  /// Returns whether it was started and not finished.
  bool pending() const { return communicator_ != nullptr; }

 private:
  Communicator* communicator_ = nullptr;
  TensorView x_, staging_;
  SumOrder order_ = SumOrder::by_rank;
  std::vector<Request> requests_;
};

/// A gather under way: x's slices (slice_of), each correct on its owner, become correct on every rank, in place.
/// start() posts it and returns; finish() waits. x may not be touched between the two.
class AllGather {
 public:
  /// Posts all exchanges and returns. x[n]: untouched until finish().
  void start(Communicator& communicator, const TensorView& x, const CallSite& site,
             const CallerLine& line = CallerLine::current());
  /// Waits: all slices of x are there.
  void finish(const CallerLine& line = CallerLine::current());
  /// Returns whether it was started and not finished.
  bool pending() const { return communicator_ != nullptr; }

 private:
  Communicator* communicator_ = nullptr;
  std::vector<Request> requests_;
};

/// Both at once.
inline void all_gather_slices(Communicator& communicator, const TensorView& x, const CallSite& site,
                              const CallerLine& line = CallerLine::current()) {
  AllGather gather;
  gather.start(communicator, x, site, line);
  gather.finish(line);
}

}  // namespace ringtrain
