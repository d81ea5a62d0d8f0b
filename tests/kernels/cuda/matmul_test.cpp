// Compares matrix products on the GPU with the CPU's in double: odd sizes and zero, unaligned operands, with and
// without a bias, sums that add and that do not; a shape's algorithm is requested once.
#include "kernels/matmul.h"

#include <algorithm>

#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

class GpuMatmulTest : public GpuKernelTest {
 protected:
  void expect_agreement(DType dtype, std::int64_t T, std::int64_t I, std::int64_t O, bool with_bias,
                        std::int64_t skip = 0, double dw_tolerance = 1e-5) {
    forget();
    const std::string what = fmt::format("{} x {} x {} of {}, {} skipped", T, I, O, name_of(dtype), skip);
    const Both x = random({T, I}, dtype, 1, 1, skip), w = random({O, I}, dtype, 2, 1, skip);
    const Both dy = random({T, O}, dtype, 3, 1, skip);
    const Both bias = with_bias ? random({O}, dtype, 4, 1, skip) : Both{};
    const Both residual = random({T, O}, dtype, 8, 1, skip);
    const Both grown = random({T, O}, dtype, 9, 1, skip);
    const Both y = output({T, O}, dtype, skip), added = output({T, O}, dtype, skip), dx = output({T, I}, dtype, skip);
    const Both sum = random({T, I}, dtype, 5, 1, skip), dw = random({O, I}, DType::float32, 6, 1, skip);
    const Both dbias = with_bias ? random({O}, DType::float32, 7, 1, skip) : Both{};
    const Both first_dw = output({O, I}, DType::float32, skip);
    const Both first_dbias = with_bias ? output({O}, DType::float32, skip) : Both{};
    on_both([&](Stream& stream, auto at) {
      linear_forward(stream, at(y), at(x), at(w), at(bias));
      linear_forward(stream, at(added), at(x), at(w), at(bias), at(residual));
      linear_forward(stream, at(grown), at(x), at(w), {}, at(grown));
      linear_backward_input(stream, at(dx), at(dy), at(w), false);
      linear_backward_input(stream, at(sum), at(dy), at(w), true);
      linear_backward_weight(stream, at(dw), at(dbias), at(dy), at(x), true);
      linear_backward_weight(stream, at(first_dw), at(first_dbias), at(dy), at(x), false);
    });
    expect_agrees(y, what + ": y");
    std::vector<double> rounded_before;
    if (with_bias && bias_is_stored_first(dtype, I, O, skip)) {
      for (std::int64_t i = 0; i < T * O; ++i) {
        rounded_before.push_back(bias.cpu.as<double>()[i % O] + residual.cpu.as<double>()[i]);
      }
    }
    expect_agrees(added, what + ": y added to a residual", 1e-5, rounded_before);
    expect_agrees(grown, what + ": a product added to y");
    expect_agrees(dx, what + ": dx");
    expect_agrees(sum, what + ": dx added");
    expect_agrees(dw, what + ": dw", dw_tolerance);
    expect_agrees(first_dw, what + ": the first dw", dw_tolerance);
    if (with_bias) expect_agrees(dbias, what + ": dbias");
    if (with_bias) expect_agrees(first_dbias, what + ": the first dbias");
  }

 private:
  /// Returns whether some product of [I] with [O, I] had to store its bias first: cuBLASLt does not accept a bias that
  /// is not at a multiple of 16 bytes, rounds before it adds one if I is not a multiple of 8, and may refuse others.
  /// Bias and residual are then rounded before the product.
  bool bias_is_stored_first(DType dtype, std::int64_t I, std::int64_t O, std::int64_t skip) {
    if (skip != 0 || I == 0) return skip != 0;
    if (dtype == DType::bfloat16 && I % 8 != 0) return true;
    const auto& choices = gpu().cuda().blas_choices();
    return std::any_of(choices.begin(), choices.end(), [&](const auto& entry) {
      const auto& [key, choice] = entry;
      return key[0] == O && key[2] == I && key[7] != 0 && !choice;
    });
  }
};

TEST_F(GpuMatmulTest, AgreesForAnyShape) {
  for (DType dtype : storage_types) {
    for (bool with_bias : {false, true}) {
      for (std::int64_t T : {0, 1, 7, 130}) {
        for (std::int64_t I : {0, 1, 8, 65}) {
          for (std::int64_t O : {0, 1, 16, 99}) expect_agreement(dtype, T, I, O, with_bias);
        }
      }
      expect_agreement(dtype, 40, 24, 56, with_bias, 1);
      expect_agreement(dtype, 4500, 1, 8, with_bias);  // dbias: more than 512 chunks of 8 tokens, so longer ones
    }
  }
}

TEST_F(GpuMatmulTest, LargeShapes) {
  if (emulated) GTEST_SKIP() << "too long without a GPU";
  for (DType dtype : storage_types) {
    expect_agreement(dtype, 512, 1024, 768, true);
    // A sum over many tokens, which may be split. A tensor core truncates its sum every 16 products, toward zero: over
    // 512 steps about 512 * 2^-24 / 2 of the current sum, 1.1e-5 of the largest element in a simulation.
    expect_agreement(dtype, 8192, 256, 256, true, 0, dtype == DType::bfloat16 ? 3e-5 : 1e-5);
  }
}

TEST_F(GpuMatmulTest, SizesBeyondCublasGoInPieces) {
  const std::int64_t most = gpu().cuda().max_blas_elements();
  EXPECT_EQ(most, 2147483647);
  for (DType dtype : storage_types) {
    gpu().cuda().limit_blas_elements(300 * 24);  // two pieces of 256 rows, and one of 88
    expect_agreement(dtype, 600, 16, 24, true);
    gpu().cuda().limit_blas_elements(7 * 24);  // less than one of the usual pieces
    expect_agreement(dtype, 20, 24, 8, true);
    gpu().cuda().limit_blas_elements(1);  // a row is never split
    expect_agreement(dtype, 3, 5, 4, true);
  }
  gpu().cuda().limit_blas_elements(most);
}

#if defined(RINGTRAIN_CUDA_EMULATED)
TEST_F(GpuMatmulTest, GoesAnotherWayWhereCublasHasNoAlgorithm) {
  using cuda_emulator::BlasRefusal;
  for (const BlasRefusal refusal : {BlasRefusal::bias, BlasRefusal::alignment}) {
    gpu().cuda().blas_choices().clear();
    cuda_emulator::set_blas_refusal(refusal);
    for (const bool with_bias : {false, true}) expect_agreement(DType::bfloat16, 40, 24, 56, with_bias);
  }
  cuda_emulator::set_blas_refusal(BlasRefusal::nothing);
}
#endif

// Rows of a kept tensor are at multiples of 16 bytes, a recomputed one at a multiple of 256.
TEST_F(GpuMatmulTest, TakesTheSameAlgorithmForTensorsAtMultiplesOf16Bytes) {
  const Both x = random({8, 16}, DType::bfloat16, 1), w = random({32, 16}, DType::bfloat16, 2);
  const Both kept = random({8, 16}, DType::bfloat16, 1, 1, 8), y = output({8, 32}, DType::bfloat16);
  on_gpu([&] { linear_forward(gpu(), y.gpu, x.gpu, w.gpu, {}); });
  on_gpu([&] { linear_forward(gpu(), y.gpu, kept.gpu, w.gpu, {}); });
  EXPECT_EQ(gpu().cuda().blas_choices().size(), 1U);
}

TEST_F(GpuMatmulTest, AsksForAnAlgorithmOnceAShape) {
  const Both x = random({8, 16}, DType::bfloat16, 1), w = random({32, 16}, DType::bfloat16, 2);
  const Both y = output({8, 32}, DType::bfloat16);
  on_gpu([&] { linear_forward(gpu(), y.gpu, x.gpu, w.gpu, {}); });
  EXPECT_EQ(gpu().cuda().blas_choices().size(), 1U);
  on_gpu([&] { linear_forward(gpu(), y.gpu.rows(0, 4), x.gpu.rows(0, 4), w.gpu, {}); });
  EXPECT_EQ(gpu().cuda().blas_choices().size(), 2U);
}

}  // namespace
}  // namespace ringtrain::testing
