// Attention over a ring of ranks with a GPU, forward and backward: NCCL's messages give the bits of the threads' own,
// in every layout, with documents and without, pass after pass; and both are the reference's attention. In
// gpu_mpi_tests the ranks that NCCL joins are processes.
#include <cmath>

#include "kernels/attention.h"
#include "kernels/kept_free.h"
#include "parallel/nccl/thread_blocks.h"
#include "parallel/ring/ring.h"
#include "tests/parallel/cuda/gpu_ranks.h"
#include "tests/parallel/ring_case.h"
#include "tests/support/attention_state.h"

namespace ringtrain::testing {
namespace {

/// One rank's part of a problem, in float32 on its GPU.
class GpuRingRank {
 public:
  GpuRingRank(const Problem& p, Layout layout, int N, GpuRank& rank) : p_(p), rank_(rank) {
    for (int r = 0; r < N; ++r) {
      segments_.push_back(shard_segments(layout, p.S, N, r));
      max_tokens_ = std::max(max_tokens_, token_count(segments_.back()));
    }
    own_ = &segments_[rank.ranks->rank()];
    T_ = token_count(*own_);
    const RingCapacity capacity{.tokens = p.B * max_tokens_,
                                .gradient_tokens = p.B * max_tokens_,
                                .G = p.G,
                                .D = p.D,
                                .dtype = DType::float32,
                                .backward = true,
                                .documents = p.with_documents};
    ring_ = std::make_unique<Ring>(rank.allocator, rank.ranks.get(), N, capacity);
    const Shape heads{p.B, T_, p.H, p.D}, rows{p.B, p.H, T_}, pair{2, p.B, T_, p.G, p.D};
    q_ = make(DType::float32, heads), o_ = make(DType::float32, heads), dout_ = make(DType::float32, heads);
    dq_ = make(DType::float32, heads), m_ = make(DType::float32, rows), l_ = make(DType::float32, rows);
    kv_ = make(DType::float32, pair), dkv_ = make(DType::float32, pair);
    if (p.with_documents) documents_ = make(DType::int32, {p.B, T_});
    const auto bytes = attention_workspace_bytes(rank.stream, shape(), DType::float32, T_, max_tokens_);
    workspace_ = make(DType::uint8, {static_cast<std::int64_t>(bytes)});
  }

  void run(int layer, Result& result) {
    load(q_, p_.q, p_.H);
    load(dout_, p_.dout, p_.H);
    load(kv_.view().rows(0, 1), p_.k, p_.G);
    load(kv_.view().rows(1, 2), p_.v, p_.G);
    if (p_.with_documents) {
      std::vector<std::int32_t> ids;
      for (std::int64_t b = 0; b < p_.B; ++b) {
        for (std::int64_t t = 0; t < T_; ++t) ids.push_back(p_.documents[b * p_.S + position_of(*own_, t)]);
      }
      copy(stream(), documents_, host_view(ids.data(), documents_.view().shape));
    }
    const AttentionTokens own{*own_, documents_.view()};
    const AttentionState state{o_, m_, l_};
    ring_->begin(p_.mask, extents_of(p_, segments_), segments_, p_.B);
    reset_state(stream(), state);
    ring_->forward(stream(), layer, kv_, documents_, [&](const RingBlock& block) {
      EXPECT_EQ(KeptFree::now(), rank_.ranks->multiprocessors());
      attention_forward(stream(), shape(), q_, block.k, block.v, own, block.tokens, state, {}, workspace_);
    });
    attention_finalize(stream(), state, o_, m_);
    attention_delta(stream(), l_, dout_, o_);
    fill(stream(), dq_, 0.0);
    fill(stream(), dkv_, 1e30);  // nobody may add to it
    ring_->backward(stream(), layer, kv_, documents_, dkv_, [&](const RingBlock& block) {
      EXPECT_EQ(KeptFree::now(), rank_.ranks->multiprocessors());
      add_gradients(stream(), shape(), block, {q_, dout_, m_, l_, dq_}, own, workspace_);
    });
    EXPECT_EQ(KeptFree::now(), 0) << "other kernels share the GPU with fewer messages";
    store(result.out, o_, p_.H);
    store(result.dq, dq_, p_.H);
    store(result.dk, dkv_.view().rows(0, 1), p_.G);
    store(result.dv, dkv_.view().rows(1, 2), p_.G);
  }

 private:
  Stream& stream() { return rank_.stream; }
  Tensor make(DType dtype, const Shape& shape) { return rank_.allocator.make(Tag::activations, "x", dtype, shape); }
  AttentionShape shape() const { return {p_.B, p_.H, p_.G, p_.D, p_.scale(), p_.mask}; }
  void load(const TensorView& local, const std::vector<double>& global, std::int64_t heads) {
    std::vector<float> values(local.numel());
    each_element(p_, *own_, heads,
                 [&](std::size_t to, std::size_t from) { values[to] = static_cast<float>(global[from]); });
    copy(stream(), local, host_view(values.data(), local.shape));
  }
  void store(std::vector<double>& global, const TensorView& local, std::int64_t heads) {
    const std::vector<float> values = rank_.read(local);
    each_element(p_, *own_, heads,
                 [&](std::size_t from, std::size_t to) { global[to] = static_cast<double>(values[from]); });
  }

  const Problem& p_;
  GpuRank& rank_;
  std::vector<SegmentList> segments_;
  const SegmentList* own_ = nullptr;
  std::int64_t T_ = 0, max_tokens_ = 0;  // of this rank, of any
  Tensor q_, o_, dout_, dq_, m_, l_, kv_, dkv_, documents_, workspace_;
  std::unique_ptr<Ring> ring_;  // the first to go
};

class GpuRing : public GpuRanks {
 protected:
  static Result run(const Problem& p, Layout layout, int N, Carrier carrier) {
    Result result;
    result.out.assign(p.q.size(), NAN);
    result.dq = result.out;
    result.dk.assign(p.k.size(), NAN);
    result.dv = result.dk;
    const LaunchOptions options{.ranks = N, .timeout_seconds = 60};
    const auto body = [&](Communicator& world) {
      GpuRank rank(world, carrier);
      EXPECT_EQ(rank.ranks->multiprocessors(), carrier == Carrier::nccl ? nccl_thread_blocks : 0);
      GpuRingRank own(p, layout, N, rank);
      for (int layer = 0; layer < 2; ++layer) own.run(layer, result);
    };
    if (carrier == Carrier::threads) {
      launch_threads(options, body);
    } else {
      run_ranks(options, body);
      for (auto* values : {&result.out, &result.dq, &result.dk, &result.dv}) unite(*values);
    }
    return result;
  }
};

double worst(const std::vector<double>& found, const std::vector<double>& expected) {
  double difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double here = std::abs(found[i] - expected[i]);
    if (!(here <= difference)) difference = std::isnan(here) ? INFINITY : here;
  }
  return difference;
}

TEST_F(GpuRing, ByNcclIsThatByThreadsToTheBit) {
  std::vector<Problem> problems{
      {.S = 24, .H = 2, .G = 1, .D = 8, .mask = {.causal = true}},
      {.S = 23, .B = 2, .H = 2, .G = 2, .D = 4, .mask = {.causal = false, .window = 7}, .with_documents = true}};
  unsigned seed = 1;
  for (Problem& p : problems) {
    make_inputs(p, seed++);
    const Result reference = reference_result(p);
    for (const auto& [N, layout] : {std::pair{2, Layout::contiguous}, {3, Layout::striped}, {4, Layout::zigzag}}) {
      if (!has_gpus_for(N, Carrier::nccl)) GTEST_SKIP() << "too few GPUs";
      SCOPED_TRACE(fmt::format("{}, {} {}", p.name(), name_of(layout), N));
      const Result nccl = run(p, layout, N, Carrier::nccl);
      EXPECT_TRUE(nccl == run(p, layout, N, Carrier::threads));
      using Field = std::vector<double> Result::*;
      for (const Field field : {&Result::out, &Result::dq, &Result::dk, &Result::dv}) {
        EXPECT_LE(worst(nccl.*field, reference.*field), 3e-4);
      }
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
