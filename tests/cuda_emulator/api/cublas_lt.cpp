// cuBLASLt's interface: descriptors, checks, and the product queued on its stream.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>

#include "api/matrix_product.h"
#include "api/runtime.h"
#include "api/settings.h"
#include "cublasLt.h"

using cuda_emulator::BlasRefusal;
using cuda_emulator::MatrixLayout;
using cuda_emulator::MatrixProduct;
using cuda_emulator::Runtime;

struct cublasLtContext {
  int device;
};
struct cublasLtMatmulDescription {
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  void* bias = nullptr;
};
struct cublasLtMatrixDescription {
  MatrixLayout layout;
};
struct cublasLtMatmulPreferences {
  std::uint64_t workspace_bytes = 0;
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};  // of A, B, C, D
  std::uint32_t ignored = 0;
};

namespace {

// Runs body(runtime, lock) with the runtime's lock, unless a test wants the call to fail.
template <class Body>
cublasStatus_t call(const char* function, Body body) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const cudaError_t error = cuda_emulator::call(function, [&](Runtime& state, cuda_emulator::Streams::Lock& lock) {
    status = body(state, lock);
    return cudaSuccess;
  });
  if (error == cudaErrorMemoryAllocation) return CUBLAS_STATUS_ALLOC_FAILED;
  return error == cudaSuccess ? status : CUBLAS_STATUS_EXECUTION_FAILED;
}

template <class T>
cublasStatus_t assign(T& to, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class... Values>
cublasStatus_t create(T** to, Values... values) {
  if (to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *to = new T{values...};
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t destroy(T* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

bool known(cudaDataType_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF;
}

// Nonsensical arguments are invalid; products for which cuBLASLt has no kernel are not supported.
cublasStatus_t check(const MatrixProduct& product) {
  const MatrixLayout &a = product.a_layout, &b = product.b_layout, &c = product.c_layout, &d = product.d_layout;
  const std::uint64_t a_rows = product.transpose_a ? a.columns : a.rows;
  const std::uint64_t b_rows = product.transpose_b ? b.columns : b.rows;
  const std::uint64_t b_columns = product.transpose_b ? b.rows : b.columns;
  if (a_rows != product.m() || b_columns != product.n() || b_rows != product.k() || c.rows != d.rows ||
      c.columns != d.columns || d.rows == 0 || d.columns == 0 || product.k() == 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const MatrixLayout* layout : {&a, &b, &c, &d}) {
    if (layout->leading_dimension < static_cast<std::int64_t>(layout->rows)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!known(layout->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool types = a.type == b.type && c.type == d.type && (a.type == CUDA_R_16BF || d.type == CUDA_R_32F);
  if (!types) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

MatrixProduct product_of(const cublasLtMatmulDescription& description, const MatrixLayout& a, const MatrixLayout& b,
                         const MatrixLayout& c, const MatrixLayout& d) {
  MatrixProduct product;
  product.transpose_a = description.transpose_a != CUBLAS_OP_N;
  product.transpose_b = description.transpose_b != CUBLAS_OP_N;
  product.a_layout = a;
  product.b_layout = b;
  product.c_layout = c;
  product.d_layout = d;
  product.epilogue = description.epilogue;
  product.bias = description.bias;
  return product;
}

// An algorithm is for the shapes, types, and epilogue of one product, and for pointers with at least this alignment.
cublasLtMatmulAlgo_t algorithm_of(const MatrixProduct& product, std::uint64_t workspace_bytes,
                                  const std::array<std::uint32_t, 4>& alignment) {
  auto types =
      static_cast<std::uint64_t>(product.a_layout.type) << 8 | static_cast<std::uint64_t>(product.d_layout.type);
  for (const std::uint32_t one : alignment) types = types << 9 | one;
  return {{product.m(), product.n(), product.k(), types,
           static_cast<std::uint64_t>(product.transpose_a) << 1 | static_cast<std::uint64_t>(product.transpose_b),
           static_cast<std::uint64_t>(product.epilogue), workspace_bytes}};
}

std::array<std::uint32_t, 4> alignment_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::array<std::uint32_t, 4> alignment{};
  for (std::size_t i = 0; i < 4; ++i) {
    alignment[i] = static_cast<std::uint32_t>(algorithm.data[3] >> 9 * (3 - i)) & 511U;
  }
  return alignment;
}

void check_alignment(const char* what, const void* pointer, std::uint64_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0) return;
  throw cuda_emulator::Error(
      fmt::format("cublasLtMatmul: {} at {} is to be aligned to {} bytes", what, pointer, bytes));
}

void check_memory(const Runtime& state, const char* what, const void* pointer, std::size_t bytes) {
  const auto* allocation = state.memory.find(pointer);
  if (allocation != nullptr && state.memory.whole(pointer, bytes)) return;
  throw cuda_emulator::Error(fmt::format(
      "cublasLtMatmul: {} needs {} bytes of device memory at {}, which are not there", what, bytes, pointer));
}

// Checks that the product's memory exists, and is aligned as promised for the algorithm.
void check_operands(const Runtime& state, const MatrixProduct& product, const cublasLtMatmulAlgo_t* algorithm,
                    bool reads_c, const void* workspace, std::size_t workspace_bytes) {
  if (algorithm != nullptr) {
    const std::array<std::uint32_t, 4> alignment = alignment_of(*algorithm);
    check_alignment("A", product.a, alignment[0]);
    check_alignment("B", product.b, alignment[1]);
    if (reads_c) check_alignment("C", product.c, alignment[2]);
    check_alignment("D", product.d, alignment[3]);
  }
  check_memory(state, "A", product.a, product.a_layout.bytes());
  check_memory(state, "B", product.b, product.b_layout.bytes());
  check_memory(state, "D", product.d, product.d_layout.bytes());
  if (reads_c) check_memory(state, "C", product.c, product.c_layout.bytes());
  if (workspace_bytes > 0) {
    check_alignment("the workspace", workspace, 256);
    check_memory(state, "the workspace", workspace, workspace_bytes);
  }
  if (product.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    check_alignment("the bias", product.bias, 16);
    check_memory(state, "the bias", product.bias, product.m() * product.d_layout.element_bytes());
  }
}

}  // namespace

const char* cublasLtGetStatusName(cublasStatus_t status) {
  static const std::map<cublasStatus_t, const char*> names{
      {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS"},
      {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED"},
      {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"},
      {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"},
      {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"}};
  return names.at(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return call(__func__, [&](Runtime&, auto&) { return create(handle, cuda_emulator::current_device()); });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return create(description);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return assign(description->pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(description->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(description->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(description->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(description->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading_dimension) {
  return create(layout,
                MatrixLayout{.type = type, .rows = rows, .columns = columns, .leading_dimension = leading_dimension});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return assign(preference->workspace_bytes, value, bytes);
  const int operand = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;  // followed by B's, C's, and D's
  if (operand < 0) return assign(preference->ignored, value, bytes);
  return assign(preference->alignment.at(static_cast<std::size_t>(operand)), value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* returned) {
  return call(__func__, [&](Runtime&, auto&) {
    *returned = 0;
    if (handle == nullptr || requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const MatrixProduct product = product_of(*description, a->layout, b->layout, c->layout, d->layout);
    const cublasStatus_t status = check(product);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const auto* const widest = std::max_element(preference->alignment.begin(), preference->alignment.end());
    const BlasRefusal refusal = cuda_emulator::settings().blas_refusal;
    if ((refusal == BlasRefusal::bias && product.epilogue == CUBLASLT_EPILOGUE_BIAS) ||
        (refusal == BlasRefusal::alignment && *widest > sizeof(float))) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const std::uint64_t wanted = product.m() * product.n() * sizeof(float);
    const std::uint64_t given = wanted <= preference->workspace_bytes ? wanted : 0;
    results[0] = {algorithm_of(product, given, preference->alignment), given, CUBLAS_STATUS_SUCCESS, 1.0f, {}};
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream_handle) {
  return call(__func__, [&](Runtime& state, auto& lock) {
    const auto stream = state.stream(stream_handle);
    if (handle == nullptr || !stream || alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    auto product = std::make_shared<MatrixProduct>(
        product_of(*description, a_layout->layout, b_layout->layout, c_layout->layout, d_layout->layout));
    const cublasStatus_t status = check(*product);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const bool on_device = description->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
    if (on_device) {
      check_memory(state, "alpha", alpha, sizeof(float));
      check_memory(state, "beta", beta, sizeof(float));
    }
    const auto read_factors = [alpha, beta](MatrixProduct& of) {
      of.alpha = *static_cast<const float*>(alpha);
      of.beta = *static_cast<const float*>(beta);
    };
    if (!on_device) read_factors(*product);
    const bool reads_c = on_device || product->beta != 0;
    // As on Hopper: if beta is known to be 1, memory adds the rounded product to the existing value.
    product->rounded_before_added = !on_device && product->beta == 1 && c == d;
    product->a = a;
    product->b = b;
    product->c = c;
    product->d = d;
    // cuBLASLt adds in place or reads another matrix, in both cases with the same layout.
    if (c == d && c_layout->layout.leading_dimension != d_layout->layout.leading_dimension) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const std::size_t used = algorithm == nullptr ? 0 : algorithm->data[6];
    if (algorithm != nullptr) {
      const cublasLtMatmulAlgo_t expected = algorithm_of(*product, used, alignment_of(*algorithm));
      if (std::memcmp(algorithm, &expected, sizeof(expected)) != 0 || used > workspace_bytes) {
        return CUBLAS_STATUS_INVALID_VALUE;
      }
    }
    check_operands(state, *product, algorithm, reads_c, workspace, used);
    const std::string name = fmt::format("matrix product {} x {} x {}", product->m(), product->n(), product->k());
    state.load(name, lock);
    state.streams.add(stream,
                      {cuda_emulator::Trace::Kind::matrix_product, name, 0,
                       [product, workspace, used, on_device, read_factors] {
                         if (used > 0) std::memset(workspace, 0xff, used);
                         if (on_device) read_factors(*product);
                         multiply(*product);
                       }},
                      lock);
    return CUBLAS_STATUS_SUCCESS;
  });
}
