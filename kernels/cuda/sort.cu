// Sorts one digit at a time: counts each digit's keys in every tile, turns the counts into the positions at which a
// tile's keys of a digit begin, and moves the keys there in order. The order inside a tile: warps in order, and in a
// warp rounds of 32 keys; in a round, a key's rank among its equals follows from eight votes, one for each bit of the
// digit.
#include "kernels/cuda/sort.cuh"

#include <bit>

#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda {

namespace {

constexpr int digit_bits = 8, digits = 1 << digit_bits;
constexpr int tile_threads = 256, tile_warps = tile_threads / 32, rounds = 8;
constexpr int warp_keys = 32 * rounds, tile_keys = tile_warps * warp_keys;
static_assert(tile_threads == digits);
constexpr int max_tiles = max_sorted / tile_keys;

/// The keys of a pass, and the input index of each; positions == null, as before the first digit: its own index.
struct Keys {
  std::uint32_t *keys, *positions;
};

__global__ void __launch_bounds__(tile_threads)
    count_kernel(const std::uint32_t* const keys, const int n, const int shift, std::uint32_t* const counts) {
  __shared__ std::uint32_t of_digit[digits];
  of_digit[threadIdx.x] = 0;
  __syncthreads();
  const int begin = static_cast<int>(blockIdx.x) * tile_keys, end = min(n, begin + tile_keys);
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += tile_threads) {
    atomicAdd(&of_digit[keys[i] >> shift & (digits - 1)], 1U);
  }
  __syncthreads();
  counts[threadIdx.x * gridDim.x + blockIdx.x] = of_digit[threadIdx.x];
}

constexpr int scan_threads = 1024;

/// Replaces counts[total] by the sums of all previous counts. One block; each thread has a run of adjacent counts.
__global__ void __launch_bounds__(scan_threads) scan_kernel(std::uint32_t* const counts, const int total) {
  __shared__ std::uint32_t of_warp[scan_threads / 32];
  const int run = (total + scan_threads - 1) / scan_threads;
  const int begin = min(total, static_cast<int>(threadIdx.x) * run), end = min(total, begin + run);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t run_sum = 0;
  for (int i = begin; i < end; ++i) run_sum += counts[i];
  std::uint32_t up_to = run_sum;  // the sum up to this lane, within the warp
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const std::uint32_t below = __shfl_up_sync(0xffffffffU, up_to, static_cast<unsigned>(lanes));
    if (lane >= lanes) up_to += below;
  }
  if (lane == 31) of_warp[warp] = up_to;
  __syncthreads();
  std::uint32_t before = up_to - run_sum;
  for (int w = 0; w < warp; ++w) before += of_warp[w];
  for (int i = begin; i < end; ++i) {
    const std::uint32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

/// positions == null: a key's position is its index.
__global__ void __launch_bounds__(tile_threads)
    move_kernel(std::uint32_t* const to_keys, std::uint32_t* const to_places, const std::uint32_t* const keys,
                const std::uint32_t* const positions, const int n, const int shift, const std::uint32_t* const begins) {
  __shared__ std::uint32_t next[tile_warps][digits];  // first counts, then the next position of a warp's key of a digit
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int w = 0; w < tile_warps; ++w) next[w][threadIdx.x] = 0;
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * tile_keys + warp * warp_keys + lane;
  std::uint32_t key[rounds], rank[rounds];  // rank: among the warp's keys of the digit
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const int i = first + round * 32;
    key[round] = i < n ? keys[i] : 0;
  }
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const bool valid = first + round * 32 < n;
    const std::uint32_t digit = key[round] >> shift & (digits - 1);
    std::uint32_t equals = __ballot_sync(0xffffffffU, valid);
#pragma unroll
    for (int bit = 0; bit < digit_bits; ++bit) {
      const bool set = (digit >> bit & 1U) != 0;
      const std::uint32_t votes = __ballot_sync(0xffffffffU, set);
      equals &= set ? votes : ~votes;
    }
    const auto in_round = static_cast<std::uint32_t>(__popc(equals & ((1U << lane) - 1)));
    const std::uint32_t before = next[warp][digit];
    rank[round] = before + in_round;
    __syncwarp();
    if (valid && in_round == 0) next[warp][digit] = before + static_cast<std::uint32_t>(__popc(equals));
    __syncwarp();
  }
  __syncthreads();
  std::uint32_t position = begins[threadIdx.x * gridDim.x + blockIdx.x];
  for (int w = 0; w < tile_warps; ++w) {
    const std::uint32_t count = next[w][threadIdx.x];
    next[w][threadIdx.x] = position;
    position += count;
  }
  __syncthreads();
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const int i = first + round * 32;
    if (i >= n) break;
    const std::uint32_t to = next[warp][key[round] >> shift & (digits - 1)] + rank[round];
    to_keys[to] = key[round];
    to_places[to] = positions == nullptr ? static_cast<std::uint32_t>(i) : positions[i];
  }
}

}  // namespace

Sorted sort(Context& context, const std::int32_t* input, int n, std::int64_t bound) {
  ensure(n >= 1 && n <= max_sorted, "a sort's numbers fit its memory");
  static_assert((4 * std::size_t{max_sorted} + digits * max_tiles) * sizeof(std::uint32_t) <=
                Context::partial_sums_bytes);
  auto* const memory = static_cast<std::uint32_t*>(context.partial_sums());
  const Keys sides[2] = {{memory, memory + max_sorted}, {memory + 2 * max_sorted, memory + 3 * max_sorted}};
  std::uint32_t* const counts = memory + 4 * max_sorted;
  const unsigned tiles = blocks_for(n, tile_keys);
  Keys from{const_cast<std::uint32_t*>(reinterpret_cast<const std::uint32_t*>(input)), nullptr};
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bound - 1))));
  for (int shift = 0, side = 0; shift < bits; shift += digit_bits, side ^= 1) {
    const Keys to = sides[side];
    launch<count_kernel>(context, tiles, tile_threads, 0, from.keys, n, shift, counts);
    launch<scan_kernel>(context, 1, scan_threads, 0, counts, digits * static_cast<int>(tiles));
    launch<move_kernel>(context, tiles, tile_threads, 0, to.keys, to.positions, from.keys, from.positions, n, shift,
                        counts);
    from = to;
  }
  return {from.keys, from.positions};
}

}  // namespace ringtrain::cuda
