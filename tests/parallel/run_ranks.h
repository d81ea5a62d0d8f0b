// Runs one test body with both kinds of ranks. In parallel_tests, ranks are threads; in parallel_mpi_tests, which an
// MPI launcher starts, they are processes: each process runs every test, takes part in a world of the test's size if it
// belongs to it, and shares its results with the others.
#pragma once

#include <span>
#include <vector>

#include "parallel/collectives.h"
#include "parallel/launch/launch.h"

namespace ringtrain::testing {

/// The communicator of all processes; null if ranks are threads. Set by mpi_tests_main.cpp.
Communicator*& process_world();

/// Runs body as `options.ranks` ranks: threads, or the first processes of the world. A test that needs more processes
/// than there are fails.
void run_ranks(const LaunchOptions& options, const RankBody& body);

/// After run_ranks: replaces each NaN by the value that some rank has at its index. Does nothing for threads, which
/// share values.
void unite(std::span<double> values);
/// After run_ranks: sets rows[r] to rank r's value.
template <class T>
void share_rows(std::vector<std::vector<T>>& rows) {
  Communicator* const world = process_world();
  if (!world) return;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    auto size = static_cast<std::int64_t>(rows[row].size());
    broadcast(*world, host_view(&size, {1}), static_cast<int>(row), {"size of a row"});
    rows[row].resize(size);
    const TensorView bytes =
        host_view(reinterpret_cast<std::uint8_t*>(rows[row].data()), {size * static_cast<std::int64_t>(sizeof(T))});
    broadcast(*world, bytes, static_cast<int>(row), {"a row"});
  }
}

}  // namespace ringtrain::testing
