// Attention backward for Hopper. A block takes a tile of 128 keys. Only this block adds up their dk and dv, in
// registers, over the query heads of the group and the tiles of queries that see the keys. Two warpgroups compute, each
// with 64 of the keys; of a third one, one warp loads and two add dq to global memory. Queries come in tiles of 64 (D =
// 128) or 128 (D = 64), with dout, lse, and delta, through a pipeline of two stages.
//
// A step computes the transposed scores, keys by queries, so that P and dS are first operands of dV += P^T dout and dK
// += dS^T q in the registers as they are. dS also goes to shared memory, for dq = dS k, because both warpgroups need
// all of it. dq is staged there as well and added by the copy engine. dS includes the scale, so dq and dk do not need
// it. Products are nearly always in flight: dP during the exponentials, dV during dS, and dK while dq leaves.
//
// dk and dv that begin with the call are stored, and the loading warp sets those of keys that no query sees to zero;
// otherwise, the sums are added to the existing values.
#include <algorithm>

#include "kernels/cuda/attention/hopper/backward_transfers.cuh"
#include "kernels/cuda/attention/hopper/tensor_map.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda::hopper {

namespace {

using namespace backward_pass;

/// Hides the scores that the two keys (rows) of a thread do not have.
template <int D>
__device__ __forceinline__ void mask_scores(float (&s)[BackwardPlan<D>::queries / 2], const BackwardArguments& a,
                                            const BackwardWork& work, int row, const BackwardStep& step) {
  constexpr int query_tile = BackwardPlan<D>::queries;
  const Tile queries = tile_of(a.queries, query_tile, step.segment_number(), step.index);
  const Tile keys = tile_of(a.keys, key_tile, work.segment, work.index);
  const TileMask tile_mask = tile_mask_of(a.mask, queries, keys, key_tile, {0, 0, false}, queries);
  const int column = 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int j = row + 8 * half;
    Visible seen = queries_of(tile_mask, j, queries.count);
    if (a.queries.documents != nullptr && seen.from < seen.to) {
      const std::int32_t document = __ldg(a.keys.documents + std::int64_t{work.b} * a.keys.tokens + keys.begin + j);
      seen = of_document(seen, a.queries.documents + std::int64_t{work.b} * a.queries.tokens + queries.begin, document);
    }
#pragma unroll
    for (int block = 0; block < query_tile / 8; ++block) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[4 * block + 2 * half + i];
        if (!seen.has(8 * block + i + column)) score = -INFINITY;
      }
    }
  }
}

/// Starts d = rows of a tile of keys times the tile of queries, summed over the head: scores and dP.
template <int D>
__device__ __forceinline__ void start_by_head(float (&d)[BackwardPlan<D>::queries / 2], std::uint64_t rows,
                                              const unsigned char* columns) {
  constexpr int query_tile = BackwardPlan<D>::queries;
  const std::uint64_t b = sum_along_columns(columns);
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    const int block = step / 4, bytes = 32 * (step % 4);
    const std::uint64_t from = along(rows, block * key_tile * row_bytes + bytes),
                        with = along(b, block * query_tile * row_bytes + bytes);
    if constexpr (query_tile == 64) {
      if (step == 0) {
        wgmma_ss_first<false, false>(d, from, with);
        continue;
      }
    }
    wgmma_ss<query_tile, false, false>(d, from, with, step > 0);
  }
  wgmma_commit();
}

/// Starts d += fragments [64 keys, queries] times a tile of queries [queries, D]: dv and dk.
template <int D>
__device__ __forceinline__ void start_by_queries(float (&d)[D / 2],
                                                 const std::uint32_t (&fragments)[BackwardPlan<D>::queries / 16][4],
                                                 const unsigned char* columns) {
  constexpr int query_tile = BackwardPlan<D>::queries;
  const std::uint64_t b = sum_along_rows(columns, query_tile * row_bytes);
#pragma unroll
  for (int step = 0; step < query_tile / 16; ++step) {
    wgmma_rs<D, true>(d, fragments[step], along(b, step * 16 * row_bytes), true);
  }
  wgmma_commit();
}

/// Starts d = 64 columns of dS^T times 64 columns of k, summed over the keys: the warpgroup's part of dq.
__device__ __forceinline__ void start_by_keys(float (&d)[32], const unsigned char* ds, const unsigned char* k) {
  const std::uint64_t a = sum_along_rows(ds, key_tile * row_bytes), b = sum_along_rows(k, key_tile * row_bytes);
#pragma unroll
  for (int step = 0; step < key_tile / 16; ++step) {
    if (step == 0) {
      wgmma_ss_first<true, true>(d, a, b);
      continue;
    }
    wgmma_ss<64, true, true>(d, along(a, step * 16 * row_bytes), along(b, step * 16 * row_bytes), true);
  }
  wgmma_commit();
}

/// Writes the warpgroup's fragments of dS [64 keys, queries] to its rows of the shared tile.
template <int Queries>
__device__ __forceinline__ void write_ds(unsigned char* tile, const std::uint32_t (&ds)[Queries / 16][4], int group) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x % warpgroup) / 32;
  const int row = group * group_rows + warp * 16 + lane % 16;  // lane selects row lane % 8 of matrix lane / 8
  unsigned char* at = tile + row * row_bytes;
#pragma unroll
  for (int step = 0; step < Queries / 16; ++step) {
    const int chunk = (2 * (step % 4) + lane / 16) ^ (row % 8);
    stmatrix_x4(at + step / 4 * key_tile * row_bytes + chunk * 16, ds[step]);
  }
}

/// Writes sums [64 queries, 64 of the head] to the staging tile, starting at row `row` and block `first`. Odd rows swap
/// the times of two of the 8-column parts, so that a half-warp's eight-byte writes touch all banks.
template <int Queries>
__device__ __forceinline__ void write_dq(unsigned char* tile, const float (&dq)[32], int first, int row) {
  const int t = static_cast<int>(threadIdx.x % 4);
  const bool odd = row % 2 != 0;
#pragma unroll
  for (int part = 0; part < 8; ++part) {
    const int other = part ^ 2, slot = odd ? other : part;
    unsigned char* at =
        tile + (first + part / 4) * Queries * row_bytes + (((2 * (slot % 4) + t / 2) ^ (row % 8)) * 16 + (t % 2) * 8);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float x = odd ? dq[4 * other + 2 * half] : dq[4 * part + 2 * half];
      const float y = odd ? dq[4 * other + 2 * half + 1] : dq[4 * part + 2 * half + 1];
      *reinterpret_cast<float2*>(at + (row + 8 * half) * row_bytes) = make_float2(x, y);
    }
  }
}

/// Writes a thread's part of dk or dv to global memory; no other block writes to these rows.
template <int D, Sums How>
__device__ __forceinline__ void write_rows(float* to, const BackwardArguments& a, const BackwardWork& work, int row,
                                           const float (&d)[D / 2]) {
  const Tile keys = tile_of(a.keys, key_tile, work.segment, work.index);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int j = row + 8 * half;
    if (j >= keys.count) continue;
    const std::int64_t token = static_cast<std::int64_t>(work.b) * a.keys.tokens + keys.begin + j;
    float* at = to + (token * a.G + work.g) * D + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int block = 0; block < D / 8; ++block) {
      const float x = d[4 * block + 2 * half], y = d[4 * block + 2 * half + 1];
      if constexpr (How == Sums::stored) {
        *reinterpret_cast<float2*>(at + 8 * block) = make_float2(x, y);
      } else {
        const float2 sum = *reinterpret_cast<const float2*>(at + 8 * block);
        *reinterpret_cast<float2*>(at + 8 * block) = make_float2(sum.x + x, sum.y + y);
      }
    }
  }
}

/// Turns scores into probabilities. lse: of the tile's queries, in base 2.
template <int Queries>
__device__ __forceinline__ void exponentiate(float (&s)[Queries / 2], const float* lse, float scale_log2) {
#pragma unroll
  for (int block = 0; block < Queries / 8; ++block) {
    const float2 of_query = *reinterpret_cast<const float2*>(lse + 8 * block + 2 * static_cast<int>(threadIdx.x % 4));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& x = s[4 * block + 2 * half];
      float& y = s[4 * block + 2 * half + 1];
      x = exp2_approx(fmaf(x, scale_log2, -of_query.x));
      y = exp2_approx(fmaf(y, scale_log2, -of_query.y));
    }
  }
}

/// Turns dP into dS = P (scale dP - delta). delta: of the tile's queries, times the scale.
template <int Queries>
__device__ __forceinline__ void score_gradients(float (&dp)[Queries / 2], const float (&p)[Queries / 2],
                                                const float* delta, float scale) {
#pragma unroll
  for (int block = 0; block < Queries / 8; ++block) {
    const float2 of_query = *reinterpret_cast<const float2*>(delta + 8 * block + 2 * static_cast<int>(threadIdx.x % 4));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 4 * block + 2 * half;
      dp[i] = p[i] * fmaf(dp[i], scale, -of_query.x);
      dp[i + 1] = p[i + 1] * fmaf(dp[i + 1], scale, -of_query.y);
    }
  }
}

/// Returns the thread's first row of its warpgroup's 64.
__device__ __forceinline__ int row_of_thread() {
  return static_cast<int>(threadIdx.x % warpgroup) / 32 * 16 + static_cast<int>(threadIdx.x % 32) / 4;
}

/// Adds a step's queries to dk and dv, and passes its dq to the warps that add it. s, dq: scratch registers.
template <int D>
__device__ __forceinline__ void compute_step(const BackwardArguments& a, BackwardShared<D>& shared, int group,
                                             const BackwardWork& work, const BackwardStep& step,
                                             PipelineState<stages>& slot, float (&s)[BackwardPlan<D>::queries / 2],
                                             float (&dq)[32], float (&dk)[D / 2], float (&dv)[D / 2]) {
  constexpr int query_tile = BackwardPlan<D>::queries;
  // The warpgroup's part of dq: half of the head (D = 128) or half of the queries (D = 64), 64 by 64 in both cases.
  const int half_head = D == 128 ? group : 0, half_queries = D == 128 ? 0 : group;
  const int stage = slot.stage;
  float dp[query_tile / 2];
  std::uint32_t p[query_tile / 16][4], ds[query_tile / 16][4];
  wgmma_fence();
  start_by_head<D>(s, sum_along_columns(shared.k + group * group_rows * row_bytes), shared.q[stage]);
  start_by_head<D>(dp, sum_along_columns(shared.v + group * group_rows * row_bytes), shared.dout[stage]);
  wgmma_wait<1>();
  wgmma_hold(s);
  if (step.has(BackwardStep::masked)) mask_scores<D>(s, a, work, group * group_rows + row_of_thread(), step);
  exponentiate<query_tile>(s, shared.lse[stage], a.scale * log2_of_e);
  if constexpr (D == 128) {  // for D = 64, both would not fit in the registers
    round_to_fragments<query_tile>(p, s);
    wgmma_fence();
    start_by_queries<D>(dv, p, shared.dout[stage]);
    wgmma_wait<1>();
  } else {
    wgmma_wait_behind<0>(all_bits(s), &shared.never);
    round_to_fragments<query_tile>(p, s);
  }
  wgmma_hold(dp);
  score_gradients<query_tile>(dp, s, shared.delta[stage], a.scale);
  round_to_fragments<query_tile>(ds, dp);
  write_ds<query_tile>(shared.ds[stage], ds, group);
  fence_proxy_async();
  named_barrier_sync(1, groups * warpgroup);  // dS is complete; both warpgroups have read that of two steps before
  wgmma_fence();
  if constexpr (D == 64) start_by_queries<D>(dv, p, shared.dout[stage]);
  start_by_keys(dq, shared.ds[stage] + half_queries * key_tile * row_bytes,
                shared.k + half_head * key_tile * row_bytes);
  start_by_queries<D>(dk, ds, shared.q[stage]);
  const PipelineState<stages> here = slot;
  slot.advance();
  wgmma_wait<1>();
  wgmma_hold(dq);
  here.wait_empty(shared.dq_pipeline);
  write_dq<query_tile>(shared.dq[stage], dq, 2 * half_head, half_queries * group_rows + row_of_thread());
  fence_proxy_async();
  __syncwarp();
  release(&shared.dq_pipeline.full[stage]);
  wgmma_wait<0>();
  wgmma_hold(dk);
  wgmma_hold(dv);
  release(&shared.query_pipeline.empty[stage]);
}

template <int D>
__device__ void compute_tiles(const BackwardArguments& a, BackwardShared<D>& shared, int group) {
  const int row = group * group_rows + row_of_thread();
  PipelineState<1> work_slot;
  PipelineState<stages> slot;
  int at_step = 0;
  for (;;) {
    work_slot.wait_full(shared.key_pipeline);
    const BackwardWork work = shared.work;
    if (work.b < 0) break;
    float dk[D / 2], dv[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; ++i) dk[i] = dv[i] = 0;
    float s[BackwardPlan<D>::queries / 2], dq[32];
    for (bool has_next = true; has_next;) {
      slot.wait_full(shared.query_pipeline);
      const BackwardStep step = shared.steps[at_step];
      at_step = (at_step + 1) % remembered_steps;
      compute_step<D>(a, shared, group, work, step, slot, s, dq, dk, dv);
      has_next = step.has(BackwardStep::continues);
    }
    release(&shared.key_pipeline.empty[0]);
    work_slot.advance();
    if (a.sums == Sums::stored) {
      write_rows<D, Sums::stored>(a.dk, a, work, row, dk);
      write_rows<D, Sums::stored>(a.dv, a, work, row, dv);
    } else {
      write_rows<D, Sums::added>(a.dk, a, work, row, dk);
      write_rows<D, Sums::added>(a.dv, a, work, row, dv);
    }
  }
  for (int i = 0; i < adders; ++i) {  // tells each adder that there are no more steps
    slot.wait_empty(shared.dq_pipeline);
    release(&shared.dq_pipeline.full[slot.stage]);
    slot.advance();
  }
}

template <int D>
__global__ void __launch_bounds__(threads, 1) backward_kernel(const __grid_constant__ BackwardArguments a) {
  auto& shared = *dynamic_shared<BackwardShared<D>>();
  if (threadIdx.x == 0) {
    tma_prefetch(&a.q);
    tma_prefetch(&a.k);
    tma_prefetch(&a.v);
    tma_prefetch(&a.dout);
    tma_prefetch(&a.dq);
    shared.key_pipeline.init(1, computing_warps);
    shared.query_pipeline.init(2, computing_warps);  // the copies, and the warp's own writes
    shared.dq_pipeline.init(computing_warps, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  const int group = uniform(static_cast<int>(threadIdx.x) / warpgroup);
  if (group == 0) {
    registers_decrease<BackwardPlan<D>::loading_registers>();
    const int warp = uniform(static_cast<int>(threadIdx.x) / 32);
    if (warp == 0) load_tiles<D>(a, shared);
    if (warp > 0 && warp <= adders) add_dq<D>(a, shared, warp - 1);
  } else {
    registers_increase<BackwardPlan<D>::computing_registers>();
    compute_tiles<D>(a, shared, group - 1);
  }
}

}  // namespace

void backward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
              const ConstTensorView& v, const ConstTensorView& dout, const ConstTensorView& lse,
              const ConstTensorView& delta, const AttentionTokens& queries, const AttentionTokens& keys,
              const TensorView& dq, const TensorView& dk, const TensorView& dv, bool accumulate, void* workspace) {
  Context& context = stream.cuda();
  const int query_tile = backward_query_tile(shape.D);
  BackwardArguments a{};
  static_cast<CallArguments&>(a) = call_arguments(shape, queries, keys);
  a.q = head_map(q, query_tile);
  a.dout = head_map(dout, query_tile);
  a.dq = head_map(dq, query_tile);
  a.k = head_map(k, key_tile);
  a.v = head_map(v, key_tile);
  a.lse = lse.as<float>();
  a.delta = delta.as<float>();
  a.dk = dk.as<float>();
  a.dv = dv.as<float>();
  a.order = backward_order(shape, queries, keys, multiprocessors_for(stream));
  a.deterministic = shape.deterministic;
  a.sums = accumulate ? Sums::added : Sums::stored;
  a.semaphore = semaphore_in(workspace, shape, a.queries.tokens, query_tile);
  if (a.deterministic) {
    prepare_semaphore(context, a.semaphore, shape, a.queries, a.keys, query_tile, key_tile);
  } else {
    check(cudaMemsetAsync(a.semaphore.next_work, 0, sizeof(int), context.stream()), "zeroing attention's tile counter");
  }
  arm_waits(context);
  const auto blocks = static_cast<unsigned>(std::min(multiprocessors_for(stream), a.order.count()));
  const auto run = [&]<int D>() {
    launch<backward_kernel<D>>(context, dim3(blocks), dim3(threads), sizeof(BackwardShared<D>), a);
  };
  shape.D == 64 ? run.template operator()<64>() : run.template operator()<128>();
}

std::size_t workspace_bytes(const AttentionShape& shape, std::int64_t Tq) {
  return semaphore_bytes(shape, Tq, BackwardPlan<128>::queries);  // the smaller tiles, so the larger number of them
}

bool supports(const Stream& stream, const AttentionShape& shape, DType dtype, std::int64_t Tq, std::int64_t Tk) {
  return stream.cuda().compute_capability() == 90 && dtype == DType::bfloat16 && (shape.D == 64 || shape.D == 128) &&
         shape.B > 0 && Tq > 0 && Tk > 0 && shape.softcap == 0;
}

}  // namespace ringtrain::cuda::hopper
