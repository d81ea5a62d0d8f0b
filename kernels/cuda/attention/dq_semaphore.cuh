// Deterministic dq: an ordered semaphore. Blocks that add to the same tile of dq take turns, in the order of their key
// tiles.
//
// A block owns a tile of keys of one head and goes through the query tiles that see it; each yields a share of that
// tile's dq. The shares are added with atomics in both modes. In the deterministic mode, a block adds only when it is
// its turn: when the number of blocks that have added is the number of key tiles before its own that the query tile may
// see. That number, its rank, is the key tile's index plus a base per (sequence, query tile, key segment), which a
// small kernel computes beforehand.
//
// No block waits for a block that may never run: when a block starts, it takes a work index, which determines its key
// tile, and the order of turns follows the indices. So a block waits only for blocks that started before it, and the
// first waits for none. Going through query tiles from the last downwards keeps the waits short: under a causal mask,
// all key tiles' passes begin at the same query tile, and those with the longest passes have the first work indices, so
// blocks add in the order in which the passes reach a tile anyway.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/attention_mask.cuh"
#include "kernels/cuda/bounded_wait.cuh"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda {

/// The semaphore in a call's workspace.
struct DqSemaphore {
  int* next_work;  // the next work index
  int* added;      // [B, H, query tiles]: how many blocks have added
  int* bases;      // [B, query tiles, most_segments]: a key tile's rank is the base of its segment plus its index
  int per_head;    // tile_bound of the queries
};

/// Returns a number for a tile that is unique in its shard and below tile_bound(tokens, size).
__host__ __device__ inline int slot_of(const Tile& tile, int size) {
  return tile.begin / size + tile.segment;
}

inline std::size_t semaphore_bytes(const AttentionShape& shape, std::int64_t Tq, int query_tile) {
  const std::int64_t tiles = shape.B * tile_bound(Tq, query_tile);
  return static_cast<std::size_t>(1 + tiles * (shape.H + most_segments)) * sizeof(int);
}

/// Returns the semaphore of a call in `workspace`, which has semaphore_bytes.
inline DqSemaphore semaphore_in(void* workspace, const AttentionShape& shape, std::int64_t Tq, int query_tile) {
  const std::int64_t per_head = tile_bound(Tq, query_tile);
  int* const next_work = static_cast<int*>(workspace);
  return {next_work, next_work + 1, next_work + 1 + shape.B * shape.H * per_head, static_cast<int>(per_head)};
}

/// Prepares the semaphore for a call: no work index is taken, no block has added, and the bases follow from the mask
/// and the tokens.
void prepare_semaphore(Context& context, const DqSemaphore& semaphore, const AttentionShape& shape,
                       const TokenMap& queries, const TokenMap& keys, int query_tile, int key_tile);

/// Returns the counter of a query tile of head h, and the rank of a key tile there.
__device__ inline int* counter_of(const DqSemaphore& semaphore, std::int64_t sequence_head, int query_slot) {
  return semaphore.added + sequence_head * semaphore.per_head + query_slot;
}
__device__ inline int rank_of(const DqSemaphore& semaphore, int b, int query_slot, const TileCursor& keys) {
  const std::int64_t tile = std::int64_t{b} * semaphore.per_head + query_slot;
  return __ldg(semaphore.bases + tile * most_segments + keys.segment) + keys.index;
}

/// Waits until `rank` blocks have added. Called by one thread; after a barrier, the block then adds.
__device__ inline void semaphore_acquire(const int* turn, int rank, [[maybe_unused]] const WaitNames& names) {
#if defined(RINGTRAIN_BOUNDED_WAITS)
  wait_within_bounds(
      [&] {
        if (load_acquire(turn) == rank) return true;
        let_others_run();
        return false;
      },
      [&] {
        return VainWait{names, "blocks before it", "blocks that have added", rank, load_acquire(turn)};
      });
#elif defined(RINGTRAIN_CUDA_EMULATED)
  if (load_acquire(turn) != rank) __trap();  // blocks run one after another there: a turn that has not come never will
#else
  while (load_acquire(turn) != rank) {
  }
#endif
}
/// Lets the next block add. Called by one thread, after a __threadfence of all threads that have added and a barrier.
__device__ inline void semaphore_release(int* turn) {
  add_release(turn, 1);
}

}  // namespace ringtrain::cuda
