// wgmma compared with plain products: both orders of each operand, operands in registers; and what happens without its
// fences and waits.
#include <cmath>
#include <cstring>
#include <random>

#include "support.h"

namespace {

using cuda_emulator::ThreadOrder;

// An operand of `rows` rows (or columns) by `depth`, in shared memory with the swizzle of 128 bytes.
struct Operand {
  bool transposed;  // MN-major
  int rows, depth;

  std::uint32_t bytes() const { return static_cast<std::uint32_t>(rows * depth * 2); }
  std::uint32_t leading() const { return transposed ? static_cast<std::uint32_t>(128 * depth) : 16; }
  // Bytes from one step of 16 to the next.
  std::uint32_t step() const { return transposed ? 2 * stride : 32; }
  // Returns the position of element (row, k), in bytes, according to the picture of the layout: lines of 64 elements;
  // in each eight of them, the chunks of 16 bytes are permuted.
  std::size_t place(int row, int k) const {
    const int line = transposed ? k : row, position = transposed ? row % 64 : k % 64;
    const int block = transposed ? row / 64 : k / 64, moved = position / 8 ^ line % 8;
    return static_cast<std::size_t>(block) * leading() +
           static_cast<std::size_t>(line * 128 + moved * 16 + position % 8 * 2);
  }
  static constexpr std::uint32_t stride = 1024;
};

struct Problem {
  std::uint32_t a_at, a_leading, a_step, b_at, b_leading, b_step;
  int steps;
  bool accumulate;
};

template <int N>
__device__ void store_sums(const float (&d)[N / 2], float* to) {
  const int thread = static_cast<int>(threadIdx.x), row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  for (int j = 0; j < N / 8; ++j) {
    for (int i = 0; i < 4; ++i) to[(row + i / 2 * 8) * N + 8 * j + column + i % 2] = d[4 * j + i];
  }
}

__device__ char* fill_shared(const char* image, std::uint32_t bytes) {
  auto* shared = static_cast<char*>(cuda_emulator::dynamic_shared_memory());
  for (std::uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) shared[i] = image[i];
  cuda_emulator::fence_proxy_async();
  __syncthreads();
  return shared;
}

template <int N, bool TransposeA, bool TransposeB>
__global__ void multiply(const char* image, std::uint32_t bytes, Problem problem, float* to) {
  const char* shared = fill_shared(image, bytes);
  float d[N / 2];
  for (float& x : d) x = 100;
  cuda_emulator::wgmma_fence();
  for (int s = 0; s < problem.steps; ++s) {
    const auto step = static_cast<std::uint32_t>(s);
    const auto a = cuda_emulator::wgmma_descriptor(shared + problem.a_at + step * problem.a_step, problem.a_leading,
                                                   Operand::stride, 1);
    const auto b = cuda_emulator::wgmma_descriptor(shared + problem.b_at + step * problem.b_step, problem.b_leading,
                                                   Operand::stride, 1);
    cuda_emulator::wgmma_ss<N, TransposeA, TransposeB>(d, a, b, s > 0 || problem.accumulate);
  }
  cuda_emulator::wgmma_commit();
  cuda_emulator::wgmma_wait<0>();
  store_sums<N>(d, to);
}

class WgmmaTest : public EmulatorTest {
 protected:
  std::vector<float> random(std::size_t n) {
    std::vector<float> x(n);
    for (float& value : x) value = static_cast<float>(small_(random_));
    return x;
  }
  static void put(std::vector<char>& image, std::size_t at, const Operand& operand, const std::vector<float>& x) {
    for (int row = 0; row < operand.rows; ++row) {
      for (int k = 0; k < operand.depth; ++k) {
        const std::uint16_t bits = bits_of(x[static_cast<std::size_t>(row * operand.depth + k)]);
        std::memcpy(&image[at + operand.place(row, k)], &bits, 2);
      }
    }
  }
  static std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b, int n, int depth,
                                    float start) {
    std::vector<float> d(static_cast<std::size_t>(64 * n), start);
    for (int row = 0; row < 64; ++row) {
      for (int column = 0; column < n; ++column) {
        for (int k = 0; k < depth; ++k) {
          d[static_cast<std::size_t>(row * n + column)] +=
              a[static_cast<std::size_t>(row * depth + k)] * b[static_cast<std::size_t>(column * depth + k)];
        }
      }
    }
    return d;
  }

  // d of the kernel, and the expected one; a tile of b moved by `shift` bytes.
  template <int N, bool TransposeA, bool TransposeB>
  std::pair<std::vector<float>, std::vector<float>> multiplied(int depth, bool accumulate, std::uint32_t shift = 0) {
    const Operand a{TransposeA, 64, depth}, b{TransposeB, N, depth};
    const std::uint32_t b_at = (a.bytes() + 1023) / 1024 * 1024 + shift, bytes = b_at + b.bytes();
    const auto av = random(static_cast<std::size_t>(64 * depth)), bv = random(static_cast<std::size_t>(N * depth));
    std::vector<char> image(bytes);
    put(image, 0, a, av);
    put(image, b_at, b, bv);
    const DeviceArray<char> device(image);
    const DeviceArray<float> to(64 * N);
    EXPECT_OK(cudaFuncSetAttribute(multiply<N, TransposeA, TransposeB>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(bytes)));
    EXPECT_OK(run(multiply<N, TransposeA, TransposeB>, 1, 128, bytes, device.data(), bytes,
                  Problem{0, a.leading(), a.step(), b_at, b.leading(), b.step(), depth / 16, accumulate}, to.data()));
    return {to.values(), product(av, bv, N, depth, accumulate ? 100.0f : 0.0f)};
  }
  template <int N, bool TransposeA, bool TransposeB>
  void check(int depth, bool accumulate) {
    const auto [is, should] = multiplied<N, TransposeA, TransposeB>(depth, accumulate);
    EXPECT_EQ(is, should) << N << ' ' << TransposeA << TransposeB << ' ' << depth;
  }

  std::mt19937 random_{3};
  std::uniform_int_distribution<int> small_{-4, 4};  // so that every sum is exact
};

TEST_F(WgmmaTest, IsTheProductInEveryOrderOfTheOperands) {
  check<64, false, false>(64, false);  // a line along k is 64 elements
  check<64, true, false>(64, true);
  check<64, false, true>(64, true);
  for (const int depth : {32, 64}) check<128, true, true>(depth, false);
  check<8, false, false>(64, false);
  check<256, false, true>(64, false);
  cuda_emulator::set_thread_order(ThreadOrder::shuffled, 1);
  check<64, false, true>(64, true);
}

TEST_F(WgmmaTest, ATileOffThePatternGivesWrongNumbers) {
  const auto [right, expected] = multiplied<64, false, false>(64, false, 1024);
  EXPECT_EQ(right, expected);
  const auto [wrong, unmet] = multiplied<64, false, false>(64, false, 128);
  EXPECT_NE(wrong, unmet);
}

// a from registers, in the layout of four mma.m16n8k16.
__global__ void multiply_from_registers(const char* image, std::uint32_t bytes, const std::uint16_t* a, float* to) {
  const char* shared = fill_shared(image, bytes);
  const int thread = static_cast<int>(threadIdx.x), row = thread / 32 * 16 + thread % 32 / 4, k = thread % 4 * 2;
  std::uint32_t registers[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&registers[i], &a[(row + i % 2 * 8) * 16 + k + i / 2 * 8], 4);
  float d[32];
  cuda_emulator::wgmma_fence();
  cuda_emulator::wgmma_rs<64, true>(d, registers, cuda_emulator::wgmma_descriptor(shared, 2048, 1024, 1), false);
  for (std::uint32_t& r : registers) r = 0;  // they have been read
  cuda_emulator::wgmma_commit();
  cuda_emulator::wgmma_wait<0>();
  store_sums<64>(d, to);
}

TEST_F(WgmmaTest, AMayComeFromRegisters) {
  const Operand b{true, 64, 16};
  const auto av = random(64 * 16), bv = random(64 * 16);
  std::vector<char> image(b.bytes());
  put(image, 0, b, bv);
  std::vector<std::uint16_t> a(64 * 16);
  std::transform(av.begin(), av.end(), a.begin(), bits_of);
  const DeviceArray<char> device(image);
  const DeviceArray<std::uint16_t> device_a(a);
  const DeviceArray<float> to(64 * 64);
  ASSERT_OK(run(multiply_from_registers, 1, 128, b.bytes(), device.data(), b.bytes(), device_a.data(), to.data()));
  EXPECT_EQ(to.values(), product(av, bv, 64, 16, 0));
}

// --- Waits and fences ----------------------------------------------------------------------------------------------

enum class How { read_early, overwritten, changed, no_fence, one_thread_other, no_wait };

struct Ones {
  std::uint16_t* shared;
  std::uint64_t a, b;  // [64, 64] and [8, 64] there
};

__device__ Ones ones() {
  auto* shared = static_cast<std::uint16_t*>(cuda_emulator::dynamic_shared_memory());
  for (unsigned i = threadIdx.x; i < 64 * 64 + 8 * 64; i += 128) shared[i] = 0x3f80;
  cuda_emulator::fence_proxy_async();
  __syncthreads();
  return {shared, cuda_emulator::wgmma_descriptor(shared, 16, 1024, 1),
          cuda_emulator::wgmma_descriptor(shared + 64 * 64, 16, 1024, 1)};
}

// b = 1: d[64, 8] = 16 each step; two groups.
__global__ void two_groups(How how, float* to) {
  const auto [shared, a, b] = ones();
  float d[4] = {1, 1, 1, 1}, e[4] = {2, 2, 2, 2};
  if (how != How::no_fence) cuda_emulator::wgmma_fence();
  cuda_emulator::wgmma_ss<8, false, false>(d, a, b, true);
  cuda_emulator::wgmma_commit();
  cuda_emulator::wgmma_ss<8, false, false>(e, a, how == How::one_thread_other && threadIdx.x == 70 ? b : a, true);
  cuda_emulator::wgmma_ss<8, false, false>(d, a, b, true);
  cuda_emulator::wgmma_commit();
  float* mine = to + threadIdx.x * 4;
  mine[0] = d[0];
  if (how == How::changed) d[1] = 5;
  if (how == How::overwritten) {
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 64 * 64; i += 128) shared[i] = 0;
    __syncthreads();
  }
  cuda_emulator::wgmma_wait<1>();
  mine[1] = d[0];
  if (how == How::no_wait) return;
  cuda_emulator::wgmma_wait<0>();
  mine[2] = d[0];
  mine[3] = e[3];
}

TEST_F(WgmmaTest, SumsAreThereAfterTheWaitForTheirGroup) {
  const DeviceArray<float> to(512);
  ASSERT_OK(run(two_groups, 1, 128, (64 * 64 + 8 * 64) * 2, How::read_early, to.data()));
  const auto values = to.values();
  for (std::size_t thread = 0; thread < 128; ++thread) {
    EXPECT_TRUE(std::isnan(values[thread * 4]));
    EXPECT_TRUE(std::isnan(values[thread * 4 + 1]));  // the second group still adds to it
    EXPECT_EQ(values[thread * 4 + 2], 33);
    EXPECT_EQ(values[thread * 4 + 3], 18);
  }
  ASSERT_OK(run(two_groups, 1, 128, (64 * 64 + 8 * 64) * 2, How::overwritten, to.data()));
  EXPECT_EQ(to.values()[2], 1);
}

TEST_F(WgmmaTest, MisusesAreReported) {
  const DeviceArray<float> to(512);
  const auto message = [&](How how, unsigned threads = 128) {
    return error_of([&] { run(two_groups, 1, threads, (64 * 64 + 8 * 64) * 2, how, to.data()); });
  };
  EXPECT_TRUE(contains(message(How::no_fence), "without wgmma_fence"));
  EXPECT_TRUE(contains(message(How::changed), "wrote sums of a product that was under way"));
  EXPECT_TRUE(contains(message(How::one_thread_other), "product 0 of thread 70 of the warpgroup is another"))
      << message(How::one_thread_other);
  EXPECT_TRUE(contains(message(How::no_wait), "ends with wgmma products under way"));
  EXPECT_TRUE(contains(message(How::read_early, 96), "needs a whole warpgroup"));
  cuda_emulator::set_devices({.compute_capability = 80});
  EXPECT_TRUE(contains(error_of([] {
                         const DeviceArray<float> out(512);
                         run(two_groups, 1, 128, (64 * 64 + 8 * 64) * 2, How::read_early, out.data());
                       }),
                       "wgmma on a device of compute capability 80"));
}

enum class Again { as_left, fenced, changed, registers };

// Two products with a wait between them. If d is unchanged since the first one, it needs no fence before the second.
__global__ void multiply_again(Again how, float* to) {
  const auto [shared, a, b] = ones();
  const std::uint32_t in_registers[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
  float d[4] = {};
  cuda_emulator::wgmma_fence();
  cuda_emulator::wgmma_ss<8, false, false>(d, a, b, true);
  cuda_emulator::wgmma_commit();
  cuda_emulator::wgmma_wait<0>();
  if (how == Again::changed || how == Again::fenced) d[3] += 1;
  if (how == Again::fenced) cuda_emulator::wgmma_fence();
  if (how == Again::registers) {
    cuda_emulator::wgmma_rs<8, false>(d, in_registers, b, true);
  } else {
    cuda_emulator::wgmma_ss<8, false, false>(d, a, b, true);
  }
  cuda_emulator::wgmma_commit();
  cuda_emulator::wgmma_wait<0>();
  to[threadIdx.x] = d[3];
}

TEST_F(WgmmaTest, RegistersInUseNeedAFence) {
  const DeviceArray<float> to(128);
  const auto message = [&](Again how) {
    return error_of([&] { run(multiply_again, 1, 128, (64 * 64 + 8 * 64) * 2, how, to.data()); });
  };
  EXPECT_EQ(message(Again::as_left), "");
  EXPECT_EQ(to.values()[7], 32);
  EXPECT_EQ(message(Again::fenced), "");
  EXPECT_EQ(to.values()[7], 33);
  EXPECT_TRUE(contains(message(Again::changed), "without wgmma_fence behind other uses"));
  EXPECT_TRUE(contains(message(Again::registers), "without wgmma_fence behind other uses"));
}

// All threads write the operands; those from `fencing` on fence before the barrier, and the others only after it.
__global__ void fence_by_some(unsigned fencing) {
  auto* shared = static_cast<std::uint16_t*>(cuda_emulator::dynamic_shared_memory());
  for (unsigned i = threadIdx.x; i < 64 * 64 + 8 * 64; i += 256) shared[i] = static_cast<std::uint16_t>(threadIdx.x);
  if (threadIdx.x >= fencing) cuda_emulator::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x < 128) {
    float d[4] = {};
    cuda_emulator::wgmma_fence();
    cuda_emulator::wgmma_ss<8, false, false>(d, cuda_emulator::wgmma_descriptor(shared, 16, 1024, 1),
                                             cuda_emulator::wgmma_descriptor(shared + 64 * 64, 16, 1024, 1), false);
    cuda_emulator::wgmma_commit();
    cuda_emulator::wgmma_wait<0>();
  }
  __syncthreads();
  if (threadIdx.x < fencing) cuda_emulator::fence_proxy_async();
}

TEST_F(WgmmaTest, EveryWriterOfAnOperandFences) {
  const auto message = [](unsigned fencing) {
    return error_of([&] { run(fence_by_some, 1, 256, (64 * 64 + 8 * 64) * 2, fencing); });
  };
  EXPECT_EQ(message(3), "");  // not checked
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::backward, ThreadOrder::shuffled}) {
    cuda_emulator::set_thread_order(order, 2);
    cuda_emulator::set_proxy_checks(true);
    EXPECT_EQ(message(0), "");
    EXPECT_TRUE(contains(message(3), "which thread")) << message(3);
    EXPECT_TRUE(contains(message(3), "has not called fence_proxy_async since"));
    cuda_emulator::set_proxy_checks(false);
  }
}

// --- setmaxnreg ----------------------------------------------------------------------------------------------------

// 384 threads, 168 registers each at first.
template <int Fewer, int More>
__global__ void share_registers(bool whole) {
  if (threadIdx.x < 128) {
    if (whole || threadIdx.x < 32) cuda_emulator::registers_decrease<Fewer>();
  } else {
    cuda_emulator::registers_increase<More>();
  }
}

TEST_F(WgmmaTest, RegistersAreSharedOutOrWaitedForInVain) {
  const auto message = [](auto kernel, bool whole) { return error_of([&] { run(kernel, 1, 384, 0, whole); }); };
  EXPECT_EQ(message(share_registers<24, 240>, true), "");
  EXPECT_EQ(message(share_registers<40, 232>, true), "");
  EXPECT_TRUE(contains(message(share_registers<40, 240>, true), "deadlock"));
  EXPECT_TRUE(
      contains(message(share_registers<40, 160>, true), "setmaxnreg.inc to 160 registers of a thread that has 168"));
  EXPECT_TRUE(contains(message(share_registers<24, 168>, false), "where the first of its warpgroup executed 1"));
}

// --- stmatrix ------------------------------------------------------------------------------------------------------

__global__ void store_and_load(std::uint32_t* to) {
  auto* shared = static_cast<char*>(cuda_emulator::dynamic_shared_memory());
  const std::uint32_t lane = threadIdx.x;
  const std::uint32_t r[4] = {lane, lane + 100, lane + 200, lane + 300};
  cuda_emulator::stmatrix_x4(shared + lane * 16, r);
  __syncwarp();
  std::uint32_t back[4];
  cuda_emulator::ldmatrix_x4(back, shared + lane * 16);
  for (unsigned m = 0; m < 4; ++m) to[m * 32 + lane] = back[m];
}

TEST_F(WgmmaTest, StmatrixIsLdmatrixTheOtherWay) {
  const DeviceArray<std::uint32_t> to(128);
  ASSERT_OK(run(store_and_load, 1, 32, 512, to.data()));
  for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(to.values()[i], i / 32 * 100 + i % 32);
}

}  // namespace
