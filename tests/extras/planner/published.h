// The sums of "Ring Attention with Blockwise Transformers for Near-Infinite Context" (Liu, Zaharia, Abbeel, 2023), as
// functions of a plan: the least block that hides a transfer, activation bytes of four kinds of transformer, the
// longest context that fits, FLOPs of longer contexts; and the same numbers as the paper prints them.
// bench/planning/paper.md has both side by side, from published_tables(). Pure but for reading configs/hardware.
#pragma once

#include <cstdint>
#include <string>

#include "extras/planner/hardware.h"

namespace ringtrain {

/// The paper's four kinds of transformer layer (its Table 1).
enum class LayerKind { vanilla, memory_efficient_attention, blockwise, ring };

/// A model of the paper: LLaMA's widths (Touvron et al., 2023), OpenLLaMA's for 3B, GPT-3's for 175B.
struct PublishedModel {
  const char* name;
  std::int64_t hidden, layers, heads, intermediate;
};
inline constexpr std::int64_t published_vocabulary = 32000;

/// Returns FLOPS / bandwidth in tokens: the block from which on computing hides its transfer, with every rate perfect
/// (section 3): tokens_to_hide() of 4 d FLOPs a pair and 4 d bytes a token.
double min_block(const Hardware& hardware);

/// Returns the largest activation of one layer in bytes, bfloat16 (Table 1): b sequences of s tokens, width h, n heads,
/// blocks of c tokens. Of a ring the table has numbers, which are half the bytes.
double layer_activation_bytes(LayerKind kind, double b, double s, double h, double n, double c);

/// Returns the FLOPs of one sequence in one layer, 24 s h^2 + 4 s^2 h (appendix D): forward, full attention.
double sequence_flops(double s, double h);
/// Returns how many times the FLOPs a token that a context of `base` tokens costs, one of `s` costs.
double flops_ratio(double h, double s, double base = 4096);

/// Returns the longest context, a power of two, whose training fits on `devices`: sharded weights, gradients and
/// moments in float32 (16 bytes a parameter over all devices), each layer's output kept (full recompute), one layer's
/// largest activation, in elements of `element_bytes`. Of the ring a device holds 1/devices of the context.
std::int64_t longest_published_context(const PublishedModel& model, LayerKind kind, const Hardware& hardware,
                                       std::int64_t devices, double element_bytes);

/// Returns the parameters of a model: 4 h^2 + 3 h f a layer and two tables of words.
double parameters_of(const PublishedModel& model);

/// Returns all tables as the Markdown that bench/planning/paper.md holds.
std::string published_tables();

}  // namespace ringtrain
