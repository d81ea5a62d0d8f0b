// How this process multiplies bfloat16 numbers on a CPU. Both ways give the same bits (kernels/cpu/pairs.h), but for
// numbers below 2^-126, so the choice may be the faster one.
#pragma once

#include <cstdint>

namespace ringtrain {

enum class BFloat16Products : std::uint8_t {
  widened,  // one at a time, as float32, by fused multiply-adds
  pairs,    // two at a time, by AVX512-BF16's VDPBF16PS; where there is none, by what gives its bits, slowly
};

/// Returns what products of bfloat16 take. At the first call: what the variable RINGTRAIN_BFLOAT16 names (widened,
/// pairs), else pairs if this build has the instruction and this processor is found to be faster with it, which takes
/// under a millisecond. Throws Error(usage) for another name. Any thread may call it.
BFloat16Products bfloat16_products();

/// Has later calls of kernels take these, while none runs: for tests and benchmarks.
void use_bfloat16_products(BFloat16Products products);

/// Returns the name of the instructions in use, for people: "AVX512-BF16", "AVX512-BF16 emulated", or "float32".
const char* bfloat16_products_text();

}  // namespace ringtrain
