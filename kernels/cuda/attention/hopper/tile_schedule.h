// Chooses the order of a call's tiles on Hopper: sections of heads that fit the L2 cache, and a beginning with which
// all multiprocessors end at about the same time. Host only; kernels read the result (tile_order.h).
//
// Longest first leaves up to 10 % of the multiprocessors' time unused if each gets from 2 to 5 tiles of a causal call:
// a long and a short tile add up to the same time on all of them, and the remaining tiles are too coarse to distribute.
// If tiles of middle length come before the longest ones, the sums differ, and the last tiles fill the differences. The
// host finds these tiles by simulating the call, once for each shape, in a few milliseconds.
#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/attention/hopper/tile_order.h"

namespace ringtrain::cuda::hopper {

/// Returns how many multiprocessors a call fills: all but those of KeptFree, and at least half of them.
int multiprocessors_for(const Stream& stream);

/// Returns the order of forward's tiles of queries, for B * H heads. Tiles count from the last token downwards.
TileOrder forward_order(const AttentionShape& shape, const AttentionTokens& queries, const AttentionTokens& keys,
                        int multiprocessors);

/// Returns the order of backward's tiles of keys, for B * G heads. Deterministic: the tiles of a head are in the order
/// of their keys, in which they add to dq, so no block waits for a later one.
TileOrder backward_order(const AttentionShape& shape, const AttentionTokens& queries, const AttentionTokens& keys,
                         int multiprocessors);

}  // namespace ringtrain::cuda::hopper
