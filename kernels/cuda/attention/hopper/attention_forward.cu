// Attention forward for Hopper. A block has one warpgroup whose first warp loads, and two (D = 128) or three (D = 64)
// warpgroups that compute, each with 64 queries of the block's tile. Keys and values come in tiles of 128 through a
// ring of two stages; the loading warp chooses the tiles and sends a description with each of them.
//
// A computing warpgroup always has the scores of one tile of keys and the products with the values of the previous tile
// in flight: its softmax overlaps with its own second product. Warpgroups start products in turns, so that the softmax
// of one also overlaps with the products of another (both after FlashAttention-3). Scores are kept unscaled; the scale
// is folded into the exponent, in base 2. P stays in registers, as the first operand of the product with v.
#include <algorithm>

#include "kernels/cuda/attention/hopper/attention_hopper.h"
#include "kernels/cuda/attention/hopper/common.cuh"
#include "kernels/cuda/attention/hopper/tensor_map.h"
#include "kernels/cuda/attention/hopper/tile_schedule.h"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda::hopper {

namespace {

constexpr int stages = 2;

template <int D>
struct ForwardPlan {
  static constexpr int groups = D == 64 ? 3 : 2;  // warpgroups that compute
  static constexpr int queries = groups * group_rows;
  static_assert(queries == forward_query_tile(D));
  static constexpr int threads = (1 + groups) * warpgroup;
  static constexpr int loading_registers = D == 64 ? 32 : 40;
  static constexpr int computing_registers = D == 64 ? 160 : 232;
  static_assert(registers_suffice(loading_registers, computing_registers, groups));
  static constexpr int query_bytes = queries * D * 2, key_bytes = key_tile * D * 2;
};

/// The loading warp's description of a tile of queries; b < 0: there are no more.
struct ForwardWork {
  int b, h, segment, index;
  bool any_keys;  // whether it sees a tile of keys
};
/// Its description of each tile of keys.
struct alignas(16) ForwardStep {
  int segment, index, masked, continues;
};

template <int D>
struct alignas(1024) ForwardShared {
  unsigned char q[ForwardPlan<D>::query_bytes];        // [D / 64][queries][64]
  unsigned char k[stages][ForwardPlan<D>::key_bytes];  // [D / 64][128][64]
  unsigned char v[stages][ForwardPlan<D>::key_bytes];
  ForwardStep steps[stages];
  ForwardWork work;
  Steps found;
  std::uint32_t never;  // for wgmma_wait_behind
  PipelineBarriers<1, Pipeline::forward_queries> q_pipeline;
  PipelineBarriers<stages, Pipeline::forward_keys> k_pipeline;
  PipelineBarriers<stages, Pipeline::forward_values> v_pipeline;
};

static_assert(sizeof(ForwardShared<64>) <= max_shared_bytes && sizeof(ForwardShared<128>) <= max_shared_bytes);

struct ForwardArguments : CallArguments {
  CUtensorMap q, k, v;
  bool first, last;
  float *o, *m, *l;    // [B, Tq, H, D], [B, H, Tq], [B, H, Tq]
  __nv_bfloat16* out;  // [B, Tq, H, D]
  float* lse;          // [B, H, Tq]
  int* counter;
};

/// Loads a tile of queries, then its keys and values as buffers become free (one thread). valid: whether `next` is at a
/// tile of keys.
template <int D>
__device__ void load_tile(const ForwardArguments& a, ForwardShared<D>& shared, PipelineState<1>& work_slot,
                          PipelineState<stages>& slot, const Tile& queries, int b, int h, TileCursor next, bool valid) {
  using Plan = ForwardPlan<D>;
  const int g = h / (a.H / a.G);
  work_slot.wait_empty(shared.q_pipeline);
  shared.work = {b, h, queries.segment, queries.index, valid};
  std::uint64_t* full = &shared.q_pipeline.full[0];
  mbarrier_arrive_expect_tx(full, Plan::query_bytes);
  load_blocks<D>(shared.q, &a.q, full, Plan::queries, h, queries.begin, b, a.once);
  work_slot.advance();
  while (valid) {
    const TileCursor keys = next;
    const int begin = a.keys.runs[keys.segment].begin + keys.index * key_tile;
    valid = next.next(shared.found.seen);
    slot.wait_empty(shared.k_pipeline);
    shared.steps[slot.stage] = {keys.segment, keys.index, shared.found.masked(keys), valid};
    full = &shared.k_pipeline.full[slot.stage];
    mbarrier_arrive_expect_tx(full, Plan::key_bytes);
    load_blocks<D>(shared.k[slot.stage], &a.k, full, key_tile, g, begin, b, a.often);
    slot.wait_empty(shared.v_pipeline);
    full = &shared.v_pipeline.full[slot.stage];
    mbarrier_arrive_expect_tx(full, Plan::key_bytes);
    load_blocks<D>(shared.v[slot.stage], &a.v, full, key_tile, g, begin, b, a.often);
    slot.advance();
  }
}

/// Takes tiles of queries and loads their data (one warp). Only one of its threads waits and loads: a barrier
/// distinguishes phases only by parity, so waiting threads must not fall behind.
template <int D>
__device__ void load_tiles(const ForwardArguments& a, ForwardShared<D>& shared) {
  const bool elected = threadIdx.x % 32 == 0;
  PipelineState<1> work_slot;
  PipelineState<stages> slot;
  for (;;) {
    const int work_index = take_work_index(a.counter);
    if (work_index >= a.order.count()) break;
    const auto [reversed, head] = a.order[work_index];
    const int b = head / a.H, h = head % a.H;
    const Tile queries = tile_at(a.queries, ForwardPlan<D>::queries, a.order.tiles - 1 - reversed);
    // An incomplete tile of queries hides none of its keys: rows beyond its end are not stored.
    find_steps(shared.found, a.queries, queries, a.keys, key_tile, keys_seen_by(a.mask, queries.positions()),
               keys_seen_by_all(a.mask, queries.positions()), true, b);
    TileCursor next = TileCursor::before_last(a.keys, shared.found.seen);
    const bool any_keys = next.next(shared.found.seen);
    if (!any_keys && !a.first && !a.last) continue;  // the state does not change
    if (elected) load_tile<D>(a, shared, work_slot, slot, queries, b, h, next, any_keys);
  }
  if (elected) {
    work_slot.wait_empty(shared.q_pipeline);
    shared.work.b = -1;
    mbarrier_arrive(&shared.q_pipeline.full[0]);
  }
}

/// Hides the scores of a tile that the two rows of a thread do not see.
template <int Queries>
__device__ __forceinline__ void mask_scores(float (&s)[key_tile / 2], const ForwardArguments& a,
                                            const ForwardWork& work, int row, const ForwardStep& step) {
  const Tile queries = tile_of(a.queries, Queries, work.segment, work.index);
  const Tile keys = tile_of(a.keys, key_tile, step.segment, step.index);
  const TileMask tile_mask = tile_mask_of(a.mask, queries, keys, key_tile, {0, 0, false}, keys);
  const int column = 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Visible seen = keys_of(tile_mask, row + 8 * half);
    if (a.keys.documents != nullptr) {
      const int i = row + 8 * half < queries.count ? row + 8 * half : 0;  // rows beyond the tile's end are not stored
      const std::int32_t document =
          __ldg(a.queries.documents + static_cast<std::int64_t>(work.b) * a.queries.tokens + queries.begin + i);
      seen = of_document(seen, a.keys.documents + std::int64_t{work.b} * a.keys.tokens + keys.begin, document);
    }
#pragma unroll
    for (int j = 0; j < key_tile / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[4 * j + 2 * half + i];
        if (!seen.has(8 * j + i + column)) score = -INFINITY;
      }
    }
  }
}

/// Turns scores into P = exp2(scale * (score - maximum)), updates the maximum and this thread's part of the sum, and
/// returns the factor by which earlier sums shrink. Two rows per thread; four threads share a row.
__device__ __forceinline__ float2 softmax(float (&s)[key_tile / 2], float (&m)[2], float (&l)[2], float scale_log2) {
  float shrink[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = m[half];
#pragma unroll
    for (int j = 0; j < key_tile / 8; ++j) most = fmaxf(most, fmaxf(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFU, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFU, most, 2));
    const float finite = most == -INFINITY ? 0.0F : most;  // a row without a key yet: no NaN
    const float base = finite * scale_log2;
    // Exactly 1 if the maximum stays. nvcc contracts m * scale - base to one rounding, which would not give 0.
    shrink[half] = exp2_approx((m[half] - finite) * scale_log2);
    m[half] = most;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < key_tile / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& p = s[4 * j + 2 * half + i];
        p = exp2_approx(fmaf(p, scale_log2, -base));
        sum += p;
      }
    }
    l[half] = l[half] * shrink[half] + sum;
  }
  return {shrink[0], shrink[1]};
}

template <int D>
__device__ __forceinline__ void rescale(float (&o)[D / 2], float2 shrink) {
  if (!__any_sync(0xFFFFFFFFU, shrink.x != 1.0F || shrink.y != 1.0F)) return;  // usual once maxima have settled
#pragma unroll
  for (int j = 0; j < D / 8; ++j) {
    o[4 * j] *= shrink.x;
    o[4 * j + 1] *= shrink.x;
    o[4 * j + 2] *= shrink.y;
    o[4 * j + 3] *= shrink.y;
  }
}

/// Starts scores = q k^T; q: the warpgroup's 64 rows.
template <int D>
__device__ __forceinline__ void start_scores(float (&s)[key_tile / 2], std::uint64_t q, const unsigned char* k) {
  using Plan = ForwardPlan<D>;
  const std::uint64_t keys = sum_along_columns(k);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    const int block = step / 4, bytes = 32 * (step % 4);
    wgmma_ss<key_tile, false, false>(s, along(q, block * Plan::queries * row_bytes + bytes),
                                     along(keys, block * key_tile * row_bytes + bytes), step > 0);
  }
  wgmma_commit();
}

/// Starts o += P v.
template <int D>
__device__ __forceinline__ void start_output(float (&o)[D / 2], const std::uint32_t (&p)[key_tile / 16][4],
                                             const unsigned char* v) {
  const std::uint64_t values = sum_along_rows(v, key_tile * row_bytes);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < key_tile / 16; ++step) {
    wgmma_rs<D, true>(o, p[step], along(values, step * 16 * row_bytes), true);
  }
  wgmma_commit();
}

/// Reads the state of the thread's two rows, or sets that of no key. m becomes unscaled; each of the four threads of a
/// row keeps a part of l.
template <int D>
__device__ __forceinline__ void read_state(const ForwardArguments& a, const ForwardWork& work, int row,
                                           float (&o)[D / 2], float (&m)[2], float (&l)[2]) {
  const Tile queries = tile_of(a.queries, ForwardPlan<D>::queries, work.segment, work.index);
  const int t = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = row + 8 * half;
    const bool held = !a.first && i < queries.count;
    const std::int64_t token = queries.begin + i;
    const std::int64_t at_row = (static_cast<std::int64_t>(work.b) * a.H + work.h) * a.queries.tokens + token;
    m[half] = held ? a.m[at_row] / a.scale : -INFINITY;
    l[half] = held && t == 0 ? a.l[at_row] : 0.0F;
    const float* at = a.o + ((static_cast<std::int64_t>(work.b) * a.queries.tokens + token) * a.H + work.h) * D + 2 * t;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      const float2 pair = held ? *reinterpret_cast<const float2*>(at + 8 * j) : make_float2(0.0F, 0.0F);
      o[4 * j + 2 * half] = pair.x;
      o[4 * j + 2 * half + 1] = pair.y;
    }
  }
}

/// Writes the state back, or out and lse if it ends here.
template <int D>
__device__ __forceinline__ void write_state(const ForwardArguments& a, const ForwardWork& work, int row,
                                            const float (&o)[D / 2], const float (&m)[2], float (&l)[2]) {
  const Tile queries = tile_of(a.queries, ForwardPlan<D>::queries, work.segment, work.index);
  const int t = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = l[half] + __shfl_xor_sync(0xFFFFFFFFU, l[half], 1);
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
    const int i = row + 8 * half;
    const bool held = i < queries.count;
    const std::int64_t token = queries.begin + i;
    const std::int64_t at_row = (static_cast<std::int64_t>(work.b) * a.H + work.h) * a.queries.tokens + token;
    const std::int64_t at = ((static_cast<std::int64_t>(work.b) * a.queries.tokens + token) * a.H + work.h) * D;
    if (a.last) {
      const float share = sum == 0 ? 0.0F : 1.0F / sum;
      if (held && t == 0) a.lse[at_row] = sum == 0 ? -INFINITY : m[half] * a.scale + logf(sum);
#pragma unroll
      for (int j = 0; j < D / 8; j += 4) {
        std::uint32_t pairs[4];
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const int x = 4 * (j + part) + 2 * half;
          pairs[part] = rounded_pair(o[x] * share, o[x + 1] * share);
        }
        transpose_among_four(pairs);  // each thread then has 8 numbers of one part of the row instead of 2 of each
        if (held) {
          *reinterpret_cast<uint4*>(a.out + at + 8 * (j + t)) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
      }
    } else if (held) {
      if (t == 0) {
        a.m[at_row] = m[half] * a.scale;
        a.l[at_row] = sum;
      }
#pragma unroll
      for (int j = 0; j < D / 8; ++j) {
        *reinterpret_cast<float2*>(a.o + at + 8 * j + 2 * t) =
            make_float2(o[4 * j + 2 * half], o[4 * j + 2 * half + 1]);
      }
    }
  }
}

template <int D>
__device__ void compute_tiles(const ForwardArguments& a, ForwardShared<D>& shared, int group) {
  using Plan = ForwardPlan<D>;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x % warpgroup) / 32;
  const int row = group * group_rows + warp * 16 + lane / 4;  // and row + 8
  const std::uint64_t q = sum_along_columns(shared.q + group * group_rows * row_bytes);
  const float scale_log2 = a.scale * log2_of_e;
  // Barrier 1 + group: its turn to start products. The last warpgroup gives the first turn to the first one.
  const int mine = 1 + group, others = 1 + (group + 1) % Plan::groups;
  if (group == Plan::groups - 1) named_barrier_arrive(others, 2 * warpgroup);
  PipelineState<1> work_slot;
  PipelineState<stages> slot;
  float s[key_tile / 2], o[D / 2], m[2], l[2];
  std::uint32_t p[key_tile / 16][4];
  for (;;) {
    work_slot.wait_full(shared.q_pipeline);
    const ForwardWork work = shared.work;
    if (work.b < 0) break;
    read_state<D>(a, work, row, o, m, l);
    if (work.any_keys) {
      slot.wait_full(shared.k_pipeline);
      ForwardStep step = shared.steps[slot.stage];
      start_scores<D>(s, q, shared.k[slot.stage]);
      wgmma_wait<0>();
      wgmma_hold(s);
      release(&shared.k_pipeline.empty[slot.stage]);
      if (step.masked) mask_scores<Plan::queries>(s, a, work, row, step);
      rescale<D>(o, softmax(s, m, l, scale_log2));
      round_to_fragments<key_tile>(p, s);
      while (step.continues) {
        const PipelineState<stages> before = slot;
        slot.advance();
        slot.wait_full(shared.k_pipeline);
        step = shared.steps[slot.stage];
        named_barrier_sync(mine, 2 * warpgroup);
        start_scores<D>(s, q, shared.k[slot.stage]);
        before.wait_full(shared.v_pipeline);
        start_output<D>(o, p, shared.v[before.stage]);
        named_barrier_arrive(others, 2 * warpgroup);
        wgmma_wait<1>();
        wgmma_hold(s);
        release(&shared.k_pipeline.empty[slot.stage]);
        if (step.masked) mask_scores<Plan::queries>(s, a, work, row, step);
        const float2 shrink = softmax(s, m, l, scale_log2);
        wgmma_wait_behind<0>(__float_as_uint(l[0] + l[1]), &shared.never);
        wgmma_hold(o);
        release(&shared.v_pipeline.empty[before.stage]);
        rescale<D>(o, shrink);
        round_to_fragments<key_tile>(p, s);
      }
      release(&shared.q_pipeline.empty[0]);
      slot.wait_full(shared.v_pipeline);
      start_output<D>(o, p, shared.v[slot.stage]);
      wgmma_wait<0>();
      wgmma_hold(o);
      release(&shared.v_pipeline.empty[slot.stage]);
      slot.advance();
    } else {
      __syncwarp();  // all lanes have read the work
      release(&shared.q_pipeline.empty[0]);
    }
    work_slot.advance();
    write_state<D>(a, work, row, o, m, l);
  }
}

template <int D>
__global__ void __launch_bounds__(ForwardPlan<D>::threads, 1)
    forward_kernel(const __grid_constant__ ForwardArguments a) {
  using Plan = ForwardPlan<D>;
  auto& shared = *dynamic_shared<ForwardShared<D>>();
  if (threadIdx.x == 0) {
    tma_prefetch(&a.q);
    tma_prefetch(&a.k);
    tma_prefetch(&a.v);
    constexpr int computing_warps = 4 * Plan::groups;
    shared.q_pipeline.init(1, computing_warps);
    shared.k_pipeline.init(1, computing_warps);
    shared.v_pipeline.init(1, computing_warps);
    fence_mbarrier_init();
  }
  __syncthreads();
  const int group = uniform(static_cast<int>(threadIdx.x) / warpgroup);
  if (group == 0) {
    registers_decrease<Plan::loading_registers>();
    if (threadIdx.x < 32) load_tiles<D>(a, shared);
  } else {
    registers_increase<Plan::computing_registers>();
    compute_tiles<D>(a, shared, group - 1);
  }
}

}  // namespace

void forward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
             const ConstTensorView& v, const AttentionTokens& queries, const AttentionTokens& keys,
             const AttentionState& state, const AttentionPhase& phase, void* workspace) {
  Context& context = stream.cuda();
  ForwardArguments a{};
  static_cast<CallArguments&>(a) = call_arguments(shape, queries, keys);
  a.order = forward_order(shape, queries, keys, multiprocessors_for(stream));
  a.q = head_map(q, forward_query_tile(shape.D));
  a.k = head_map(k, key_tile);
  a.v = head_map(v, key_tile);
  a.first = phase.init;
  a.last = phase.finalize;
  a.o = state.o.as<float>();
  a.m = state.m.as<float>();
  a.l = state.l.as<float>();
  a.out = phase.finalize ? static_cast<__nv_bfloat16*>(phase.out.data) : nullptr;
  a.lse = phase.finalize ? phase.lse.as<float>() : nullptr;
  a.counter = static_cast<int*>(workspace);
  check(cudaMemsetAsync(a.counter, 0, sizeof(int), context.stream()), "zeroing attention's tile counter");
  arm_waits(context);
  const auto blocks = static_cast<unsigned>(std::min(multiprocessors_for(stream), a.order.count()));
  const auto run = [&]<int D>() {
    launch<forward_kernel<D>>(context, dim3(blocks), dim3(ForwardPlan<D>::threads), sizeof(ForwardShared<D>), a);
  };
  shape.D == 64 ? run.template operator()<64>() : run.template operator()<128>();
}

}  // namespace ringtrain::cuda::hopper
