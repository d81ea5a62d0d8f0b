// ldmatrix, stmatrix and mma.sync, with the PTX ISA's layouts. Of lane l: group g = l / 4, thread in group t = l % 4.
//   mma.m16n8k16, 16-bit operands: a[0] rows g, k 2t and 2t + 1; a[1] row g + 8; a[2] k + 8; a[3] row g + 8, k + 8;
//   b[0] k 2t and 2t + 1, column g; b[1] k + 8; c[0], c[1] row g, columns 2t and 2t + 1; c[2], c[3] row g + 8.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_emulator_device.h"
#include "device/block.h"
#include "device/mma.h"

namespace cuda_emulator {

namespace {

// --- ldmatrix ------------------------------------------------------------------------------------------------------

struct Load {
  const void* row;
  std::uint32_t* to;
};

template <bool Transposed>
void load(Block& block, const Lanes& lanes) {
  for (int m = 0; m < 4; ++m) {
    std::uint16_t matrix[8][8];
    for (int r = 0; r < 8; ++r) {
      const void* row = lanes.of<Load>(m * 8 + r).row;
      if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
        block.fail(fmt::format("ldmatrix: row address {} of lane {} is not aligned to 16 bytes", row, m * 8 + r));
      }
      std::memcpy(matrix[r], row, 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      const std::uint16_t low = Transposed ? matrix[2 * t][g] : matrix[g][2 * t];
      const std::uint16_t high = Transposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
      lanes.of<Load>(lane).to[m] = low | static_cast<std::uint32_t>(high) << 16;
    }
  }
}

template <bool Transposed>
void load_matrices(std::uint32_t (&r)[4], const void* row, const std::source_location& where) {
  Load mine{row, r};
  running().warp().meet_all("ldmatrix_x4", &mine, load<Transposed>, where);
}

struct Save {
  void* row;
  const std::uint32_t* from;
};

void save(Block& block, const Lanes& lanes) {
  for (int m = 0; m < 4; ++m) {
    for (int r = 0; r < 8; ++r) {
      void* row = lanes.of<Save>(m * 8 + r).row;
      if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
        block.fail(fmt::format("stmatrix: row address {} of lane {} is not aligned to 16 bytes", row, m * 8 + r));
      }
      std::uint32_t pairs[4];
      for (int t = 0; t < 4; ++t) pairs[t] = lanes.of<Save>(r * 4 + t).from[m];
      std::memcpy(row, pairs, sizeof(pairs));
    }
  }
}

// --- mma -----------------------------------------------------------------------------------------------------------

struct Product {
  float* c;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

void multiply(Block&, const Lanes& lanes) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const auto& mine = lanes.of<Product>(lane);
    for (int i = 0; i < 4; ++i) {
      const int row = g + 8 * (i % 2), k = 2 * t + 8 * (i / 2);
      a[row][k] = low_bf16(mine.a[i]);
      a[row][k + 1] = high_bf16(mine.a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[2 * t + 8 * i][g] = low_bf16(mine.b[i]);
      b[2 * t + 8 * i + 1][g] = high_bf16(mine.b[i]);
    }
    for (int i = 0; i < 4; ++i) c[g + 8 * (i / 2)][2 * t + i % 2] = mine.c[i];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    auto& mine = lanes.of<Product>(lane);
    for (int i = 0; i < 4; ++i) mine.c[i] = c[g + 8 * (i / 2)][2 * t + i % 2];
  }
}

}  // namespace

void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, Where where) {
  load_matrices<false>(r, row, where);
}
void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row, Where where) {
  load_matrices<true>(r, row, where);
}

void stmatrix_x4(void* row, const std::uint32_t (&r)[4], Where where) {
  running().need_hopper("stmatrix_x4");
  Save mine{row, r};
  running().warp().meet_all("stmatrix_x4", &mine, save, where);
}

void mma_m16n8k16_bf16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Where where) {
  Product mine{c, a, b};
  running().warp().meet_all("mma_m16n8k16_bf16", &mine, multiply, where);
}

float exp2_approx(float x) {
  const float flushed = std::fpclassify(x) == FP_SUBNORMAL ? 0.0f : x;
  const float result = std::exp2(flushed);
  return std::fpclassify(result) == FP_SUBNORMAL ? 0.0f : result;
}

}  // namespace cuda_emulator
