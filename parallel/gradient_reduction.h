// Sums weight gradients over all dp x sp ranks, a bucket of parameters at a time: a bucket is issued at a fixed
// point of the last micro-batch's backward and finished two buckets later, or at the end. Each rank ends with its slice
// summed; all_gather_slices brings updated weights back.
#pragma once

#include <vector>

#include "framework/allocator.h"
#include "framework/parameters.h"
#include "framework/stream.h"
#include "parallel/collectives.h"

namespace ringtrain {

class GradientReduction : public GradientObserver {
 public:
  /// Splits its own communicator off world (collective) unless world is null: then planning only. Staging is two
  /// buckets under Tag::workspace; none for one rank, and none if the communicator itself adds.
  GradientReduction(Allocator& allocator, Communicator* world, int world_size, const Parameters& parameters,
                    Stream& stream, SumOrder order = SumOrder::by_rank);
  ~GradientReduction() override;
  /// Starts the reduce-scatter of a bucket's gradients.
  void bucket_complete(int bucket) override;
  /// Finishes what is under way; every bucket of the step must have been issued.
  void finish();
  /// Returns the slice of a bucket's flat buffer that this rank owns (relative to the bucket's begin).
  static Slice owned(const ParameterTable& table, int bucket, int world_size, int rank);
  /// Brings the owners' updated weights of every bucket to all ranks.
  void gather_weights();

 private:
  Parameters const* parameters_;
  Stream* stream_;
  std::unique_ptr<Communicator> communicator_;
  int size_ = 1;
  const SumOrder order_;
  struct Slot {
    Tensor staging;
    ReduceScatter reduction;
  };
  std::vector<Slot> slots_;
  std::int64_t issued_ = 0;
};

}  // namespace ringtrain
