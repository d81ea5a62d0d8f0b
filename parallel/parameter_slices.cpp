#include "parallel/parameter_slices.h"

#include <algorithm>

#include "parallel/collectives.h"

namespace ringtrain {

std::vector<ParameterSlice> owned_slices(const ParameterTable& table, Part part, int ranks, int rank) {
  std::vector<ParameterSlice> slices;
  std::int64_t offset_of_state = 0;
  for (std::size_t id = 0; id < table.all().size(); ++id) {
    const Parameter& parameter = table.all()[id];
    if (parameter.part != part) continue;
    const std::int64_t start = table.bucket_begin(parameter.bucket, part), count = parameter.shape.numel();
    const Slice owned = slice_of(table.bucket_size(parameter.bucket, part), ranks, rank);
    const std::int64_t begin = std::max<std::int64_t>(0, start + owned.begin - parameter.offset);
    const std::int64_t end = std::min(count, start + owned.end - parameter.offset);
    if (begin >= end) continue;
    slices.push_back({static_cast<int>(id), begin, end, offset_of_state});
    offset_of_state += end - begin;
  }
  return slices;
}

std::vector<std::int64_t> owned_elements(const ParameterTable& table, Part part, int ranks) {
  std::vector<std::int64_t> elements(ranks, 0);
  int bucket = -1, rank = 0;
  for (const Parameter& parameter : table.all()) {
    if (parameter.part != part) continue;
    // Both parameters and slices are ascending: the last rank of one parameter may be the first of the next.
    if (parameter.bucket != bucket) rank = 0;
    bucket = parameter.bucket;
    const std::int64_t size = table.bucket_size(bucket, part);
    const std::int64_t begin = parameter.offset - table.bucket_begin(bucket, part);
    const std::int64_t end = begin + parameter.shape.numel();
    for (Slice owned = slice_of(size, ranks, rank);; owned = slice_of(size, ranks, ++rank)) {
      elements[rank] += std::max<std::int64_t>(0, std::min(end, owned.end) - std::max(begin, owned.begin));
      if (owned.end >= end || rank + 1 == ranks) break;
    }
  }
  return elements;
}

std::vector<std::int64_t> shard_offsets(const ParameterTable& table, Part part, int ranks, int rank) {
  std::vector<std::int64_t> offsets{0};
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    offsets.push_back(offsets.back() + slice_of(table.bucket_size(bucket, part), ranks, rank).count());
  }
  return offsets;
}

}  // namespace ringtrain
