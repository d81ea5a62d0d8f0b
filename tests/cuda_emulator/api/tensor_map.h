// The emulator's content of a CUtensorMap, and the walk over a box of the tensor, as in TMA.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda.h"

namespace cuda_emulator {

class Block;

struct TensorMap {
  std::uint64_t mark;
  char* address;
  std::array<std::uint64_t, 4> strides;  // bytes, of dimension 1 and on
  std::array<std::uint32_t, 5> last;     // sizes less 1
  std::array<std::uint16_t, 5> box;
  std::uint8_t type, rank, swizzle, element_bytes;

  std::size_t row_bytes() const { return std::size_t{box[0]} * element_bytes; }
  std::size_t rows() const;
  std::size_t box_bytes() const { return rows() * row_bytes(); }
};

using Coordinates = std::array<int, 5>;

/// Returns the map's content. Fails unless it was made by cuTensorMapEncodeTiled with four dimensions, for memory that
/// exists.
TensorMap decode(Block& block, const CUtensorMap& map);

/// Returns the address with its 16-byte chunk moved by the swizzle: 0 none, 1 of 32 bytes, 2 of 64, 3 of 128.
constexpr std::uint32_t swizzled(std::uint32_t address, int swizzle) {
  return address ^ (((address >> 7) & ((1u << swizzle) - 1)) << 4);
}

/// Copies a box of the tensor to contiguous bytes, one row after another; zeros outside the tensor.
void read_box(const TensorMap& map, const Coordinates& at, std::span<char> to);
/// Adds a box of floats to the tensor; elements outside are not touched.
void add_box(const TensorMap& map, const Coordinates& at, std::span<const char> from);

/// Moves the rows of a box between contiguous bytes and swizzled shared memory.
void to_shared(const TensorMap& map, std::span<const char> from, void* shared);
void from_shared(const TensorMap& map, const void* shared, std::span<char> to);

}  // namespace cuda_emulator
