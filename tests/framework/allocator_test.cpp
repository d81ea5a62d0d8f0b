// Tags, peaks, plan mode, alignment, and refusals of the tagged allocator.
#include "framework/allocator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "tests/support/error_of.h"

#if defined(RINGTRAIN_SANITIZED)
// The sanitizers end the process at a request for which malloc returns null; this test needs that null.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}  // NOLINT
extern "C" const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}  // NOLINT
#endif

namespace ringtrain {
namespace {

TEST(Allocator, CountsByTagAndKeepsThePeaks) {
  Allocator allocator(Device::cpu());
  Tensor weights = allocator.make(Tag::weights, "w", DType::float64, {100});  // 800 bytes: 832 in units of 64
  {
    Tensor workspace = allocator.make(Tag::workspace, "scratch", DType::uint8, {1});
    EXPECT_EQ(allocator.current()[Tag::workspace], 64u);
    EXPECT_EQ(allocator.current().total, 896u);
  }
  EXPECT_EQ(allocator.current()[Tag::workspace], 0u);
  Tensor ring = allocator.make(Tag::ring, "kv", DType::float32, {2, 8});
  EXPECT_EQ(allocator.current()[Tag::weights], 832u);
  EXPECT_EQ(allocator.current()[Tag::ring], 64u);
  EXPECT_EQ(allocator.current().total, 896u);
  EXPECT_EQ(allocator.peak()[Tag::workspace], 64u);
  EXPECT_EQ(allocator.peak().total, 896u);  // of the sum, not the sum of the peaks (960)
  EXPECT_EQ(allocator.allocation_count(), 3);
}

TEST(Allocator, ListsWhatIsLiveInItsOrder) {
  Allocator allocator(Device::cpu());
  Tensor a = allocator.make(Tag::weights, "a", DType::float32, {16});
  std::optional<Tensor> b = allocator.make(Tag::ring, "b", DType::float64, {2, 4});
  Tensor c = allocator.make(Tag::workspace, "c", DType::uint8, {65});
  b.reset();
  const auto live = allocator.live();
  ASSERT_EQ(live.size(), 2u);
  EXPECT_EQ(live[0].name, "a");
  EXPECT_EQ(live[0].bytes, 64u);
  EXPECT_EQ(live[1].name, "c");
  EXPECT_EQ(live[1].tag, Tag::workspace);
  EXPECT_EQ(live[1].dtype, DType::uint8);
  EXPECT_EQ(live[1].shape, (Shape{65}));
  EXPECT_EQ(live[1].bytes, 128u);
  // Tensors may be returned in any order, and their entries reused.
  a = Tensor();
  c = Tensor();
  Tensor d = allocator.make(Tag::ring, "d", DType::int64, {1});
  ASSERT_EQ(allocator.live().size(), 1u);
  EXPECT_EQ(allocator.live()[0].name, "d");
  EXPECT_EQ(allocator.current().total, 64u);
}

TEST(Allocator, MemoryIsAlignedAndApart) {
  Allocator allocator(Device::cpu());
  std::vector<Tensor> tensors;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(allocator.make(Tag::activations, "t", DType::uint8, {i * 13}));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensors.back().view().data) % 64, 0u);
    std::memset(tensors.back().view().data, i, tensors.back().view().bytes());
  }
  for (int i = 0; i < 20; ++i) {
    for (int j = 0; j < i * 13; ++j) ASSERT_EQ(tensors[i].as<std::uint8_t>()[j], i);
  }
}

TEST(Allocator, APlanHasTheRunsNumbersAndNoMemory) {
  Allocator plan(Device::cpu(), Allocator::Mode::plan), run(Device::cpu());
  EXPECT_TRUE(plan.planning());
  EXPECT_FALSE(run.planning());
  for (Allocator* allocator : {&plan, &run}) {
    Tensor a = allocator->make(Tag::weights, "a", DType::float32, {1000, 7});
    EXPECT_EQ(a.view().data == nullptr, allocator->planning());
    Tensor b = allocator->make(Tag::gradients, "b", DType::float64, {3});
    a = Tensor();
    Tensor c = allocator->make(Tag::activations, "c", DType::int32, {50, 50});
  }
  for (int tag = 0; tag < tag_count; ++tag) {
    EXPECT_EQ(plan.peak()[static_cast<Tag>(tag)], run.peak()[static_cast<Tag>(tag)]);
  }
  EXPECT_EQ(plan.peak().total, run.peak().total);
  EXPECT_EQ(plan.allocation_count(), run.allocation_count());
  // A petabyte can be planned.
  Tensor huge = plan.make(Tag::activations, "huge", DType::uint8, {std::int64_t{1} << 50});
  EXPECT_EQ(plan.peak()[Tag::activations], std::size_t{1} << 50);
}

TEST(Allocator, WhatCannotBeHadIsRefusedWithItsNumbers) {
  Allocator allocator(Device::cpu());
  Tensor first = allocator.make(Tag::weights, "w", DType::uint8, {64});
  // 2^52 bytes: more than the addresses of a process.
  EXPECT_EQ(testing::error_of(
                ExitCode::usage,
                [&] { allocator.make(Tag::activations, "layer inputs", DType::float64, {std::int64_t{1} << 49}); }),
            "cannot allocate 4503599627370496 bytes for activations layer inputs [562949953421312] (this rank already "
            "holds 64 bytes); use more sequence ranks, a smaller training.seq_len or another training.recompute");
  EXPECT_EQ(allocator.current().total, 64u);
  EXPECT_EQ(allocator.allocation_count(), 1);
}

TEST(Allocator, APlanDoesNotWrapAround) {
  Allocator plan(Device::cpu(), Allocator::Mode::plan);
  EXPECT_THROW(plan.make(Tag::ring, "a", DType::float64, {std::int64_t{1} << 61}), Error);  // 2^64 bytes
  EXPECT_THROW(plan.make(Tag::ring, "a", DType::float64, {std::int64_t{1} << 32, std::int64_t{1} << 32}), Error);
  std::vector<Tensor> tensors;
  EXPECT_THROW(
      {
        for (int i = 0; i < 8; ++i) {
          tensors.push_back(plan.make(Tag::ring, "a", DType::uint8, {std::int64_t{1} << 60}));
        }
      },
      Error);
  EXPECT_EQ(tensors.size(), 3u);  // 3 * 2^60 fit below 2^62
}

TEST(Allocator, MemoryIsNotResidentUntilWritten) {
  const auto resident = [] {
    long total = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> total >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  constexpr std::int64_t size = 256 << 20;
  Allocator allocator(Device::cpu());
  const long before = resident();
  Tensor tensor = allocator.make(Tag::activations, "a", DType::uint8, {size});
  EXPECT_LT(resident() - before, size / 4);  // sanitizers keep a shadow of an eighth
  std::memset(tensor.view().data, 1, static_cast<std::size_t>(size));
  EXPECT_GT(resident() - before, size * 9 / 10);
}

TEST(AllocatorDeathTest, ATensorThatOutlivesItEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Tensor tensor;
        Allocator allocator(Device::cpu());
        tensor = allocator.make(Tag::ring, "late", DType::uint8, {1});
      },
      "the tensor ring late uint8 \\[1\\] outlives its Allocator; declare the Allocator before");
}

}  // namespace
}  // namespace ringtrain
