// A step allocates nothing: this executable's malloc counts all blocks, and a run of more steps must not allocate more
// blocks of any size that could be a tensor. (For tensors of the Allocator, the trainer itself asserts that there are
// none.) Also checks that a program returns a buffer's memory.
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>

#include "tests/train/train_fixture.h"
#include "train/programs/program.h"

#if !defined(RINGTRAIN_SANITIZED) && defined(__GLIBC__)
#define RINGTRAIN_COUNTS_MALLOC 1
#include <malloc.h>

namespace {

constexpr std::size_t size_classes = 64;
std::array<std::atomic<std::int64_t>, size_classes> blocks;  // allocated, by the bits of their size

void* counted(void* block, std::size_t bytes) {
  blocks[std::bit_width(bytes)].fetch_add(1, std::memory_order_relaxed);
  return block;
}

}  // namespace

// The functions behind glibc's malloc; its free is not replaced.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(std::size_t bytes) {
  return counted(__libc_malloc(bytes), bytes);
}
void* calloc(std::size_t n, std::size_t each) {
  return counted(__libc_calloc(n, each), n * each);
}
void* realloc(void* old, std::size_t bytes) {
  return counted(__libc_realloc(old, bytes), bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  return counted(__libc_memalign(alignment, bytes), bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
}
#endif

namespace ringtrain::testing {
namespace {

class Heap : public TrainTest {
 protected:
  void SetUp() override {
#ifndef RINGTRAIN_COUNTS_MALLOC
    GTEST_SKIP() << "the C library's malloc cannot be counted here (sanitizers have their own)";
#endif
    TrainTest::SetUp();
  }
#ifdef RINGTRAIN_COUNTS_MALLOC
  using Counts = std::array<std::int64_t, size_classes>;
  static Counts counts() {
    Counts now;
    for (std::size_t i = 0; i < size_classes; ++i) now[i] = blocks[i].load();
    return now;
  }
  /// Returns the blocks that a run of this many steps allocates.
  Counts asked_for(Config config, std::int64_t steps) const {
    config.training.steps = steps;
    const Counts before = counts();
    run(config, fmt::format("{}-{}", before[8], steps));
    Counts after = counts();
    for (std::size_t i = 0; i < size_classes; ++i) after[i] -= before[i];
    return after;
  }
#endif
};

#ifdef RINGTRAIN_COUNTS_MALLOC
TEST_F(Heap, CountsWhatIsAskedFor) {
  const Counts before = counts();
  const std::vector<double> numbers(1000);
  void* const aligned = std::aligned_alloc(64, 1 << 16);
  std::free(aligned);
  const Counts after = counts();
  EXPECT_GE(after[13], before[13] + 1);  // 8000 bytes
  EXPECT_GE(after[17], before[17] + 1);  // 65536 bytes
  EXPECT_EQ(numbers.size(), 1000u);
}

TEST_F(Heap, AProgramGivesBackWhatABufferHeld) {
  const int code = run_program("heap", [] {
    void* volatile buffer = std::malloc(8 << 20);
    std::free(buffer);  // from here on, glibc by itself would keep everything smaller
    const std::size_t before = ::mallinfo2().hblks;
    buffer = std::malloc(1 << 20);
    EXPECT_EQ(::mallinfo2().hblks, before + 1) << "blocks that the system lends";
    std::free(buffer);
    EXPECT_EQ(::mallinfo2().hblks, before);
    return 0;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Heap, StepsAskForNoLargeBlock) {
  constexpr std::size_t first_large = 13;  // 4 KiB and more; a tensor of this run has at least 32 KiB
  constexpr int more_steps = 4;            // the second to the fifth
  const std::string data = write_tokens("text.h5", {.documents = 40, .shortest = 500, .longest = 3000});
  for (const std::string recompute : {"none", "keep_attention", "full"}) {
    for (const int sequence : {1, 4}) {
      // 8,192 tokens, so that a block that grows with tokens, tiles, or documents is large; a short window, to be fast.
      const Config config =
          tiny(data, {"training.seq_len=8192", "training.global_batch_size=2", "training.recompute=" + recompute,
                      "model.sliding_window=16", "training.feedforward_chunk=512", "training.loss_chunk=512",
                      "mesh.threads_per_rank=2", "optimizer.lr=1.0e-3", "training.audit.interval=1",
                      fmt::format("mesh.sequence={}", sequence)});
      asked_for(config, 1);  // blocks that are allocated once per process
      const Counts one = asked_for(config, 1), many = asked_for(config, 1 + more_steps);
      std::int64_t small = 0;
      for (std::size_t i = 0; i < size_classes; ++i) {
        if (i >= first_large) {
          EXPECT_EQ(many[i], one[i]) << "blocks of " << (std::size_t{1} << (i - 1)) << " bytes and more, recompute "
                                     << recompute << ", ring of " << sequence;
        } else {
          small += many[i] - one[i];
        }
      }
      RecordProperty(fmt::format("small_blocks_a_step_{}_{}", recompute, sequence), std::to_string(small / more_steps));
      std::printf("ring of %d, %s: %lld blocks below 4 KiB a step of all ranks\n", sequence, recompute.c_str(),
                  static_cast<long long>(small / more_steps));
    }
  }
}
#endif

}  // namespace
}  // namespace ringtrain::testing
