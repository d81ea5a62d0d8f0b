// What the roles of Hopper's attention backward share: the sizes of a block's work, the loading warp's descriptions of
// it, and the block's shared memory with its pipelines. attention_backward.cu explains the algorithm.
#pragma once

#include "kernels/cuda/attention/dq_semaphore.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper.h"
#include "kernels/cuda/attention/hopper/common.cuh"
#include "kernels/cuda/attention/hopper/tile_schedule.h"

namespace ringtrain::cuda::hopper::backward_pass {

inline constexpr int stages = 2, groups = 2, adders = 2;
inline constexpr int threads = (1 + groups) * warpgroup, computing_warps = 4 * groups;
inline constexpr int sum_columns = 32;  // float32 columns of a swizzled block: 128 bytes

template <int D>
struct BackwardPlan {
  static constexpr int queries = backward_query_tile(D);
  static constexpr int loading_registers = 40, computing_registers = 232;
  static_assert(registers_suffice(loading_registers, computing_registers, groups));
  static constexpr int key_bytes = key_tile * D * 2, query_bytes = queries * D * 2;
};

/// The loading warp's description of a tile of keys; b < 0: there are no more.
struct BackwardWork {
  int b, g, segment, index;
};
/// Its description of each step: a tile of queries of head h, which begins with token `begin`, and the tile of keys. h
/// < 0: there are no more.
struct alignas(16) BackwardStep {
  int h, begin, index, segment_and_flags;
  int b, key_segment, key_index;
  static constexpr int masked = 1, continues = 2, segment = 4;
  __device__ bool has(int flag) const { return (segment_and_flags & flag) != 0; }
  __device__ int segment_number() const { return segment_and_flags / segment; }
};
/// How many steps remain stored: more than there are between the loading warp and the warps that add dq.
inline constexpr int remembered_steps = 8;
static_assert(remembered_steps > 2 * stages + 2);

template <int D>
struct alignas(1024) BackwardShared {
  using Plan = BackwardPlan<D>;
  unsigned char k[Plan::key_bytes], v[Plan::key_bytes];                         // [D / 64][128][64]
  unsigned char q[stages][Plan::query_bytes], dout[stages][Plan::query_bytes];  // [D / 64][queries][64]
  unsigned char ds[stages][key_tile * Plan::queries * 2];                       // [queries / 64][128][64]
  unsigned char dq[stages][Plan::queries * D * 4];                              // [D / 32][queries][32], float32
  float lse[stages][Plan::queries], delta[stages][Plan::queries];  // in base 2, +inf: P is 0; times the scale
  BackwardStep steps[remembered_steps];
  BackwardWork work;
  Steps found;
  std::uint32_t never;  // for wgmma_wait_behind
  PipelineBarriers<1, Pipeline::backward_keys> key_pipeline;
  PipelineBarriers<stages, Pipeline::backward_queries> query_pipeline;
  PipelineBarriers<stages, Pipeline::backward_dq> dq_pipeline;
};

static_assert(sizeof(BackwardShared<64>) <= max_shared_bytes && sizeof(BackwardShared<128>) <= max_shared_bytes);

/// How a tile's dk and dv are written: they replace the existing values, or are added to them.
enum class Sums { stored, added };

struct BackwardArguments : CallArguments {
  CUtensorMap q, k, v, dout, dq;
  const float *lse, *delta;  // [B, H, Tq]
  float *dk, *dv;            // [B, Tk, G, D]
  DqSemaphore semaphore;
  bool deterministic;
  Sums sums;
};

}  // namespace ringtrain::cuda::hopper::backward_pass
