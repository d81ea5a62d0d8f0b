// Operands are unpacked to float, op(A) with adjacent rows; sums are computed in parts of the depth.
#include "api/matrix_product.h"

#include <algorithm>
#include <vector>

#include "cuda_bf16.h"

namespace cuda_emulator {

namespace {

constexpr std::size_t depth_part = 128;

float load(const void* from, cudaDataType_t type, std::size_t at) {
  return type == CUDA_R_16BF ? __bfloat162float(static_cast<const __nv_bfloat16*>(from)[at])
                             : static_cast<const float*>(from)[at];
}

void store(void* to, cudaDataType_t type, std::size_t at, float value) {
  if (type == CUDA_R_16BF) {
    static_cast<__nv_bfloat16*>(to)[at] = __float2bfloat16_rn(value);
  } else {
    static_cast<float*>(to)[at] = value;
  }
}

// Returns the matrix as float, column by column; transposed: row by row.
std::vector<float> unpack(const void* from, const MatrixLayout& layout, bool transposed) {
  std::vector<float> to(layout.rows * layout.columns);
  for (std::size_t column = 0; column < layout.columns; ++column) {
    for (std::size_t row = 0; row < layout.rows; ++row) {
      to[transposed ? row * layout.columns + column : column * layout.rows + row] =
          load(from, layout.type, column * static_cast<std::size_t>(layout.leading_dimension) + row);
    }
  }
  return to;
}

// sums[m] = a[k][m] b[k]
void multiply_column(const float* a, const float* b, float* sums, float* part, std::size_t m, std::size_t k) {
  std::fill_n(sums, m, 0.0f);
  for (std::size_t begin = 0; begin < k; begin += depth_part) {
    std::fill_n(part, m, 0.0f);
    for (std::size_t p = begin; p < std::min(k, begin + depth_part); ++p) {
      const float* column = a + p * m;
      for (std::size_t row = 0; row < m; ++row) part[row] += column[row] * b[p];
    }
    for (std::size_t row = 0; row < m; ++row) sums[row] += part[row];
  }
}

}  // namespace

void multiply(const MatrixProduct& product) {
  const std::size_t m = product.m(), n = product.n(), k = product.k();
  const std::vector<float> a = unpack(product.a, product.a_layout, product.transpose_a);
  const std::vector<float> b = unpack(product.b, product.b_layout, product.transpose_b);
  const MatrixLayout& c_layout = product.c_layout;
  const MatrixLayout& d_layout = product.d_layout;
  std::vector<float> sums(m), part(m);
  for (std::size_t column = 0; column < n; ++column) {
    // op(B) is k x n, by columns: b[column * k + p].
    multiply_column(a.data(), &b[column * k], sums.data(), part.data(), m, k);
    for (std::size_t row = 0; row < m; ++row) {
      float value = product.alpha * sums[row];
      if (product.rounded_before_added && d_layout.type == CUDA_R_16BF)
        value = __bfloat162float(__float2bfloat16_rn(value));
      if (product.beta != 0) {
        value += product.beta *
                 load(product.c, c_layout.type, column * static_cast<std::size_t>(c_layout.leading_dimension) + row);
      }
      if (product.epilogue == CUBLASLT_EPILOGUE_BIAS) {
        // Observed on an H100 with cuBLASLt 13: an additional rounding before the bias, wherever beta is stored.
        if (k % 8 != 0 && d_layout.type == CUDA_R_16BF) value = __bfloat162float(__float2bfloat16_rn(value));
        value += load(product.bias, d_layout.type, row);
      }
      store(product.d, d_layout.type, column * static_cast<std::size_t>(d_layout.leading_dimension) + row, value);
    }
  }
}

std::size_t MatrixLayout::bytes() const {
  if (rows == 0 || columns == 0) return 0;
  return ((columns - 1) * static_cast<std::size_t>(leading_dimension) + rows) * element_bytes();
}

}  // namespace cuda_emulator
