#include "parallel/store_context.h"

namespace ringtrain {

StoreContext::StoreContext(const ParameterTable& parameters, Stream& rank_stream, const StoreOptions& given,
                           const Communicator* world)
    : table(parameters), stream(rank_stream), options(given) {
  if (options.rank < 0 || options.rank >= options.ranks) {
    fail(ExitCode::usage, "ParameterStore: StoreOptions has rank {} of {} ranks, but ranks count from 0", options.rank,
         options.ranks);
  }
  if (world != nullptr && world->size() != options.ranks) {
    fail(ExitCode::usage, "ParameterStore: StoreOptions has {} ranks, but the communicator has {}", options.ranks,
         world->size());
  }
}

void StoreContext::check_bucket(const char* call, int bucket) const {
  if (bucket >= 0 && bucket < table.buckets()) return;
  fail(ExitCode::usage, "{}: no bucket {}; the model has {}, numbered from 0", call, bucket, table.buckets());
}

Communicator& StoreContext::ranks_for(const char* call) const {
  if (communicator != nullptr) return *communicator;
  fail(ExitCode::usage,
       "{}: the store of {} ranks has no communicator; give its constructor one (it is kept where weights are sharded "
       "or StoreOptions::gradients is set)",
       call, options.ranks);
}

std::size_t StoreContext::slot_of(int bucket) const {
  if (bucket == 0) return 0;
  if (bucket == table.buckets() - 1) return table.ends_together ? 3 : 0;
  return bucket % 2 == 0 ? 1 : 2;
}

}  // namespace ringtrain
