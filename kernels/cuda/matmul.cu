// A linear layer's products with cuBLASLt, which expects column-major matrices: a row-major [R, C] is its C x R, so y =
// x w^T is computed as y^T = w x^T. Products of bfloat16 and float32 are summed in float32 (never in TF32). A gradient
// or residual to which a product is added is added with beta = 1 before the sum is rounded. dbias has its own kernel,
// because cuBLASLt's epilogue for it overwrites, and dbias adds.
//
// The algorithm of a product is cuBLASLt's first choice for its shape and the alignment of its pointers, requested once
// and kept in the Context. Choices that split the summed dimension reduce in a separate step, so the bits are always
// the same.
//
// Hopper's kernels round twice if C is D in bfloat16 and beta is 1: they round the product and let memory add it.
// Observed on an H100 with cuBLASLt 13: 30 % of the elements differ from those rounded once. If beta is stored on the
// device, the kernels cannot know it, so they round once, and take 2 to 10 % longer. So beta is on the device for such
// products, and for sums over a number of terms that is not a multiple of 8, whose kernels round twice for any C: no
// model has such a width. With an epilogue that adds a bias, those kernels round twice in both cases, so such a bias is
// stored first.
//
// Limitations that cuBLASLt does not document and others found: 13.6 offers algorithms for operands of 2^31 elements
// that then fail (rapidsai/raft 3097), so more tokens than that are split into several products, and models with such
// a weight are refused (layers/model_spec.cpp); and a bias that is not aligned to 16 bytes faults in the epilogue on
// some GPUs (marian-nmt), so such a bias is stored first and the product added to it. In that case, bias and residual
// are rounded together, and then the result once more.
#include <cublasLt.h>

#include <bit>
#include <cstring>
#include <optional>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain::cuda {

namespace {

cudaDataType_t cuda_type(DType dtype) {
  return dtype == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// Returns the largest power of two, up to 16, that divides a pointer. No kernel of cuBLASLt loads more at once. So a
/// tensor that is kept (rows of a layer's tensor) and the same one recomputed (in a workspace, at a multiple of 256)
/// get the same algorithm, and thus the same bits.
std::uint32_t alignment_of(const ConstTensorView& view) {
  return 1U << std::countr_zero(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(view.data)) | 16U);
}

constexpr std::uint32_t bias_alignment = 16;

/// A column-major operand in memory: `rows` x `columns`, with adjacent rows; transposed: it is used transposed.
template <class View>
struct Matrix {
  View view;
  std::int64_t rows, columns;
  bool transposed;
};

/// D[m, n] = op(A)[m, k] op(B)[k, n] + C[m, n] + bias[m]; what: for messages.
struct Product {
  const char* what;
  Matrix<ConstTensorView> a, b;
  Matrix<TensorView> d;
  std::int64_t m, n, k;
  ConstTensorView bias;  // may be empty
  ConstTensorView c;     // with the layout of D, and may be D; empty: 0

  ConstTensorView c_or_d() const { return c.empty() ? ConstTensorView(d.view) : c; }
  /// Returns whether the product would be rounded before it is added if beta were known.
  bool hides_beta() const {
    return !c.empty() && d.view.dtype == DType::bfloat16 && (c.data == d.view.data || k % 8 != 0);
  }
  /// Returns whether the epilogue may add the bias: never if it is not aligned, or would be added to a rounded product.
  bool takes_bias() const {
    return alignment_of(bias) >= bias_alignment && (d.view.dtype != DType::bfloat16 || k % 8 == 0);
  }

  void check(cublasStatus_t status) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(ExitCode::device, "{}, a product of {} and {} to {} of {} elements: cuBLASLt says {}", what,
         a.view.shape.to_string(), b.view.shape.to_string(), d.view.shape.to_string(), name_of(a.view.dtype),
         cublasLtGetStatusName(status));
  }
};

/// Owns one of cuBLASLt's descriptions, a pointer to its own object.
template <class T, cublasStatus_t (*destroy)(T)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (it_ != nullptr) destroy(it_);
  }
  T* operator&() { return &it_; }
  operator T() const { return it_; }

 private:
  T it_ = nullptr;
};

using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

struct Descriptions {
  Operation operation;
  Layout a, b, d;

  explicit Descriptions(const Product& product) {
    product.check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    if (product.hides_beta()) set(product, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    set(product, CUBLASLT_MATMUL_DESC_TRANSA, product.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(product, CUBLASLT_MATMUL_DESC_TRANSB, product.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (!product.bias.empty()) {
      set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(product.bias.data));
    }
    describe(product, a, product.a);
    describe(product, b, product.b);
    describe(product, d, product.d);
  }

 private:
  template <class T>
  void set(const Product& product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    product.check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)));
  }
  template <class View>
  static void describe(const Product& product, Layout& layout, const Matrix<View>& matrix) {
    product.check(cublasLtMatrixLayoutCreate(&layout, cuda_type(matrix.view.dtype),
                                             static_cast<std::uint64_t>(matrix.rows),
                                             static_cast<std::uint64_t>(matrix.columns), matrix.rows));
  }
};

/// Requests an algorithm from cuBLASLt for pointers aligned to at most `at_most` bytes. Returns nothing if it has none.
std::optional<BlasChoice> ask(const Context& context, const Product& product, const Descriptions& descriptions,
                              std::uint32_t at_most) {
  const auto alignment = [&](const ConstTensorView& view) { return std::min(alignment_of(view), at_most); };
  Preference preference;
  product.check(cublasLtMatmulPreferenceCreate(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    product.check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Context::blas_workspace_bytes);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(product.a.view));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(product.b.view));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(product.c_or_d()));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(product.d.view));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(context.blas(), descriptions.operation, descriptions.a, descriptions.b,
                                     descriptions.d, descriptions.d, preference, 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
  product.check(status);
  if (found == 0 || result.state == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
  product.check(result.state);
  BlasChoice choice;
  static_assert(sizeof(choice.algorithm) == sizeof(result.algo));
  std::memcpy(&choice.algorithm, &result.algo, sizeof(result.algo));
  choice.workspace_bytes = result.workspaceSize;
  return choice;
}

/// Multiplies; returns false without doing anything if cuBLASLt has no algorithm for this product.
bool try_multiply(Context& context, const Product& product) {
  const Descriptions descriptions(product);
  const BlasKey key{product.m,
                    product.n,
                    product.k,
                    product.a.transposed,
                    product.b.transposed,
                    static_cast<std::int64_t>(product.a.view.dtype),
                    static_cast<std::int64_t>(product.d.view.dtype),
                    product.bias.empty() ? 0 : alignment_of(product.bias),
                    alignment_of(product.a.view),
                    alignment_of(product.b.view),
                    alignment_of(product.c_or_d()),
                    alignment_of(product.d.view),
                    static_cast<std::int64_t>(product.hides_beta())};
  auto found = context.blas_choices().find(key);
  if (found == context.blas_choices().end()) {
    std::optional<BlasChoice> choice = ask(context, product, descriptions, 16);
    if (!choice) {  // perhaps a shape with an odd leading dimension: use one that loads single elements
      const auto element = static_cast<std::uint32_t>(size_of(product.a.view.dtype));
      choice = ask(context, product, descriptions, element);
    }
    found = context.blas_choices().emplace(key, choice).first;
  }
  if (!found->second) return false;
  const BlasChoice& choice = *found->second;
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, &choice.algorithm, sizeof(algorithm));
  const float host_one = 1, host_zero = 0;
  const float* const alpha = product.hides_beta() ? context.device_one() : &host_one;
  const float* const beta = product.c.empty() ? &host_zero : alpha;
  product.check(cublasLtMatmul(context.blas(), descriptions.operation, alpha, product.a.view.data, descriptions.a,
                               product.b.view.data, descriptions.b, beta, product.c_or_d().data, descriptions.d,
                               product.d.view.data, descriptions.d, &algorithm, context.blas_workspace(),
                               choice.workspace_bytes, context.stream()));
  return true;
}

void multiply(Context& context, const Product& product) {
  if (!try_multiply(context, product)) product.check(CUBLAS_STATUS_NOT_SUPPORTED);
}

/// Calls body(begin, end) for runs of T rows whose matrices, of up to `width` columns, have a size that cuBLASLt
/// accepts.
template <class Body>
void for_rows(const Context& context, std::int64_t T, std::int64_t width, const Body& body) {
  constexpr std::int64_t grain = 128;  // so that pieces are aligned like the whole
  const std::int64_t fit = context.max_blas_elements() / width;
  const std::int64_t rows = std::max<std::int64_t>(1, fit >= grain ? fit / grain * grain : fit);
  for (std::int64_t begin = 0; begin < T; begin += rows) body(begin, std::min(T, begin + rows));
}

constexpr int bias_threads = 256;

/// y[T, O] = bias[O] + residual[T, O], where residual may be null: the value of a product without terms.
template <class T>
__global__ void __launch_bounds__(bias_threads)
    bias_kernel(T* const y, const T* const bias, const T* const residual, const std::int64_t n, const std::int64_t O) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * bias_threads + threadIdx.x;
  if (i >= n) return;
  const float b = widened(bias[i % O]);
  const Pack<float, 1> sum{residual == nullptr ? b : b + widened(residual[i])};
  store(y + i, rounded<T>(sum));
}

template <class T>
struct Column {
  const T* dy;  // [T, O]
  std::int64_t O;
  template <int W>
  __device__ Pack<float, W> at(std::int64_t t, std::int64_t c) const {
    return widened(load<W>(dy + t * O + c));
  }
};

}  // namespace

void linear_forward(Stream& stream, const TensorView& y, const ConstTensorView& x, const ConstTensorView& w,
                    const ConstTensorView& bias, const ConstTensorView& residual) {
  const std::int64_t I = x.dim(1), O = w.dim(0);
  if (y.numel() == 0) return;
  const auto write_bias = [&](const TensorView& to, const ConstTensorView& added) {
    dispatch_storage(y.dtype, [&]<class S>() {
      launch<bias_kernel<S>>(stream.cuda(), blocks_for(to.numel(), bias_threads), bias_threads, 0, to.as<S>(),
                             bias.as<S>(), added.empty() ? nullptr : added.as<S>(), to.numel(), O);
    });
  };
  if (I == 0) {
    if (!bias.empty()) return write_bias(y, residual);
    return residual.empty() ? cuda::fill(stream, y, 0) : cuda::copy_in_order(stream, y, residual);
  }
  for_rows(stream.cuda(), x.dim(0), std::max(I, O), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t T = end - begin;
    const TensorView to = y.rows(begin, end);
    const ConstTensorView added = residual.empty() ? residual : residual.rows(begin, end);
    Product product{
        "a linear layer", {w, I, O, true}, {x.rows(begin, end), I, T, false}, {to, O, T, false}, O, T, I, bias, added};
    if (bias.empty()) return multiply(stream.cuda(), product);
    if (product.takes_bias() && try_multiply(stream.cuda(), product)) return;  // may fail for a single row or column
    write_bias(to, added);
    product.bias = {};
    product.c = to;
    multiply(stream.cuda(), product);
  });
}

void linear_backward_input(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& w,
                           bool accumulate) {
  const std::int64_t I = dx.dim(1), O = w.dim(0);
  if (dx.numel() == 0) return;
  if (O == 0) {
    if (!accumulate) cuda::fill(stream, dx, 0);
    return;
  }
  for_rows(stream.cuda(), dx.dim(0), std::max(I, O), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t T = end - begin;
    const TensorView to = dx.rows(begin, end);
    multiply(stream.cuda(), {"the gradient of a linear layer's input",
                             {w, I, O, false},
                             {dy.rows(begin, end), O, T, false},
                             {to, I, T, false},
                             I,
                             T,
                             O,
                             {},
                             accumulate ? to : TensorView{}});
  });
}

void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const ConstTensorView& dy,
                            const ConstTensorView& x, bool accumulate) {
  const std::int64_t T = x.dim(0), I = x.dim(1), O = dy.dim(1);
  if (O == 0) return;
  if (!accumulate && !dbias.empty()) cuda::fill(stream, dbias, 0);
  if (!accumulate && T == 0 && !dw.empty()) cuda::fill(stream, dw, 0);
  if (T == 0) return;
  if (I > 0 && !dw.empty()) {
    for_rows(stream.cuda(), T, std::max(I, O), [&](std::int64_t begin, std::int64_t end) {
      multiply(stream.cuda(), {"the gradient of a linear layer's weights",
                               {x.rows(begin, end), I, end - begin, false},
                               {dy.rows(begin, end), O, end - begin, true},
                               {dw, I, O, false},
                               I,
                               O,
                               end - begin,
                               {},
                               accumulate || begin > 0 ? dw : TensorView{}});
    });
  }
  if (dbias.empty()) return;
  dispatch_storage(dy.dtype, [&]<class S>() {
    constexpr int W = pack_width<S>;
    add_column_sums<W>(stream.cuda(), dbias.as<float>(), T, O, O % W == 0 && aligned_to(16, {dy.data}),
                       Column<S>{dy.as<S>(), O});
  });
}

}  // namespace ringtrain::cuda
