#include "tests/parallel/run_ranks.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ringtrain::testing {

Communicator*& process_world() {
  static Communicator* world = nullptr;
  return world;
}

void run_ranks(const LaunchOptions& options, const RankBody& body) {
  Communicator* const world = process_world();
  if (!world) return launch_threads(options, body);
  if (world->size() < options.ranks) {
    ADD_FAILURE() << "the test wants " << options.ranks << " processes, but there are " << world->size();
    return;
  }
  {
    const auto own = world->split(world->rank() < options.ranks ? 0 : 1);
    if (world->rank() < options.ranks) body(*own);
  }
  world->barrier({"the end of a test"});
}

void unite(std::span<double> values) {
  Communicator* const world = process_world();
  if (!world) return;
  std::vector<double> all(values.size() * static_cast<std::size_t>(world->size()));
  const auto n = static_cast<std::int64_t>(values.size());
  std::copy(values.begin(), values.end(), all.begin() + n * world->rank());
  for (int rank = 0; rank < world->size(); ++rank) {
    broadcast(*world, host_view(all.data() + n * rank, {n}), rank, {"what ranks found"});
  }
  for (std::size_t at = 0; at < all.size(); ++at) {
    double& value = values[at % values.size()];
    if (std::isnan(value)) value = all[at];
  }
}

}  // namespace ringtrain::testing
