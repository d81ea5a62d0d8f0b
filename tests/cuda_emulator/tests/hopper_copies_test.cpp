// mbarriers and TMA: phases, boxes, swizzles compared with their formula, and what happens without a wait.
#include <cuda.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "support.h"

namespace {

using cuda_emulator::CopyLanding;
using cuda_emulator::ThreadOrder;

class MbarrierTest : public EmulatorTest {};

// --- mbarriers -----------------------------------------------------------------------------------------------------

// Warp 0 passes two slots in turn to warp 1, `rounds` times: full[s] ends with one arrival, empty[s] with 32.
__global__ void hand_over(int* to, int rounds) {
  __shared__ std::uint64_t full[2], empty[2];
  __shared__ int slot[2];
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) {
      cuda_emulator::mbarrier_init(&full[s], 1);
      cuda_emulator::mbarrier_init(&empty[s], 32);
    }
    cuda_emulator::fence_mbarrier_init();
  }
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    const int s = round % 2;
    const auto parity = static_cast<std::uint32_t>(round / 2 % 2);
    if (threadIdx.x == 0) {
      cuda_emulator::mbarrier_wait(&empty[s], parity ^ 1u);
      slot[s] = 10 * round;
      cuda_emulator::mbarrier_arrive(&full[s]);
    } else if (threadIdx.x >= 32) {
      cuda_emulator::mbarrier_wait(&full[s], parity);
      atomicAdd(&to[round], slot[s]);
      cuda_emulator::mbarrier_arrive(&empty[s]);
    }
  }
}

TEST_F(MbarrierTest, HandSlotsBackAndForthInEveryOrder) {
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::backward, ThreadOrder::shuffled}) {
    cuda_emulator::set_thread_order(order, 6);
    const DeviceArray<int> sums(std::vector<int>(7, 0));
    ASSERT_OK(run(hand_over, 1, 64, 0, sums.data(), 7));
    for (int round = 0; round < 7; ++round) EXPECT_EQ(sums.values()[static_cast<std::size_t>(round)], 320 * round);
  }
}

enum class Misuse { none, no_init, too_many_arrivals, overwritten, never_ends };

__global__ void misuse_mbarrier(Misuse misuse) {
  __shared__ std::uint64_t barrier;
  if (threadIdx.x == 0 && misuse != Misuse::no_init) cuda_emulator::mbarrier_init(&barrier, 2);
  __syncthreads();
  if (misuse == Misuse::overwritten) barrier = 0;
  if (misuse == Misuse::too_many_arrivals) {
    cuda_emulator::mbarrier_arrive_expect_tx(&barrier, 64);
    return;
  }
  if (misuse != Misuse::never_ends || threadIdx.x == 0) cuda_emulator::mbarrier_arrive(&barrier);
  cuda_emulator::mbarrier_wait(&barrier, 0);
}

TEST_F(MbarrierTest, MisusesAreReported) {
  const auto message = [](Misuse misuse, unsigned threads) {
    return error_of([=] { run(misuse_mbarrier, 1, threads, 0, misuse); });
  };
  EXPECT_EQ(message(Misuse::none, 2), "");
  EXPECT_TRUE(contains(message(Misuse::no_init, 2), "is no mbarrier that this block has initialized"));
  EXPECT_TRUE(contains(message(Misuse::overwritten, 2), "was overwritten"));
  EXPECT_TRUE(contains(message(Misuse::too_many_arrivals, 3), "one more than the 2 arrivals"));
  const std::string deadlock = message(Misuse::never_ends, 2);
  EXPECT_TRUE(contains(deadlock, "2 threads (first 0, last 1) wait at mbarrier_wait")) << deadlock;
  EXPECT_TRUE(contains(deadlock, "phase 0 (parity 0) of a barrier lacks 1 of 2 arrivals and 0 bytes")) << deadlock;
}

// --- Tensor maps ---------------------------------------------------------------------------------------------------

// Arguments of cuTensorMapEncodeTiled, for a tensor of floats [sizes, last first].
struct MapOf {
  explicit MapOf(const DeviceArray<float>& x, CUtensorMapSwizzle how = CU_TENSOR_MAP_SWIZZLE_NONE)
      : address(x.data()), swizzle(how) {}

  cuuint32_t rank = 4;
  void* address;
  cuuint64_t sizes[5] = {32, 10, 1, 1, 1};
  cuuint64_t strides[4] = {128, 1280, 1280, 1280};
  cuuint32_t box[5] = {32, 8, 1, 1, 1};
  cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  CUtensorMapSwizzle swizzle;

  CUresult encode(CUtensorMap* map) const {
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, address, sizes, strides, box, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  CUtensorMap made() const {
    CUtensorMap map;
    EXPECT_EQ(encode(&map), CUDA_SUCCESS);
    return map;
  }
};

class TmaTest : public EmulatorTest {};

TEST_F(TmaTest, TensorMapsAreCheckedAsDocumented) {
  const DeviceArray<float> x(320);
  CUtensorMap map;
  const auto with = [&](auto change) {
    MapOf arguments(x);
    change(arguments);
    return arguments.encode(&map);
  };
  EXPECT_EQ(with([](MapOf&) {}), CUDA_SUCCESS);
  EXPECT_EQ(with([](MapOf& m) { m.address = static_cast<float*>(m.address) + 1; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.rank = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.rank = 6; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.sizes[1] = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.sizes[1] = (cuuint64_t{1} << 32) + 1; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.strides[0] = 136; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.strides[0] = cuuint64_t{1} << 40; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.box[1] = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.box[1] = 257; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.box[0] = 6; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.steps[1] = 9; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.steps[1] = 2; }), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(with([](MapOf& m) { m.swizzle = CU_TENSOR_MAP_SWIZZLE_128B, m.box[0] = 64; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](MapOf& m) { m.swizzle = CU_TENSOR_MAP_SWIZZLE_128B, m.box[0] = 16; }), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(with([](MapOf& m) { m.swizzle = CU_TENSOR_MAP_SWIZZLE_128B; }), CUDA_SUCCESS);

  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  EXPECT_OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
  EXPECT_EQ(result, cudaDriverEntryPointSuccess);
  EXPECT_EQ(found, reinterpret_cast<void*>(&cuTensorMapEncodeTiled));
  EXPECT_OK(cudaGetDriverEntryPointByVersion("cuNothing", &found, 12000, cudaEnableDefault, &result));
  EXPECT_EQ(result, cudaDriverEntryPointSymbolNotFound);
}

// --- Loads ---------------------------------------------------------------------------------------------------------

enum class Load { whole, no_wait, no_fence, misaligned, left_behind, too_few_bytes, too_many_bytes };

struct Corner {
  int c[4];
};

// Loads a box and returns its bytes in their order in shared memory.
__global__ void load_tile(const __grid_constant__ CUtensorMap map, Corner corner, int words, float* to, Load how) {
  __shared__ std::uint64_t barrier;
  auto* shared = static_cast<float*>(cuda_emulator::dynamic_shared_memory());
  if (threadIdx.x == 0) {
    cuda_emulator::tma_prefetch(&map);
    cuda_emulator::mbarrier_init(&barrier, 1);
    if (how != Load::no_fence) cuda_emulator::fence_mbarrier_init();
    const int announced = words * 4 + (how == Load::too_few_bytes ? -16 : how == Load::too_many_bytes ? 16 : 0);
    cuda_emulator::mbarrier_arrive_expect_tx(&barrier, static_cast<std::uint32_t>(announced));
    const int* c = corner.c;
    cuda_emulator::tma_load_4d(how == Load::misaligned ? shared + 16 : shared, &map, &barrier, c[0], c[1], c[2], c[3]);
  }
  __syncthreads();
  if (how != Load::no_wait && how != Load::left_behind) cuda_emulator::mbarrier_wait(&barrier, 0);
  for (int i = static_cast<int>(threadIdx.x); i < words; i += 32) to[i] = shared[i];
  __syncthreads();
  if (how == Load::no_wait) cuda_emulator::mbarrier_wait(&barrier, 0);
}

std::vector<float> loaded(const MapOf& map, Corner corner, Load how = Load::whole) {
  std::size_t words = 1;
  for (int i = 0; i < 4; ++i) words *= map.box[i];
  const DeviceArray<float> to(words);
  EXPECT_OK(run(load_tile, 1, 32, words * 4, map.made(), corner, static_cast<int>(words), to.data(), how));
  return to.values();
}

std::vector<float> counted(std::size_t n) {
  std::vector<float> x(n);
  std::iota(x.begin(), x.end(), 1.0f);
  return x;
}

// The documented pattern: the row permutes chunks of 16 bytes of a row of 128.
TEST_F(TmaTest, LoadsSwizzleByTheFormula) {
  const DeviceArray<float> x(counted(320));
  MapOf map(x, CU_TENSOR_MAP_SWIZZLE_128B);
  map.box[1] = 10;
  const auto tile = loaded(map, {{0, 0}});
  for (std::size_t row = 0; row < 10; ++row) {
    for (std::size_t column = 0; column < 32; ++column) {
      ASSERT_EQ(tile[row * 32 + (column / 4 ^ row % 8) * 4 + column % 4], static_cast<float>(row * 32 + column + 1))
          << row << ' ' << column;
    }
  }
}

TEST_F(TmaTest, WhatIsOutsideArrivesAsZero) {
  const DeviceArray<float> x(counted(320));
  MapOf map(x);
  map.box[0] = 8;
  map.box[1] = 4;
  for (const auto& [c0, c1] : {std::pair{-3, -2}, {28, 8}, {0, 9}, {40, 0}, {0, -4}}) {
    const auto tile = loaded(map, {{c0, c1}});
    for (int row = 0; row < 4; ++row) {
      for (int column = 0; column < 8; ++column) {
        const int r = c1 + row, c = c0 + column;
        const bool inside = r >= 0 && r < 10 && c >= 0 && c < 32;
        ASSERT_EQ(tile[static_cast<std::size_t>(row * 8 + column)], inside ? static_cast<float>(r * 32 + c + 1) : 0.0f);
      }
    }
  }
}

TEST_F(TmaTest, BoxesOfFourDimensions) {
  const DeviceArray<float> x(counted(2 * 4 * 5 * 8));
  MapOf map(x);
  const cuuint64_t sizes[] = {8, 5, 4, 2};
  const cuuint32_t box[] = {4, 3, 2, 2};
  cuuint64_t stride = 4;
  for (cuuint32_t i = 0; i < 4; ++i) {
    map.sizes[i] = sizes[i];
    map.box[i] = box[i];
    map.strides[i] = stride *= sizes[i];
  }
  const Corner corner{{4, 1, 2, 0}};
  const auto tile = loaded(map, corner);
  ASSERT_EQ(tile.size(), 48);
  for (std::size_t i = 0; i < 48; ++i) {
    std::size_t rest = i, index = 0, step = 1;
    for (cuuint32_t dim = 0; dim < 4; ++dim) {
      index += (static_cast<std::size_t>(corner.c[dim]) + rest % box[dim]) * step;
      rest /= box[dim];
      step *= sizes[dim];
    }
    ASSERT_EQ(tile[i], static_cast<float>(index + 1)) << i;
  }
}

TEST_F(TmaTest, LoadsLandWhenTheyAreWaitedForOrAtOnce) {
  const DeviceArray<float> x(counted(320));
  const MapOf map(x);
  EXPECT_EQ(loaded(map, {{0, 0}})[0], 1.0f);
  EXPECT_TRUE(std::isnan(loaded(map, {{0, 0}}, Load::no_wait)[0]));
  cuda_emulator::set_copy_landing(CopyLanding::early);
  EXPECT_EQ(loaded(map, {{0, 0}}, Load::no_wait)[0], 1.0f);
}

TEST_F(TmaTest, MisusesOfLoadsAreReported) {
  const DeviceArray<float> x(counted(320));
  MapOf map(x);
  const auto message = [&](Load how) { return error_of([&] { loaded(map, {{0, 0}}, how); }); };
  EXPECT_TRUE(contains(message(Load::no_fence), "without fence_mbarrier_init"));
  EXPECT_TRUE(contains(message(Load::misaligned), "aligned to 128 bytes"));
  EXPECT_TRUE(contains(message(Load::left_behind), "ends with 1 loads by TMA under way"));
  EXPECT_TRUE(contains(message(Load::too_few_bytes), "copies brought 16 bytes more"));
  EXPECT_TRUE(contains(message(Load::too_many_bytes), "lacks 0 of 1 arrivals and 16 bytes"));
  MapOf three = map;
  three.rank = 3;
  const DeviceArray<float> to(256);
  EXPECT_TRUE(
      contains(error_of([&] { run(load_tile, 1, 32, 1024, three.made(), Corner{}, 256, to.data(), Load::whole); }),
               "4 coordinates for a tensor map of rank 3"));
  map.sizes[1] = 11;
  EXPECT_TRUE(contains(message(Load::whole), "describes 1408 bytes"));
  EXPECT_TRUE(
      contains(error_of([&] { run(load_tile, 1, 32, 1024, CUtensorMap{}, Corner{}, 256, to.data(), Load::whole); }),
               "cuTensorMapEncodeTiled has not made"));
}

__global__ void wait_once() {
  __shared__ std::uint64_t barrier;
  cuda_emulator::mbarrier_init(&barrier, 1);
  cuda_emulator::mbarrier_arrive(&barrier);
  cuda_emulator::mbarrier_wait(&barrier, 0);
}

TEST_F(TmaTest, AnOlderDeviceHasNone) {
  EXPECT_OK(run(wait_once, 1, 1, 0));
  cuda_emulator::set_devices({.compute_capability = 80});
  EXPECT_TRUE(contains(error_of([] { run(wait_once, 1, 1, 0); }), "on a device of compute capability 80"));
  CUtensorMap map;
  const DeviceArray<float> x(320);
  EXPECT_EQ(MapOf(x).encode(&map), CUDA_ERROR_NOT_SUPPORTED);
}

// --- Stores --------------------------------------------------------------------------------------------------------

enum class Store { whole, overwritten_early, no_proxy_fence, others_fence, no_wait, seen_before_completion };

// Adds an 8 x 32 box, swizzled by 128 bytes: element (row, column) is 100 row + column + 1.
__global__ void store_tile(const __grid_constant__ CUtensorMap map, int c0, int c1, Store how, const float* x,
                           float* seen) {
  auto* shared = static_cast<float*>(cuda_emulator::dynamic_shared_memory());
  for (unsigned i = threadIdx.x; i < 256; i += 32) {
    const unsigned row = i / 32, column = i % 32;
    shared[row * 32 + ((column / 4) ^ (row % 8)) * 4 + column % 4] = static_cast<float>(100 * row + column + 1);
  }
  if (how != Store::no_proxy_fence && (how != Store::others_fence || threadIdx.x != 9)) {
    cuda_emulator::fence_proxy_async();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda_emulator::tma_reduce_add_4d(&map, shared, c0, c1, 0, 0);
    cuda_emulator::tma_store_commit();
    if (how == Store::overwritten_early) shared[0] = -1;
    if (how != Store::no_wait) cuda_emulator::tma_store_wait<0>();
    shared[0] = -2;
    if (how == Store::seen_before_completion) *seen = *x;
    if (how != Store::no_wait) cuda_emulator::tma_store_complete<0>();
    if (how == Store::whole) *seen = *x;
  }
}

TEST_F(TmaTest, ReductionsLeaveWhatIsOutside) {
  for (const auto& [c0, c1] : {std::pair{0, 0}, {-5, 4}, {8, -3}}) {
    const DeviceArray<float> x(counted(320)), seen(1);
    const MapOf map(x, CU_TENSOR_MAP_SWIZZLE_128B);
    ASSERT_OK(run(store_tile, 1, 32, 1024, map.made(), c0, c1, Store::whole, x.data(), seen.data()));
    auto expected = counted(320);
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 32; ++column) {
        const int r = c1 + row, c = c0 + column;
        if (r < 0 || r >= 10 || c < 0 || c >= 32) continue;
        expected[static_cast<std::size_t>(r) * 32 + static_cast<std::size_t>(c)] +=
            static_cast<float>(100 * row + column + 1);
      }
    }
    EXPECT_EQ(x.values(), expected);
    EXPECT_EQ(seen.values()[0], expected[0]);
  }
}

TEST_F(TmaTest, ReductionsReadAndWriteAsLateAsTheyMay) {
  const auto stored = [](Store how) {
    const DeviceArray<float> x(counted(320)), seen(1);
    const MapOf map(x, CU_TENSOR_MAP_SWIZZLE_128B);
    EXPECT_OK(run(store_tile, 1, 32, 1024, map.made(), 0, 0, how, x.data(), seen.data()));
    return std::pair{x.values()[0], seen.values()[0]};
  };
  EXPECT_EQ(stored(Store::overwritten_early).first, 0.0f);
  EXPECT_EQ(stored(Store::seen_before_completion), (std::pair{2.0f, 1.0f}));
  EXPECT_TRUE(contains(error_of([&] { stored(Store::no_proxy_fence); }), "no thread has called fence_proxy_async"));
  EXPECT_TRUE(contains(error_of([&] { stored(Store::no_wait); }), "ends before its bulk stores have read"));
  stored(Store::others_fence);
  cuda_emulator::set_proxy_checks(true);
  stored(Store::whole);
  EXPECT_TRUE(contains(error_of([&] { stored(Store::others_fence); }), "which thread 9 wrote"));
  cuda_emulator::set_proxy_checks(false);
  cuda_emulator::set_copy_landing(CopyLanding::early);
  EXPECT_EQ(stored(Store::overwritten_early).first, 2.0f);
  EXPECT_EQ(stored(Store::seen_before_completion), (std::pair{2.0f, 2.0f}));
}

// Two reductions in separate groups: when all but the newest group have read, the newest has not.
__global__ void add_two_boxes(const __grid_constant__ CUtensorMap map) {
  auto* shared = static_cast<float*>(cuda_emulator::dynamic_shared_memory());
  for (unsigned i = threadIdx.x; i < 64; i += 32) shared[i] = static_cast<float>(i);
  cuda_emulator::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int row = 0; row < 2; ++row) {
      cuda_emulator::tma_reduce_add_4d(&map, shared + row * 32, 0, row, 0, 0);
      cuda_emulator::tma_store_commit();
    }
    cuda_emulator::tma_store_wait<1>();
    shared[0] = 1000;
    shared[32] = 1000;
    cuda_emulator::tma_store_wait<0>();
  }
}

TEST_F(TmaTest, GroupsOfReductionsAreReadInTheirOrder) {
  const DeviceArray<float> x(std::vector<float>(320, 0.5f));
  MapOf map(x);
  map.box[1] = 1;
  ASSERT_OK(run(add_two_boxes, 1, 32, 256, map.made()));
  const auto values = x.values();
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], i == 32 ? 1000.5f : static_cast<float>(i) + 0.5f);
}

// --- Products and copies -------------------------------------------------------------------------------------------

// A load into memory from which a product reads a, before or after it was waited for.
__global__ void load_over_operand(const __grid_constant__ CUtensorMap map, bool waited) {
  __shared__ std::uint64_t barrier;
  auto* shared = static_cast<char*>(cuda_emulator::dynamic_shared_memory());
  if (threadIdx.x == 0) {
    cuda_emulator::mbarrier_init(&barrier, 1);
    cuda_emulator::fence_mbarrier_init();
    std::memset(shared, 0, 9 * 1024);
    cuda_emulator::fence_proxy_async();
  }
  __syncthreads();
  float d[4];
  if (threadIdx.x < 128) {
    cuda_emulator::wgmma_fence();
    cuda_emulator::wgmma_ss<8, false, false>(d, cuda_emulator::wgmma_descriptor(shared, 16, 1024, 1),
                                             cuda_emulator::wgmma_descriptor(shared + 8 * 1024, 16, 1024, 1), false);
    cuda_emulator::wgmma_commit();
    if (waited) cuda_emulator::wgmma_wait<0>();
  }
  __syncthreads();
  if (threadIdx.x == 128) {
    cuda_emulator::mbarrier_arrive_expect_tx(&barrier, 1024);
    cuda_emulator::tma_load_4d(shared + 7 * 1024, &map, &barrier, 0, 0, 0, 0);
    cuda_emulator::mbarrier_wait(&barrier, 0);
  }
  __syncthreads();
  if (threadIdx.x < 128 && !waited) cuda_emulator::wgmma_wait<0>();
}

TEST_F(TmaTest, LoadsWaitForTheProductsThatRead) {
  const DeviceArray<float> x(counted(320));
  const MapOf map(x, CU_TENSOR_MAP_SWIZZLE_128B);
  const auto message = [&](bool waited) {
    return error_of([&] { run(load_over_operand, 1, 160, 9 * 1024, map.made(), waited); });
  };
  EXPECT_EQ(message(true), "");
  EXPECT_TRUE(contains(message(false), "that a product under way reads"));
}

// --- Waiting by a counter ------------------------------------------------------------------------------------------

__global__ void take_turns(int* turn, int* to) {
  // By ticket, so that a block waits only for those that began before it.
  __shared__ int ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(&turn[1], 1);
  __syncthreads();
  if (threadIdx.x == 1) {
    while (cuda_emulator::load_acquire(turn) != 2 * ticket) {
    }
    to[ticket] = static_cast<int>(blockIdx.x);
    cuda_emulator::add_release(turn, 1);
  }
  if (threadIdx.x == 0) {
    while (cuda_emulator::load_acquire(turn) != 2 * ticket + 1) {
    }
    cuda_emulator::add_release(turn, 1);
  }
}

__global__ void wait_for_the_next_block(int* turn) {
  while (cuda_emulator::load_acquire(turn) <= static_cast<int>(blockIdx.x)) {
  }
}

TEST_F(MbarrierTest, SpinningThreadsLetOthersGoOn) {
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::backward, ThreadOrder::shuffled}) {
    cuda_emulator::set_thread_order(order, 6);
    const DeviceArray<int> turn(std::vector<int>{0, 0}), to(4);
    ASSERT_OK(run(take_turns, 4, 2, 0, turn.data(), to.data()));
    EXPECT_EQ(turn.values()[0], 8);
  }
  const DeviceArray<int> turn(std::vector<int>{0});
  const std::string message = error_of([&] { run(wait_for_the_next_block, 2, 1, 0, turn.data()); });
  EXPECT_TRUE(contains(message, "wait at a loop on load_acquire")) << message;
}

}  // namespace
