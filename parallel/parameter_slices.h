// The elements of each parameter that a rank owns: it sums their gradients, holds their optimizer state, and stores
// them in its file of a checkpoint. Each part of each bucket is divided as evenly as possible over all ranks
// (slice_of). Pure: every rank can compute every other's slices.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/parameter_table.h"

namespace ringtrain {

/// Elements [begin, end) of a parameter, and the offset of their state in the owner's buffers (without padding).
struct ParameterSlice {
  int parameter = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t offset = 0;
  std::int64_t count() const { return end - begin; }
};

/// Returns the slices of a part that `rank` of `ranks` owns, in the order of the table; nobody owns padding. The slices
/// of all ranks together contain each element once.
std::vector<ParameterSlice> owned_slices(const ParameterTable& table, Part part, int ranks, int rank);

/// Returns how many elements of a part each of `ranks` owns, by rank: the sizes of owned_slices(), for all ranks at
/// once.
std::vector<std::int64_t> owned_elements(const ParameterTable& table, Part part, int ranks);

/// Returns the offset of a rank's slice of each bucket's part in a buffer of only its slices, padding included, and
/// after the last bucket the number of elements of that buffer: [buckets + 1].
std::vector<std::int64_t> shard_offsets(const ParameterTable& table, Part part, int ranks, int rank);

}  // namespace ringtrain
