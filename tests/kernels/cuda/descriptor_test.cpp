// The descriptors of Hopper's matrix operands, bit by bit. The numbers are those of the PTX ISA ("Matrix Descriptor
// Format" and the canonical layouts of wgmma); CUTLASS 4.2 makes the same ones for these tiles (its make_gmma_desc, for
// tiles swizzled by 128 bytes, K-major and MN-major).
#include "kernels/cuda/attention/hopper/descriptor.h"

#include <gtest/gtest.h>

namespace ringtrain::cuda::hopper {
namespace {

TEST(WgmmaDescriptor, HasTheBitsOfThePtxIsa) {
  // Rows of 64 contiguous elements of the sum: groups of 8 rows 1024 bytes apart.
  EXPECT_EQ(descriptor_bits(0, 16, 1024, swizzle_128_bytes), 0x4000'0040'0001'0000U);
  // Rows along the sum, 128 of them in a block of 64 columns: the next block 16 KiB on.
  EXPECT_EQ(descriptor_bits(0, 128 * 128, 1024, swizzle_128_bytes), 0x4000'0040'0400'0000U);
  EXPECT_EQ(descriptor_bits(0, 64 * 128, 1024, swizzle_128_bytes), 0x4000'0040'0200'0000U);
}

TEST(WgmmaDescriptor, HoldsAnyAddressOfAMultiprocessor) {
  EXPECT_EQ(descriptor_bits(0x400, 16, 1024, swizzle_128_bytes), 0x4000'0040'0001'0040U);
  EXPECT_EQ(descriptor_bits(0x38FF0, 16, 1024, swizzle_128_bytes), 0x4000'0040'0001'38FFU);
  EXPECT_EQ(descriptor_bits(0x01000400, 16, 1024, swizzle_128_bytes), 0x4000'0040'0001'0040U);  // of the window
}

}  // namespace
}  // namespace ringtrain::cuda::hopper
