// How this process multiplies bfloat16 numbers on a CPU. Two ways give the same bits (kernels/cpu/pairs.h), but for
// numbers below 2^-126. The third, tiles, adds in an order of its own (kernels/cpu/tiles.h): ranks of a run agree on
// it.
#pragma once

#include <cstdint>

namespace ringtrain {

enum class BFloat16Products : std::uint8_t {
  widened,  // one at a time, as float32, by fused multiply-adds
  pairs,    // two at a time, by AVX512-BF16's VDPBF16PS; where there is none, by what gives its bits, slowly
  tiles,    // linear layers by AMX's TDPBF16PS, likewise; attention by pairs, or widened, as this build has them
};

/// Returns what products of bfloat16 take. At the first call: what the variable RINGTRAIN_BFLOAT16 names (widened,
/// pairs, tiles), else tiles if this processor has them and they give the bits that they should, else pairs if this
/// build has the instruction and this processor is found to be faster with it, which takes under a millisecond. Throws
/// Error(usage) for another name. Any thread may call it.
BFloat16Products bfloat16_products();

/// Has later calls of kernels take these, while none runs: for tests and benchmarks.
void use_bfloat16_products(BFloat16Products products);

/// Returns the name of the instructions in use, for people: "AMX", "AVX512-BF16", each perhaps " emulated", or
/// "float32".
const char* bfloat16_products_text();

/// Returns in which order products are added: "by tiles", or "one by one". Where it is the same, so are all bits.
const char* bfloat16_sums_text();

}  // namespace ringtrain
