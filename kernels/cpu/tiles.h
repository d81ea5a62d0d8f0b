// Products of bfloat16 by the tiles of AMX (Intel SDM vol. 2, TDPBF16PS): 16 rows of 16 pairs times 16 pairs of 16
// columns, in one instruction. It adds the products of the pairs' upper halves in one chain of fused multiply-adds from
// 0, those of the lower halves in another, then both to each other, and that to the sum. So its bits are not those of
// pairs.h, but likewise depend on an element's row, column and terms alone. Numbers below 2^-126 are 0.
//
// The instructions are written as assembly, so that every x86-64 build has them. Whether they may be used is asked when
// a process starts (kernels/bfloat16_products.h). What gives their bits on any processor stands here, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/pairs.h"

namespace ringtrain::cpu {

/// A pair of bfloat16 that is packed for tiles.
struct Tiled {
  std::uint32_t bits;
};
template <>
struct Simd<Tiled> {
  using Vector = Words;
};
template <>
inline constexpr std::int64_t terms_of<Tiled> = 2;

namespace tiles {

/// Rows, columns and pairs of a tile.
inline constexpr std::int64_t side = 16, elements = side * side;
/// A product of tiles makes two rows of two tiles: with two of each operand they fill the eight registers.
inline constexpr std::int64_t block = 2 * side;

/// Whether this process may use the instructions: processor and system have them, and the system has let it. Asks at
/// the first call.
bool available();

/// sums[block, block] = A B: A is `depth` tiles of `side` rows, then as many of the next rows, if second; B is `depth`
/// times `side` rows of `block` pairs. By the instructions; the calling thread has a Configured.
void multiply(std::int64_t depth, bool second, const Tiled* a, const Tiled* b, float* sums);
/// The same bits, on any processor.
void multiply_emulated(std::int64_t depth, bool second, const Tiled* a, const Tiled* b, float* sums);

/// The calling thread's tiles while they are in use. They are many registers, which a system saves until they are
/// released.
class Configured {
 public:
  /// wanted: false does nothing.
  explicit Configured(bool wanted);
  ~Configured();
  Configured(const Configured&) = delete;
  Configured& operator=(const Configured&) = delete;

 private:
  const bool wanted_;
};

}  // namespace tiles

}  // namespace ringtrain::cpu
