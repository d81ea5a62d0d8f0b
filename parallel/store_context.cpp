#include "parallel/store_context.h"

#include <algorithm>

namespace ringtrain {

StoreContext::StoreContext(const ParameterTable& parameters, Stream& rank_stream, const StoreOptions& given,
                           const Communicator* world)
    : table(parameters), stream(rank_stream), options(given) {
  if (options.rank < 0 || options.rank >= options.ranks) {
    fail(ExitCode::usage, "ParameterStore: StoreOptions has rank {} of {} ranks, but ranks count from 0", options.rank,
         options.ranks);
  }
  if (world != nullptr && world->size() != options.ranks) {
    fail(ExitCode::usage, "ParameterStore: StoreOptions has {} ranks, but the communicator {}", options.ranks,
         world->size());
  }
  if (options.ranks == 1) options.shard = Shard::optimizer;
  for (const Part part : both_parts) {
    offsets[index_of(part)] = shard_offsets(table, part, options.ranks, options.rank);
  }
}

void StoreContext::check_bucket(const char* call, int bucket) const {
  if (bucket >= 0 && bucket < table.buckets()) return;
  fail(ExitCode::usage, "{}: there is no bucket {}; the model has {}, from 0", call, bucket, table.buckets());
}

Communicator& StoreContext::ranks_for(const char* call) const {
  if (communicator != nullptr) return *communicator;
  fail(ExitCode::usage,
       "{}: the store of {} ranks has no communicator; give its constructor one (it is kept where weights are sharded "
       "or StoreOptions::gradients is set)",
       call, options.ranks);
}

TensorView StoreContext::own_part(const Tensor& shard, int bucket, Part part) const {
  const std::int64_t begin = offsets[index_of(part)][bucket];
  return shard.view().flat(begin, begin + owned(bucket, part).count());
}

std::int64_t StoreContext::begin_in_shard(const ParameterSlice& slice) const {
  const Parameter& parameter = table[slice.parameter];
  const int bucket = parameter.bucket;
  return offsets[index_of(parameter.part)][bucket] + (parameter.offset - table.bucket_begin(bucket, parameter.part)) +
         slice.begin - owned(bucket, parameter.part).begin;
}

std::size_t StoreContext::slot_of(int bucket) const {
  if (bucket == 0) return 0;
  if (bucket == table.buckets() - 1) return table.ends_together ? 3 : 0;
  return bucket % 2 == 0 ? 1 : 2;
}

std::vector<std::int64_t> StoreContext::slot_sizes(std::span<const Part> parts) const {
  std::vector<std::int64_t> sizes(table.ends_together ? 4 : 3, 0);
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    std::int64_t size = 0;
    for (const Part part : parts) size += table.bucket_size(bucket, part);
    sizes[slot_of(bucket)] = std::max(sizes[slot_of(bucket)], size);
  }
  return sizes;
}

}  // namespace ringtrain
