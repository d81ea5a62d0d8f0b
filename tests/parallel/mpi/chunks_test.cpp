// Messages larger than MPI can count in one call are cut into chunks. The limit is lowered, so small messages show it;
// the long test sends more than 32 bits can count.
#include <gtest/gtest.h>

#include "parallel/mpi/mpi_library.h"
#include "tests/parallel/run_ranks.h"
#include "tests/support/random_tensor.h"

namespace ringtrain::testing {
namespace {

constexpr CallSite site{"message in chunks"};

class ChunkLimit {
 public:
  explicit ChunkLimit(std::size_t bytes) { mpi::set_chunk_bytes(bytes); }
  ~ChunkLimit() { mpi::set_chunk_bytes(std::size_t{1} << 30); }
};

std::uint8_t content(int rank, std::size_t at) {
  return static_cast<std::uint8_t>(at * 131 + at / 997 + static_cast<std::size_t>(rank));
}

TEST(Chunks, MessagesAroundTheLimitArriveWhole) {
  const ChunkLimit limit(1000);
  run_ranks({.ranks = 2}, [](Communicator& world) {
    const int other = 1 - world.rank();
    std::vector<std::vector<std::uint8_t>> sent, received;
    for (const std::size_t size : {0, 1, 999, 1000, 1001, 2000, 123457}) {
      std::vector<std::uint8_t>& bytes = sent.emplace_back(size);
      for (std::size_t i = 0; i < size; ++i) bytes[i] = content(world.rank(), i);
      received.emplace_back(size);
    }
    std::vector<Request> requests;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      requests.push_back(world.exchange(view_of(sent[i]), other, view_of(received[i]), other, site));
    }
    for (const Request request : requests) world.wait(request);
    for (const auto& bytes : received) {
      for (std::size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], content(other, i)) << i << "/" << bytes.size();
    }
  });
}

TEST(LongChunks, AMessageBeyondTwoGibibytes) {
  constexpr std::size_t size = (std::size_t{1} << 31) + (std::size_t{1} << 28) + 12345;
  run_ranks({.ranks = 2}, [](Communicator& world) {
    std::vector<std::uint8_t> bytes(size);
    if (world.rank() == 0) {
      for (std::size_t i = 0; i < size; ++i) bytes[i] = content(0, i);
      world.wait(world.exchange(view_of(bytes), 1, {}, no_peer, site));
    } else {
      world.wait(world.exchange({}, no_peer, view_of(bytes), 0, site));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < size; ++i) wrong += bytes[i] != content(0, i);
      EXPECT_EQ(wrong, 0u);
    }
  });
}

}  // namespace
}  // namespace ringtrain::testing
