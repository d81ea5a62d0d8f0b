// How this process multiplies bfloat16 numbers on a CPU. Both ways give the same bits (kernels/cpu/pairs.h), except for
// numbers below 2^-126, so the faster one may be chosen.
#pragma once

#include <cstdint>

namespace ringtrain {

enum class BFloat16Products : std::uint8_t {
  widened,  // one at a time, as float32, by fused multiply-adds
  pairs,    // two at a time, by AVX512-BF16's VDPBF16PS, or by a slow emulation with the same bits
};

/// Returns how bfloat16 numbers are multiplied. Determined at the first call: what the variable RINGTRAIN_BFLOAT16
/// names (widened, pairs), or else pairs if this build has the instruction and a measurement of under a millisecond
/// shows that this processor is faster with it. Throws Error(usage) for another name. Any thread may call it.
BFloat16Products bfloat16_products();

/// Sets what later kernel calls use. No kernel may be running. For tests and benchmarks.
void use_bfloat16_products(BFloat16Products products);

/// Returns the name of the instructions in use, for people: "AVX512-BF16", "AVX512-BF16 emulated", or "float32".
const char* bfloat16_products_text();

}  // namespace ringtrain
