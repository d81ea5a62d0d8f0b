// Which elements of each parameter a rank owns: those whose gradients it sums, whose optimizer state it holds and which
// its file of a checkpoint keeps. Each part of each bucket is cut as evenly as can be over all ranks (slice_of). Pure:
// every rank can tell every other's slices.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/parameter_table.h"

namespace ringtrain {

/// Elements [begin, end) of a parameter, and where their state stands in the owner's buffers (no padding).
struct ParameterSlice {
  int parameter = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t offset = 0;
  std::int64_t count() const { return end - begin; }
  friend bool operator==(const ParameterSlice&, const ParameterSlice&) = default;
};

/// Returns what `rank` of `ranks` owns of a part, in the order of the table; padding belongs to nobody. All ranks'
/// slices together are each element once.
std::vector<ParameterSlice> owned_slices(const ParameterTable& table, Part part, int ranks, int rank);

/// Returns how many elements each of `ranks` owns of a part, by rank: what owned_slices() adds up to, for all at once.
std::vector<std::int64_t> owned_elements(const ParameterTable& table, Part part, int ranks);

/// Returns where a rank's slice of each bucket's part begins in a buffer of its slices alone, padding included, and
/// behind the last bucket how many elements that buffer has: [buckets + 1].
std::vector<std::int64_t> shard_offsets(const ParameterTable& table, Part part, int ranks, int rank);

}  // namespace ringtrain
