// The warp's collectives, ldmatrix, mma, and cp.async compared with plain code.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "support.h"

namespace {

using cuda_emulator::CopyLanding;
using cuda_emulator::ThreadOrder;

class WarpTest : public EmulatorTest {};
class Copies : public EmulatorTest {};
class Numbers : public EmulatorTest {};

// --- Collectives ---------------------------------------------------------------------------------------------------

__global__ void shuffles(int* to) {
  const int lane = static_cast<int>(threadIdx.x), value = 100 + lane;
  int* mine = to + lane * 6;
  mine[0] = __shfl_sync(0xffffffffu, value, 5);
  mine[1] = __shfl_sync(0xffffffffu, value, 5, 8);
  mine[2] = __shfl_xor_sync(0xffffffffu, value, 3);
  mine[3] = __shfl_up_sync(0xffffffffu, value, 1);
  mine[4] = __shfl_up_sync(0xffffffffu, value, 2, 4);
  mine[5] = __shfl_xor_sync(0xffffffffu, value, 16, 16);
}

TEST_F(WarpTest, ShufflesReadTheLaneThatCudaSays) {
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::backward, ThreadOrder::shuffled}) {
    cuda_emulator::set_thread_order(order, 2);
    const DeviceArray<int> out(32 * 6);
    ASSERT_OK(run(shuffles, 1, 32, 0, out.data()));
    const auto values = out.values();
    for (int lane = 0; lane < 32; ++lane) {
      const int* mine = &values[static_cast<std::size_t>(lane * 6)];
      EXPECT_EQ(mine[0], 105);
      EXPECT_EQ(mine[1], 100 + lane / 8 * 8 + 5);
      EXPECT_EQ(mine[2], 100 + (lane ^ 3));
      EXPECT_EQ(mine[3], 100 + (lane > 0 ? lane - 1 : 0));
      EXPECT_EQ(mine[4], 100 + (lane % 4 >= 2 ? lane - 2 : lane));
      EXPECT_EQ(mine[5], 100 + (lane >= 16 ? lane - 16 : lane));  // a later segment is not read, an earlier one is
    }
  }
}

__global__ void wide_shuffles(double* doubles, float* floats, long long* longs) {
  const unsigned lane = threadIdx.x;
  doubles[lane] = __shfl_xor_sync(0xffffffffu, 0.1 * lane, 1);
  floats[lane] = __bfloat162float(__shfl_xor_sync(0xffffffffu, __float2bfloat16_rn(static_cast<float>(lane)), 1));
  longs[lane] = __shfl_sync(0xffffffffu, static_cast<long long>(lane) << 40, 31);
}

TEST_F(WarpTest, ShufflesOfEightAndTwoBytes) {
  const DeviceArray<double> doubles(32);
  const DeviceArray<float> floats(32);
  const DeviceArray<long long> longs(32);
  ASSERT_OK(run(wide_shuffles, 1, 32, 0, doubles.data(), floats.data(), longs.data()));
  for (std::size_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(doubles.values()[lane], 0.1 * static_cast<unsigned>(lane ^ 1));
    EXPECT_EQ(floats.values()[lane], static_cast<float>(lane ^ 1));
    EXPECT_EQ(longs.values()[lane], 31ll << 40);
  }
}

__global__ void votes(unsigned* to) {
  const unsigned lane = threadIdx.x;
  unsigned* mine = to + lane * 3;
  mine[0] = __ballot_sync(0xffffffffu, lane % 3 == 0);
  mine[1] = static_cast<unsigned>(__any_sync(0xffffffffu, lane == 9));
  mine[2] = lane < 8 ? __ballot_sync(0xffu, lane & 1u) : __ballot_sync(0xffffff00u, lane & 1u);
}

TEST_F(WarpTest, VotesAndPartsOfAWarp) {
  cuda_emulator::set_thread_order(ThreadOrder::shuffled, 8);
  const DeviceArray<unsigned> out(32 * 3);
  ASSERT_OK(run(votes, 1, 32, 0, out.data()));
  const auto values = out.values();
  for (std::size_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(values[lane * 3], 0x49249249u);
    EXPECT_EQ(values[lane * 3 + 1], 1u);
    EXPECT_EQ(values[lane * 3 + 2], lane < 8 ? 0xaau : 0xaaaaaa00u);
  }
}

__global__ void exchange_through_shared(int* to, bool wait) {
  __shared__ int slot[32];
  slot[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (wait) __syncwarp();
  to[threadIdx.x] = slot[31 - threadIdx.x];
}

TEST_F(WarpTest, AMissingSyncwarpShows) {
  std::vector<int> reversed(32);
  for (int i = 0; i < 32; ++i) reversed[static_cast<std::size_t>(i)] = 31 - i;
  const DeviceArray<int> with(32), without(32);
  ASSERT_OK(run(exchange_through_shared, 1, 32, 0, without.data(), false));
  EXPECT_NE(without.values(), reversed);
  ASSERT_OK(run(exchange_through_shared, 1, 32, 0, with.data(), true));
  EXPECT_EQ(with.values(), reversed);
}

__global__ void lane_missing_in_its_mask() {
  __syncwarp(0xfffffffeu);
}
__global__ void different_operations() {
  if (threadIdx.x < 16) {
    __syncwarp();
  } else {
    __ballot_sync(0xffffffffu, 1);
  }
}
__global__ void reads_a_lane_outside() {
  if (threadIdx.x < 16) __shfl_sync(0xffffu, 1, 20);
}
__global__ void lanes_that_never_come() {
  if (threadIdx.x == 3) __syncthreads();
  __syncwarp();
}
__global__ void shuffle_in_part_of_a_warp(int* to) {
  *to = __shfl_xor_sync(0xffffffffu, 1, 8);
}

TEST_F(WarpTest, MisusesAreReported) {
  EXPECT_TRUE(contains(error_of([] { run(lane_missing_in_its_mask, 1, 32, 0); }), "lacks the calling lane 0"));
  EXPECT_TRUE(contains(error_of([] { run(different_operations, 1, 32, 0); }), "a vote of lane 16 meets __syncwarp"));
  EXPECT_TRUE(contains(error_of([] { run(reads_a_lane_outside, 1, 32, 0); }), "lane 0 reads from lane 20"));
  const std::string deadlock = error_of([] { run(lanes_that_never_come, 1, 32, 0); });
  EXPECT_TRUE(contains(deadlock, "31 threads (first 0, last 31) wait at __syncwarp")) << deadlock;
  EXPECT_TRUE(contains(deadlock, "lanes 0x00000008 have not come")) << deadlock;
  const DeviceArray<int> out(1);
  EXPECT_TRUE(contains(error_of([&] { run(shuffle_in_part_of_a_warp, 1, 12, 0, out.data()); }), "takes no part"));
}

// --- ldmatrix and mma ----------------------------------------------------------------------------------------------

template <bool Transposed>
__global__ void load(std::uint32_t* to) {
  // Element (r, c) of matrix m is 256 m + 16 r + c.
  auto* shared = static_cast<std::uint16_t*>(cuda_emulator::dynamic_shared_memory());
  for (unsigned i = threadIdx.x; i < 256; i += 32) {
    shared[i] = static_cast<std::uint16_t>(i / 64 * 256 + i / 8 % 8 * 16 + i % 8);
  }
  __syncwarp();
  std::uint32_t r[4];
  const void* row = shared + threadIdx.x * 8;
  if constexpr (Transposed) cuda_emulator::ldmatrix_x4_trans(r, row);
  if constexpr (!Transposed) cuda_emulator::ldmatrix_x4(r, row);
  for (unsigned m = 0; m < 4; ++m) to[m * 32 + threadIdx.x] = r[m];
}

template <bool Transposed>
void check_load() {
  const DeviceArray<std::uint32_t> out(32 * 4);
  ASSERT_OK(run(load<Transposed>, 1, 32, 512, out.data()));
  const auto values = out.values();
  for (unsigned m = 0; m < 4; ++m) {
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned r = lane / 4, c = lane % 4 * 2;
      const unsigned low = m * 256 + (Transposed ? c * 16 + r : r * 16 + c);
      const unsigned high = m * 256 + (Transposed ? (c + 1) * 16 + r : r * 16 + c + 1);
      ASSERT_EQ(values[m * 32 + lane], low | high << 16) << m << ' ' << lane;
    }
  }
}

TEST_F(WarpTest, LdmatrixGivesEachLaneItsPairs) {
  check_load<false>();
  check_load<true>();
}

__global__ void misaligned_load() {
  std::uint32_t r[4];
  cuda_emulator::ldmatrix_x4(r, static_cast<char*>(cuda_emulator::dynamic_shared_memory()) + threadIdx.x * 8);
}

TEST_F(WarpTest, LdmatrixWantsRowsOf16AlignedBytes) {
  EXPECT_TRUE(contains(error_of([] { run(misaligned_load, 1, 32, 1024); }), "lane 1 is not aligned to 16 bytes"));
}

// c += a b of 16 x 8 x 16, with fragments built element by element from the PTX ISA's formulas for a_i, b_i, c_i.
__global__ void multiply_by_formula(const std::uint16_t* a, const std::uint16_t* b, float* c) {
  const unsigned group = threadIdx.x >> 2, in_group = threadIdx.x % 4;
  std::uint16_t ai[8], bi[4];
  float ci[4];
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
    const unsigned column = in_group * 2 + (i & 1u) + (i < 4 ? 0 : 8);
    ai[i] = a[row * 16 + column];
  }
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = in_group * 2 + (i & 1u) + (i < 2 ? 0 : 8);
    bi[i] = b[row * 8 + group];
  }
  const auto index = [&](unsigned i) { return (i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1u); };
  for (unsigned i = 0; i < 4; ++i) ci[i] = c[index(i)];
  std::uint32_t ar[4], br[2];
  std::memcpy(ar, ai, sizeof(ar));
  std::memcpy(br, bi, sizeof(br));
  cuda_emulator::mma_m16n8k16_bf16(ci, ar, br);
  for (unsigned i = 0; i < 4; ++i) c[index(i)] = ci[i];
}

// The same with fragments from ldmatrix: A row-major in shared memory, B transposed by x2_trans from k x n.
__global__ void multiply_by_ldmatrix(const std::uint16_t* a, const std::uint16_t* b, float* c) {
  auto* shared = static_cast<std::uint16_t*>(cuda_emulator::dynamic_shared_memory());
  std::uint16_t* shared_b = shared + 256;
  const unsigned lane = threadIdx.x;
  cuda_emulator::cp_async_16(shared + lane * 8, a + lane * 8, true);
  if (lane < 16) cuda_emulator::cp_async_16(shared_b + lane * 8, b + lane * 8, true);
  cuda_emulator::cp_async_commit();
  cuda_emulator::cp_async_wait<0>();
  __syncwarp();
  std::uint32_t ar[4], twice[4];
  cuda_emulator::ldmatrix_x4(ar, shared + (lane % 16) * 16 + lane / 16 * 8);
  cuda_emulator::ldmatrix_x4_trans(twice, shared_b + (lane % 16) * 8);
  const std::uint32_t br[2] = {twice[0], twice[1]};
  float ci[4];
  const auto index = [&](unsigned i) { return (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2; };
  for (unsigned i = 0; i < 4; ++i) ci[i] = c[index(i)];
  cuda_emulator::mma_m16n8k16_bf16(ci, ar, br);
  for (unsigned i = 0; i < 4; ++i) c[index(i)] = ci[i];
}

TEST_F(WarpTest, MmaIsTheMatrixProduct) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> small(-8, 8);  // so that every sum is exact
  std::vector<float> a(256), b(128), c(128);
  for (auto* matrix : {&a, &b, &c}) {
    for (float& x : *matrix) x = static_cast<float>(small(random));
  }
  std::vector<float> expected = c;
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      for (std::size_t k = 0; k < 16; ++k) expected[row * 8 + column] += a[row * 16 + k] * b[k * 8 + column];
    }
  }
  std::vector<std::uint16_t> a16(256), b16(128);
  std::transform(a.begin(), a.end(), a16.begin(), bits_of);
  std::transform(b.begin(), b.end(), b16.begin(), bits_of);
  const DeviceArray<std::uint16_t> device_a(a16), device_b(b16);
  const DeviceArray<float> by_formula(c), by_ldmatrix(c);
  ASSERT_OK(run(multiply_by_formula, 1, 32, 0, device_a.data(), device_b.data(), by_formula.data()));
  EXPECT_EQ(by_formula.values(), expected);
  ASSERT_OK(run(multiply_by_ldmatrix, 1, 32, 768, device_a.data(), device_b.data(), by_ldmatrix.data()));
  EXPECT_EQ(by_ldmatrix.values(), expected);
}

__global__ void mma_without_a_lane(float* out) {
  if (threadIdx.x == 4) return;
  float c[4] = {};
  std::uint32_t a[4] = {}, b[2] = {};
  cuda_emulator::mma_m16n8k16_bf16(c, a, b);
  *out = c[0];
}

TEST_F(WarpTest, MmaNeedsTheWholeWarp) {
  const DeviceArray<float> out(1);
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::backward}) {
    cuda_emulator::set_thread_order(order);
    const std::string message = error_of([&] { run(mma_without_a_lane, 1, 32, 0, out.data()); });
    EXPECT_TRUE(contains(message, "mma_m16n8k16_bf16 needs all 32 lanes")) << message;
  }
}

// --- cp.async ------------------------------------------------------------------------------------------------------

// Copies two groups and reads both slots after waiting for all but `outstanding` groups.
template <int Outstanding>
__global__ void copy_two_groups(const float4* from, float4* to, bool second_valid) {
  auto* shared = static_cast<float4*>(cuda_emulator::dynamic_shared_memory());
  cuda_emulator::cp_async_16(&shared[0], &from[0], true);
  cuda_emulator::cp_async_commit();
  cuda_emulator::cp_async_16(&shared[1], second_valid ? &from[1] : nullptr, second_valid);
  cuda_emulator::cp_async_commit();
  cuda_emulator::cp_async_wait<Outstanding>();
  to[0] = shared[0];
  to[1] = shared[1];
}

TEST_F(Copies, LandOnlyAtTheWaitForTheirGroup) {
  const DeviceArray<float4> from({{1, 2, 3, 4}, {5, 6, 7, 8}}), to(2);
  ASSERT_OK(run(copy_two_groups<0>, 1, 1, 32, from.data(), to.data(), true));
  EXPECT_EQ(to.values()[0].w, 4);
  EXPECT_EQ(to.values()[1].x, 5);
  ASSERT_OK(run(copy_two_groups<1>, 1, 1, 32, from.data(), to.data(), true));
  EXPECT_EQ(to.values()[0].w, 4);
  EXPECT_TRUE(std::isnan(to.values()[1].x));
  ASSERT_OK(run(copy_two_groups<2>, 1, 1, 32, from.data(), to.data(), true));
  EXPECT_TRUE(std::isnan(to.values()[0].w));
  cuda_emulator::set_copy_landing(CopyLanding::early);
  ASSERT_OK(run(copy_two_groups<2>, 1, 1, 32, from.data(), to.data(), true));
  EXPECT_EQ(to.values()[1].w, 8);
}

TEST_F(Copies, NotValidAreZerosAndReadNothing) {
  const DeviceArray<float4> from({{1, 2, 3, 4}, {5, 6, 7, 8}}), to(2);
  ASSERT_OK(run(copy_two_groups<0>, 1, 1, 32, from.data(), to.data(), false));
  EXPECT_EQ(to.values()[1].x, 0);
  EXPECT_EQ(to.values()[1].w, 0);
}

__global__ void misaligned_copy(const char* from) {
  cuda_emulator::cp_async_16(cuda_emulator::dynamic_shared_memory(), from + 8, true);
}

TEST_F(Copies, MustBeAligned) {
  const DeviceArray<char> from(64);
  EXPECT_TRUE(contains(error_of([&] { run(misaligned_copy, 1, 1, 32, from.data()); }), "aligned to 16 bytes"));
}

// --- Numbers -------------------------------------------------------------------------------------------------------

TEST_F(Numbers, Bfloat16RoundsToNearestEven) {
  EXPECT_EQ(bits_of(1.0f), 0x3f80);
  EXPECT_EQ(bits_of(__uint_as_float(0x3f808000u)), 0x3f80);  // halfway, to even: down
  EXPECT_EQ(bits_of(__uint_as_float(0x3f818000u)), 0x3f82);  // halfway, to even: up
  EXPECT_EQ(bits_of(__uint_as_float(0x3f808001u)), 0x3f81);
  EXPECT_EQ(bits_of(__uint_as_float(0x7f7fffffu)), 0x7f80);  // the largest float becomes infinity
  EXPECT_EQ(bits_of(std::numeric_limits<float>::quiet_NaN()), 0x7fff);
  EXPECT_EQ(bits_of(-0.0f), 0x8000);
  const __nv_bfloat162 pair = __floats2bfloat162_rn(1.5f, -2.0f);
  EXPECT_EQ(__bfloat162float(pair.x), 1.5f);
  EXPECT_EQ(__bfloat162float(pair.y), -2.0f);
  static_assert(sizeof(__nv_bfloat162) == 4 && sizeof(__nv_bfloat16) == 2);
  static_assert(alignof(__nv_bfloat162) == 4);
}

TEST_F(Numbers, Exp2FlushesDenormals) {
  EXPECT_EQ(cuda_emulator::exp2_approx(3.0f), 8.0f);
  EXPECT_EQ(cuda_emulator::exp2_approx(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(cuda_emulator::exp2_approx(-126.0f), 0x1p-126f);
  EXPECT_EQ(cuda_emulator::exp2_approx(-127.0f), 0.0f);
}

TEST_F(Numbers, AtomicsReturnTheOldValue) {
  int i = 5;
  EXPECT_EQ(atomicAdd(&i, 2), 5);
  EXPECT_EQ(i, 7);
  double d = 0.5;
  EXPECT_EQ(atomicAdd(&d, 0.25), 0.5);
  EXPECT_EQ(d, 0.75);
}

TEST_F(Numbers, IntegersAndBits) {
  EXPECT_EQ(__popc(0xf0f0u), 8);
  EXPECT_EQ(max(std::nanf(""), 1.0f), 1.0f);
  EXPECT_EQ(__fdividef(1.0f, 4.0f), 0.25f);
  EXPECT_FLOAT_EQ(__expf(1), std::exp(1.0f));
}

}  // namespace
