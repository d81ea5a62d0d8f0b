// The warps that move memory in Hopper's attention backward while the warpgroups compute: one warp that loads tiles and
// describes their steps, and two that add dq to global memory.
//
// Deterministic: tiles of keys add to a tile of dq in turns (kernels/cuda/attention/dq_semaphore.cuh), in the order in
// which blocks took them. A turn takes two steps at best to arrive, to be noticed, and to be passed on. So each of the
// two adders has every second step, and waits for its turn while the other one adds.
#pragma once

#include "kernels/cuda/attention/hopper/backward_shared.cuh"

namespace ringtrain::cuda::hopper::backward_pass {

/// Loads data of one step: q and dout by the copy engine, lse and delta by the warp.
template <int D>
__device__ __forceinline__ void load_step(const BackwardArguments& a, BackwardShared<D>& shared,
                                          const PipelineState<stages>& slot, int begin, int count, int b, int h) {
  using Plan = BackwardPlan<D>;
  constexpr int rows = Plan::queries / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t at = (static_cast<std::int64_t>(b) * a.H + h) * a.queries.tokens + begin;
  float lse[rows], delta[rows];
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    const bool held = 32 * i + lane < count;
    lse[i] = held ? __ldg(a.lse + at + 32 * i + lane) * log2_of_e : -INFINITY;
    delta[i] = held ? __ldg(a.delta + at + 32 * i + lane) * a.scale : 0.0F;
  }
  slot.wait_empty(shared.query_pipeline);
  std::uint64_t* full = &shared.query_pipeline.full[slot.stage];
  if (lane == 0) {
    mbarrier_arrive_expect_tx(full, 2 * Plan::query_bytes);
    load_blocks<D>(shared.q[slot.stage], &a.q, full, Plan::queries, h, begin, b, a.often);
    load_blocks<D>(shared.dout[slot.stage], &a.dout, full, Plan::queries, h, begin, b, a.often);
  }
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    shared.lse[slot.stage][32 * i + lane] = lse[i] == -INFINITY ? INFINITY : lse[i];  // no key, or no query
    shared.delta[slot.stage][32 * i + lane] = delta[i];
  }
  __syncwarp();
  if (lane == 0) mbarrier_arrive(full);
}

/// Sets a tile's dk and dv to zero, with one warp. This is rare, so it uses as few registers as possible.
template <int D>
__device__ void clear_rows(const BackwardArguments& a, const Tile& keys, int b, int g) {
  const std::int64_t token = static_cast<std::int64_t>(b) * a.keys.tokens + keys.begin;
  std::int64_t at = (token * a.G + g) * D + 2 * (threadIdx.x % 32);
#pragma unroll 1
  for (int j = 0; j < keys.count; ++j, at += a.G * D) {
#pragma unroll 1
    for (int c = 0; c < D; c += 2 * 32) {
      *reinterpret_cast<float2*>(a.dk + at + c) = make_float2(0, 0);
      *reinterpret_cast<float2*>(a.dv + at + c) = make_float2(0, 0);
    }
  }
}

template <int D>
__device__ void load_tiles(const BackwardArguments& a, BackwardShared<D>& shared) {
  using Plan = BackwardPlan<D>;
  const bool elected = threadIdx.x % 32 == 0;
  PipelineState<1> work_slot;
  PipelineState<stages> slot;
  int step = 0;
  for (;;) {
    const int work_index = take_work_index(a.semaphore.next_work);
    if (work_index >= a.order.count()) break;
    const auto [number, head] = a.order[work_index];
    const int b = head / a.G, g = head % a.G, heads = a.H / a.G;
    const Tile keys = tile_at(a.keys, key_tile, number);
    find_steps(shared.found, a.keys, keys, a.queries, Plan::queries, queries_that_see(a.mask, keys.positions()),
               queries_that_see_all(a.mask, keys.positions()), keys.count == key_tile, b);
    const TilesSeen& seen = shared.found.seen;
    TileCursor first = TileCursor::before_last(a.queries, seen);
    if (!first.next(seen)) {
      if (a.sums == Sums::stored) clear_rows<D>(a, keys, b, g);
      continue;
    }
    work_slot.wait_empty(shared.key_pipeline);
    if (elected) {
      shared.work = {b, g, keys.segment, keys.index};
      std::uint64_t* full = &shared.key_pipeline.full[0];
      mbarrier_arrive_expect_tx(full, 2 * Plan::key_bytes);
      load_blocks<D>(shared.k, &a.k, full, key_tile, g, keys.begin, b, a.once);
      load_blocks<D>(shared.v, &a.v, full, key_tile, g, keys.begin, b, a.once);
    }
    work_slot.advance();
    GroupCursor next{first, 0};
    bool has_next = false;
    do {
      const GroupCursor at = next;
      const TokenMap::Run& run = a.queries.runs[at.queries.segment];
      const int h = g * heads + at.head, from = at.queries.index * Plan::queries;
      const int mask = shared.found.masked(at.queries) ? BackwardStep::masked : 0;
      has_next = next.next(seen, heads);
      if (elected) {
        const int flags = mask + (has_next ? BackwardStep::continues : 0);
        shared.steps[step] = {h, run.begin + from, at.queries.index, at.queries.segment * BackwardStep::segment + flags,
                              b, keys.segment,     keys.index};
      }
      step = (step + 1) % remembered_steps;
      load_step<D>(a, shared, slot, run.begin + from, run.count - from, b, h);
      slot.advance();
    } while (has_next);
  }
  work_slot.wait_empty(shared.key_pipeline);
  if (elected) {
    shared.work.b = -1;
    for (int i = 0; i < adders; ++i) shared.steps[(step + i) % remembered_steps].h = -1;
    mbarrier_arrive(&shared.key_pipeline.full[0]);
  }
}

/// Waits until it is a step's turn to add dq (one thread).
template <int D>
__device__ __forceinline__ int* wait_for_turn(const BackwardArguments& a, const BackwardStep& step) {
  constexpr int query_tile = BackwardPlan<D>::queries;
  const int slot = slot_of(tile_of(a.queries, query_tile, step.segment_number(), step.index), query_tile);
  int* const turn = counter_of(a.semaphore, static_cast<std::int64_t>(step.b) * a.H + step.h, slot);
  const int rank = rank_of(a.semaphore, step.b, slot, {step.key_segment, step.key_index});
  semaphore_acquire(turn, rank, {"attention backward (Hopper)", "its turn to add dq", "adder of dq"});
  fence_proxy_async_global();
  return turn;
}

/// Adds dq of every second step, from step `adder`, to global memory; if the order matters, when it is the step's turn.
/// There is no circular wait: turns follow the order in which blocks began, and neither adder waits for the other.
template <int D>
__device__ void add_dq(const BackwardArguments& a, BackwardShared<D>& shared, int adder) {
  using Plan = BackwardPlan<D>;
  static_assert(adders == stages && remembered_steps % adders == 0);
  const bool elected = threadIdx.x % 32 == 0;
  PipelineState<stages> slot{adder};
  for (int at_step = adder;; at_step = (at_step + adders) % remembered_steps) {
    slot.wait_full(shared.dq_pipeline);
    const BackwardStep step = shared.steps[at_step];
    if (step.h < 0) break;
    if (elected) {
      int* const turn = a.deterministic ? wait_for_turn<D>(a, step) : nullptr;
      for (int block = 0; block < D / sum_columns; ++block) {
        tma_reduce_add_4d(&a.dq, shared.dq[adder] + block * Plan::queries * row_bytes, block * sum_columns, step.h,
                          step.begin, step.b, a.often);
      }
      tma_store_commit();
      tma_store_wait<0>();
      mbarrier_arrive(&shared.dq_pipeline.empty[adder]);
      if (a.deterministic) {  // makes the copy engine's additions visible to the block that acquires the turn
        tma_store_complete<0>();
        fence_proxy_async_global();
        semaphore_release(turn);
      }
    }
    __syncwarp();
    slot.round ^= 1;
  }
}

}  // namespace ringtrain::cuda::hopper::backward_pass
