// The arithmetic of cuBLASLt: one product of column-major matrices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cublasLt.h"

namespace cuda_emulator {

struct MatrixLayout {
  cudaDataType_t type = CUDA_R_32F;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading_dimension = 0;

  std::size_t element_bytes() const { return type == CUDA_R_16BF ? 2 : 4; }
  /// From the first element to the end of the last.
  std::size_t bytes() const;
};

struct MatrixProduct {
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 0;
  bool rounded_before_added = false;  // to d's type, before c is added
  MatrixLayout a_layout, b_layout, c_layout, d_layout;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  // may be d; not read if beta is 0
  void* d = nullptr;
  std::int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;  // of d's type

  std::uint64_t m() const { return d_layout.rows; }
  std::uint64_t n() const { return d_layout.columns; }
  std::uint64_t k() const { return transpose_a ? a_layout.rows : a_layout.columns; }
};

void multiply(const MatrixProduct& product);

}  // namespace cuda_emulator
