// The 64 bits that describe an operand in shared memory to wgmma; host and device.
#pragma once

#include <cstdint>

#include "framework/sequence/visibility.h"

namespace ringtrain::cuda::hopper {

inline constexpr int swizzle_128_bytes = 1;  // the descriptor's code

/// Returns a descriptor (PTX ISA, "Matrix Descriptor Format" of wgmma): address, leading and stride offset in units of
/// 16 bytes, 14 bits each, at bits 0, 16 and 32; a base offset at 49, 0 for tiles at multiples of 1024 bytes; the
/// swizzle's code at 62.
RINGTRAIN_HOST_DEVICE constexpr std::uint64_t descriptor_bits(std::uint32_t address, std::uint32_t leading_bytes,
                                                              std::uint32_t stride_bytes, int swizzle) {
  return std::uint64_t{(address & 0x3FFFF) >> 4} | std::uint64_t{(leading_bytes & 0x3FFFF) >> 4} << 16 |
         std::uint64_t{(stride_bytes & 0x3FFFF) >> 4} << 32 | static_cast<std::uint64_t>(swizzle) << 62;
}

}  // namespace ringtrain::cuda::hopper
