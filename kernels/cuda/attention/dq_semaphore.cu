#include "kernels/cuda/attention/dq_semaphore.cuh"

namespace ringtrain::cuda {

namespace {

/// One warp for each (sequence, query tile).
__global__ void prepare_kernel(const DqSemaphore semaphore, const AttentionMask mask, const int B, const int H,
                               const __grid_constant__ TokenMap queries, const __grid_constant__ TokenMap keys,
                               const int query_tile, const int key_tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (warp == 0 && lane == 0) *semaphore.next_work = 0;
  const int tiles = tile_count(queries, query_tile), b = static_cast<int>(warp / tiles);
  if (b >= B) return;
  const Tile tile = tile_at(queries, query_tile, static_cast<int>(warp % tiles));
  const int slot = slot_of(tile, query_tile);
  for (int h = lane; h < H; h += 32) *counter_of(semaphore, std::int64_t{b} * H + h, slot) = 0;
  const DocumentRange documents = documents_seen(queries, tile, keys, b);
  if (lane != 0) return;
  const PositionRange positions = keys_seen_by(mask, tile.positions());
  int before = 0;
  for (int segment = 0; segment < keys.segments; ++segment) {
    const TileRange range = tiles_seen(keys, key_tile, segment, positions, documents);
    semaphore.bases[(std::int64_t{b} * semaphore.per_head + slot) * most_segments + segment] = before - range.first;
    before += range.size();
  }
}

}  // namespace

void prepare_semaphore(Context& context, const DqSemaphore& semaphore, const AttentionShape& shape,
                       const TokenMap& queries, const TokenMap& keys, int query_tile, int key_tile) {
  constexpr int threads = 128;
  const std::int64_t warps = shape.B * tile_count(queries, query_tile);
  launch<prepare_kernel>(context, dim3(blocks_for(warps * 32, threads)), dim3(threads), 0, semaphore, shape.mask,
                         static_cast<int>(shape.B), static_cast<int>(shape.H), queries, keys, query_tile, key_tile);
}

}  // namespace ringtrain::cuda
