// cuBLASLt against plain loops: transposes, leading dimensions, types, a bias, workspace.
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <cmath>
#include <random>

#include "support.h"

namespace {

// A column-major matrix on the device.
struct Matrix {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t leading_dimension;

  std::size_t size() const { return static_cast<std::size_t>(leading_dimension) * columns; }
};

std::vector<char> encode(const std::vector<float>& values, cudaDataType_t type) {
  std::vector<char> bytes(values.size() * (type == CUDA_R_16BF ? 2 : 4));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == CUDA_R_16BF) {
      reinterpret_cast<__nv_bfloat16*>(bytes.data())[i] = __float2bfloat16_rn(values[i]);
    } else {
      reinterpret_cast<float*>(bytes.data())[i] = values[i];
    }
  }
  return bytes;
}

std::vector<float> decode(const std::vector<char>& bytes, cudaDataType_t type) {
  std::vector<float> values(bytes.size() / (type == CUDA_R_16BF ? 2 : 4));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = type == CUDA_R_16BF ? __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(bytes.data())[i])
                                    : reinterpret_cast<const float*>(bytes.data())[i];
  }
  return values;
}

class CublasLt : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference_), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    for (const auto layout : layouts_) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
    EmulatorTest::TearDown();
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(T)), CUBLAS_STATUS_SUCCESS);
  }
  cublasLtMatrixLayout_t layout(const Matrix& m) {
    cublasLtMatrixLayout_t made = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&made, m.type, m.rows, m.columns, m.leading_dimension), CUBLAS_STATUS_SUCCESS);
    layouts_.push_back(made);
    return made;
  }
  /// Requests an algorithm.
  cublasStatus_t find(cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d,
                      cublasLtMatmulHeuristicResult_t& found) {
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, description_, a, b, d, d, preference_, 1, &found, &count);
    EXPECT_EQ(count, status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
    return status;
  }
  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(T)), CUBLAS_STATUS_SUCCESS);
  }
  std::vector<float> random(const Matrix& m) {
    std::vector<float> values(m.size());
    for (float& x : values) x = static_cast<float>(small_(random_));
    return values;
  }

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::vector<cublasLtMatrixLayout_t> layouts_;
  std::mt19937 random_{1};
  std::uniform_int_distribution<int> small_{-4, 4};  // so that every sum is exact
};

TEST_F(CublasLt, IsTheProductOfColumnMajorMatrices) {
  constexpr std::uint64_t m = 5, n = 7, k = 300;
  for (const auto& [in, out] :
       {std::pair{CUDA_R_32F, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_16BF}}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        const float alpha = 0.5f, beta = 2.0f;
        const Matrix a{in, transpose_a ? k : m, transpose_a ? m : k, 303};
        const Matrix b{in, transpose_b ? n : k, transpose_b ? k : n, 301};
        const Matrix d{out, m, n, 6};
        const auto av = random(a), bv = random(b), dv = random(d);
        std::vector<float> expected = dv;
        for (std::size_t i = 0; i < m; ++i) {
          for (std::size_t j = 0; j < n; ++j) {
            float sum = 0;
            for (std::size_t p = 0; p < k; ++p) {
              sum += av[transpose_a ? i * 303 + p : p * 303 + i] * bv[transpose_b ? p * 301 + j : j * 301 + p];
            }
            float& x = expected[j * 6 + i];
            x = alpha * sum + beta * x;
          }
        }
        expected = decode(encode(expected, out), out);
        set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
        set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N});
        const DeviceArray<char> da(encode(av, in)), db(encode(bv, in)), dd(encode(dv, out));
        const auto la = layout(a), lb = layout(b), ld = layout(d);
        cublasLtMatmulHeuristicResult_t found{};
        ASSERT_EQ(find(la, lb, ld, found), CUBLAS_STATUS_SUCCESS);
        cudaStream_t stream = nullptr;
        ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        ASSERT_EQ(cublasLtMatmul(handle_, description_, &alpha, da.data(), la, db.data(), lb, &beta, dd.data(), ld,
                                 dd.data(), ld, &found.algo, nullptr, 0, stream),
                  CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(decode(dd.values(), out), dv);  // it is only queued
        ASSERT_OK(cudaStreamSynchronize(stream));
        EXPECT_EQ(decode(dd.values(), out), expected);
      }
    }
  }
}

TEST_F(CublasLt, AnEpilogueAddsABias) {
  constexpr std::uint64_t m = 3, n = 4, k = 5;
  const Matrix a{CUDA_R_16BF, m, k, m}, b{CUDA_R_16BF, k, n, k}, d{CUDA_R_32F, m, n, m};
  const auto av = random(a), bv = random(b);
  const DeviceArray<char> da(encode(av, CUDA_R_16BF)), db(encode(bv, CUDA_R_16BF));
  const float one = 1, zero = 0;
  const auto la = layout(a), lb = layout(b), ld = layout(d);
  const auto run_with = [&](cublasLtEpilogue_t epilogue, float* bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::int32_t>(epilogue));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const DeviceArray<float> dd(12);
    EXPECT_EQ(cublasLtMatmul(handle_, description_, &one, da.data(), la, db.data(), lb, &zero, dd.data(), ld, dd.data(),
                             ld, nullptr, nullptr, 0, nullptr),
              CUBLAS_STATUS_SUCCESS);
    return dd.values();
  };
  const auto plain = run_with(CUBLASLT_EPILOGUE_DEFAULT, nullptr);
  const DeviceArray<float> bias({10, 20, 30});
  const auto biased = run_with(CUBLASLT_EPILOGUE_BIAS, bias.data());
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(biased[i], plain[i] + static_cast<float>(10 * (i % m + 1)));
}

// As observed on an H100: 257.5 - 256 is 1.5, but in bfloat16 257.5 is 258.
TEST_F(CublasLt, RoundsTwiceWhereItAddsInPlaceAndKnowsThatBetaIs1) {
  const Matrix row{CUDA_R_16BF, 1, 2, 1}, column{CUDA_R_16BF, 2, 1, 2}, one{CUDA_R_16BF, 1, 1, 1};
  const DeviceArray<char> a(encode({256, 1.5F}, CUDA_R_16BF)), b(encode({1, 1}, CUDA_R_16BF));
  const auto la = layout(row), lb = layout(column), ld = layout(one);
  const DeviceArray<float> factors({1, 1});
  const float host = 1;
  const auto added_to = [&](float c, bool in_place, bool on_device) {
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, on_device ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST);
    const DeviceArray<char> there(encode({c}, CUDA_R_16BF)), result(encode({c}, CUDA_R_16BF));
    const float* const factor = on_device ? factors.data() : &host;
    EXPECT_EQ(
        cublasLtMatmul(handle_, description_, factor, a.data(), la, b.data(), lb, factor,
                       in_place ? result.data() : there.data(), ld, result.data(), ld, nullptr, nullptr, 0, nullptr),
        CUBLAS_STATUS_SUCCESS);
    return decode(result.values(), CUDA_R_16BF)[0];
  };
  EXPECT_EQ(added_to(-256, /*in_place=*/true, /*on_device=*/false), 2);
  EXPECT_EQ(added_to(-256, /*in_place=*/true, /*on_device=*/true), 1.5F);
  EXPECT_EQ(added_to(-256, /*in_place=*/false, /*on_device=*/false), 1.5F);
}

TEST_F(CublasLt, TheWorkspaceStaysWithinItsLimitAndIsOverwritten) {
  const Matrix matrix{CUDA_R_32F, 4, 4, 4};
  const auto l = layout(matrix);
  const auto found_with = [&](std::uint64_t limit) {
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limit);
    cublasLtMatmulHeuristicResult_t found{};
    EXPECT_EQ(find(l, l, l, found), CUBLAS_STATUS_SUCCESS);
    return found;
  };
  EXPECT_EQ(found_with(63).workspaceSize, 0u);
  const auto found = found_with(64);
  EXPECT_EQ(found.workspaceSize, 64u);
  const DeviceArray<float> x(std::vector<float>(16, 1.0f)), d(16), workspace(std::vector<float>(16, 1.0f));
  const float one = 1, zero = 0;
  const auto multiply_with = [&](std::size_t workspace_bytes) {
    return cublasLtMatmul(handle_, description_, &one, x.data(), l, x.data(), l, &zero, d.data(), l, d.data(), l,
                          &found.algo, workspace.data(), workspace_bytes, nullptr);
  };
  EXPECT_EQ(multiply_with(63), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply_with(64), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.values(), std::vector<float>(16, 4.0f));
  for (const float w : workspace.values()) EXPECT_TRUE(std::isnan(w));
}

TEST_F(CublasLt, PointersHaveTheAlignmentThatWasPromised) {
  const auto l = layout({CUDA_R_32F, 4, 4, 4});
  const DeviceArray<float> memory(512), workspace(512);
  const float one = 1;
  const auto refusal = [&](int a, int b, int d, int scratch, std::uint64_t workspace_bytes) {
    cublasLtMatmulHeuristicResult_t found{};
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    EXPECT_EQ(find(l, l, l, found), CUBLAS_STATUS_SUCCESS);
    float* const p = memory.data();
    return error_of([&] {
      EXPECT_EQ(cublasLtMatmul(handle_, description_, &one, p + a, l, p + b, l, &one, p + d, l, p + d, l, &found.algo,
                               workspace.data() + scratch, workspace_bytes, nullptr),
                CUBLAS_STATUS_SUCCESS);
    });
  };
  EXPECT_EQ(refusal(0, 64, 128, 0, 64), "");  // 256 bytes by default
  EXPECT_TRUE(contains(refusal(1, 64, 128, 0, 0), "A at"));
  EXPECT_TRUE(contains(refusal(0, 65, 128, 0, 0), "B at"));
  EXPECT_TRUE(contains(refusal(0, 64, 132, 0, 0), "C at"));
  EXPECT_TRUE(contains(refusal(0, 64, 128, 1, 64), "the workspace at"));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{4});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{8});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{4});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{4});
  EXPECT_EQ(refusal(1, 66, 133, 0, 0), "");
  EXPECT_TRUE(contains(refusal(1, 65, 133, 0, 0), "aligned to 8 bytes"));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::int32_t{CUBLASLT_EPILOGUE_BIAS});
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory.data() + 4);
  EXPECT_EQ(refusal(1, 66, 133, 0, 0), "");
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory.data() + 2);
  EXPECT_TRUE(contains(refusal(1, 66, 133, 0, 0), "the bias at"));
}

TEST_F(CublasLt, WhatDoesNotFitIsRefused) {
  const auto ok = layout({CUDA_R_16BF, 4, 4, 4}), narrow = layout({CUDA_R_16BF, 4, 4, 3}),
             tall = layout({CUDA_R_16BF, 5, 4, 5}), wide = layout({CUDA_R_32F, 4, 4, 4}),
             doubles = layout({CUDA_R_64F, 4, 4, 4});
  const auto status = [&](cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d) {
    cublasLtMatmulHeuristicResult_t found{};
    return find(a, b, d, found);
  };
  EXPECT_EQ(status(ok, ok, ok), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status(ok, ok, wide), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status(narrow, ok, ok), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(status(tall, ok, ok), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(status(ok, wide, wide), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(wide, wide, ok), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(doubles, doubles, doubles), CUBLAS_STATUS_NOT_SUPPORTED);

  // An algorithm is for its shapes; pointers are to device memory that is large enough.
  cublasLtMatmulHeuristicResult_t found{};
  ASSERT_EQ(find(wide, wide, wide, found), CUBLAS_STATUS_SUCCESS);
  const DeviceArray<char> memory(32);
  const float one = 1, zero = 0;
  const auto multiply = [&](const cublasLtMatmulAlgo_t* algorithm, void* d) {
    return cublasLtMatmul(handle_, description_, &one, memory.data(), ok, memory.data(), ok, &zero, d, ok, d, ok,
                          algorithm, nullptr, 0, nullptr);
  };
  EXPECT_EQ(multiply(&found.algo, memory.data()), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(nullptr, memory.data()), CUBLAS_STATUS_SUCCESS);
  EXPECT_TRUE(contains(error_of([&] { multiply(nullptr, memory.data() + 1); }), "D needs 32 bytes"));
  EXPECT_TRUE(contains(error_of([&] { multiply(nullptr, nullptr); }), "D needs 32 bytes"));
  cuda_emulator::fail_call("cublasLtMatmul", 1, cudaErrorLaunchFailure);
  EXPECT_EQ(multiply(nullptr, memory.data()), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_STREQ(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
}

}  // namespace
