// One attention problem with its tensors, as the benchmarks time it: forward is reset, one block of keys, and finish;
// backward is delta, zeroed gradients, and one block, as in a framework's backward.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

#include "framework/allocator.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"

namespace ringtrain::bench {

struct AttentionSetting {
  std::int64_t B = 1, S = 4096, H = 2, G = 2, D = 64;
  bool causal = true;
  DType dtype = DType::float32;
  friend auto operator<=>(const AttentionSetting&, const AttentionSetting&) = default;
};

/// Returns the kernel FLOPs: 4 * D per pair of query and key that see each other (causal: half of all), backward 2.5
/// times.
inline double attention_flops(const AttentionSetting& s, bool backward) {
  const double pairs = static_cast<double>(s.S) * static_cast<double>(s.S) * (s.causal ? 0.5 : 1);
  return 4 * pairs * static_cast<double>(s.B * s.H * s.D) * (backward ? 2.5 : 1);
}

class AttentionCase {
 public:
  AttentionCase(const AttentionSetting& s, ThreadPool& pool)
      : stream_(pool),
        allocator_(Device::cpu()),
        shape_{s.B, s.H, s.G, s.D, 1 / std::sqrt(static_cast<double>(s.D)), {s.causal, 0}},
        segments_{{0, 1, s.S}} {
    const Shape by_query{s.B, s.S, s.H, s.D}, by_key{s.B, s.S, s.G, s.D}, rows{s.B, s.H, s.S};
    const DType sums = accumulator(s.dtype);
    q_ = make("q", s.dtype, by_query);
    dout_ = make("dout", s.dtype, by_query);
    out_ = make("out", s.dtype, by_query);
    if (sums != s.dtype) o_ = make("o", sums, by_query);
    k_ = make("k", s.dtype, by_key);
    v_ = make("v", s.dtype, by_key);
    dq_ = make("dq", sums, by_query);
    dk_ = make("dk", sums, by_key);
    dv_ = make("dv", sums, by_key);
    lse_ = make("lse", sums, rows);
    l_ = make("l", sums, rows);
    delta_ = make("delta", sums, rows);
    const auto bytes = static_cast<std::int64_t>(attention_workspace_bytes(stream_, shape_, s.dtype, s.S, s.S));
    workspace_ = allocator_.make(Tag::workspace, "workspace", DType::uint8, {bytes});
    forward();
  }

  void forward() {
    const AttentionState running{o_.view().empty() ? out_ : o_, lse_, l_};
    attention_forward(stream_, shape_, q_, k_, v_, tokens(), tokens(), running,
                      {.init = true, .finalize = true, .out = out_, .lse = lse_}, workspace_);
  }
  void backward() {
    attention_delta(stream_, delta_, dout_, out_);
    for (const Tensor* gradient : {&dq_, &dk_, &dv_}) fill(stream_, *gradient, 0);
    attention_backward(stream_, shape_, q_, k_, v_, dout_, lse_, delta_, tokens(), tokens(), dq_, dk_, dv_, workspace_);
  }

 private:
  Tensor make(const char* name, DType dtype, const Shape& shape) {
    Tensor x = allocator_.make(Tag::activations, name, dtype, shape);
    fill_normal(stream_, x, 1, /*seed=*/1, next_index_);
    next_index_ += static_cast<std::uint64_t>(shape.numel());
    return x;
  }
  AttentionTokens tokens() const { return {segments_, {}}; }

  Stream stream_;
  Allocator allocator_;
  AttentionShape shape_;
  SegmentList segments_;
  std::uint64_t next_index_ = 0;
  Tensor q_, k_, v_, dout_, out_, o_, dq_, dk_, dv_, lse_, l_, delta_, workspace_;
};

}  // namespace ringtrain::bench
