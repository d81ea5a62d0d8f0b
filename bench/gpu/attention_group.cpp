// Attention as a framework calls it. forward: one block of keys, from nothing to O and LSE. backward: delta, dq set to
// zero, and the block's share of all three gradients, where dk and dv begin. Kernel FLOPs: forward 4 S^2 D H, backward
// 2.5 times that, causal half.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "bench/gpu/groups.h"
#include "bench/gpu/random_values.h"
#include "bench/gpu/timing.h"
#include "framework/cuda/context.h"
#include "framework/system/compute_device.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention/hopper/choices.h"

namespace ringtrain::bench {

namespace {

constexpr double poison = std::numeric_limits<double>::quiet_NaN();

struct AttentionSize {
  std::int64_t S, H, G, D;
  bool causal;
  double forward_flops() const {
    const auto f = [](std::int64_t n) { return static_cast<double>(n); };
    return 4 * f(S) * f(S) * f(D) * f(H) * (causal ? 0.5 : 1.0);
  }
  Json parameters() const { return {{"causal", causal}, {"D", D}, {"S", S}, {"H", H}, {"G", G}}; }
};

/// One problem. It has enough sets of inputs to be several times larger than any cache, up to eight.
class AttentionProblem {
 public:
  AttentionProblem(const AttentionSize& size, Allocator& allocator, Stream& stream, RandomValues& random)
      : size_(size), stream_(stream), allocator_(allocator), segments_{{0, 1, size.S}} {
    constexpr std::int64_t rotated_bytes = std::int64_t{256} << 20;
    const std::int64_t bytes = 2 * size.S * size.D * 2 * (size.H + size.G);
    const std::int64_t sets = std::clamp<std::int64_t>(rotated_bytes / bytes, 1, size.S < 1024 ? 2 : 8);
    const Shape by_query{1, size.S, size.H, size.D}, by_key{1, size.S, size.G, size.D}, rows{1, size.H, size.S};
    for (std::int64_t i = 0; i < sets; ++i) {
      inputs_.push_back({make("q", DType::bfloat16, by_query), make("k", DType::bfloat16, by_key),
                         make("v", DType::bfloat16, by_key), make("dout", DType::bfloat16, by_query),
                         make("out", DType::bfloat16, by_query), make("lse", DType::float32, rows)});
      for (const Tensor* x : {&inputs_.back().q, &inputs_.back().k, &inputs_.back().v, &inputs_.back().dout}) {
        random.fill(*x);
      }
      for (const Tensor* x : {&inputs_.back().out, &inputs_.back().lse}) fill(stream, *x, poison);
    }
    o_ = make("o", DType::float32, by_query);
    dq_ = make("dq", DType::float32, by_query);
    dk_ = make("dk", DType::float32, by_key);
    dv_ = make("dv", DType::float32, by_key);
    l_ = make("l", DType::float32, rows);
    delta_ = make("delta", DType::float32, rows);
    std::size_t workspace = 0;
    for (const bool deterministic : {false, true}) {
      workspace =
          std::max(workspace, attention_workspace_bytes(stream, shape(deterministic), DType::bfloat16, size.S, size.S));
    }
    workspace_ = make("workspace", DType::uint8, {static_cast<std::int64_t>(workspace)});
    for (const Tensor* x : {&o_, &dq_, &dk_, &dv_, &l_, &delta_}) fill(stream, *x, poison);
  }

  void forward(int set) {
    const Inputs& x = inputs(set);
    attention_forward(stream_, shape(false), x.q, x.k, x.v, tokens(), tokens(), {o_, x.lse, l_},
                      {.init = true, .finalize = true, .out = x.out, .lse = x.lse}, workspace_);
  }
  void backward(int set, bool deterministic) {
    const Inputs& x = inputs(set);
    attention_delta(stream_, delta_, x.dout, x.out);
    fill(stream_, dq_, 0);
    attention_backward(stream_, shape(deterministic), x.q, x.k, x.v, x.dout, x.lse, delta_, tokens(), tokens(), dq_,
                       dk_, dv_, workspace_, /*accumulate=*/false);
  }
  /// Returns whether the calls so far have written their outputs.
  bool outputs_are_written() {
    const auto good = [&](const TensorView& x) { return is_written(allocator_, stream_, x); };
    return good(dq_) && good(dk_) && good(dv_) &&
           std::all_of(inputs_.begin(), inputs_.end(), [&](const Inputs& x) { return good(x.out) && good(x.lse); });
  }

 private:
  struct Inputs {
    Tensor q, k, v, dout, out, lse;
  };
  const Inputs& inputs(int set) const { return inputs_[static_cast<std::size_t>(set) % inputs_.size()]; }
  Tensor make(const char* name, DType dtype, const Shape& shape) {
    return allocator_.make(Tag::activations, name, dtype, shape);
  }
  AttentionShape shape(bool deterministic) const {
    return {.B = 1,
            .H = size_.H,
            .G = size_.G,
            .D = size_.D,
            .scale = 1 / std::sqrt(static_cast<double>(size_.D)),
            .mask = {.causal = size_.causal, .window = 0},
            .deterministic = deterministic};
  }
  AttentionTokens tokens() const { return {segments_, {}}; }

  const AttentionSize size_;
  Stream& stream_;
  Allocator& allocator_;
  const SegmentList segments_;
  std::vector<Inputs> inputs_;
  Tensor o_, dq_, dk_, dv_, l_, delta_, workspace_;
};

std::vector<AttentionSize> sizes(const Settings& settings) {
  if (settings.tiny) return {{80, 2, 1, 64, true}, {64, 1, 1, 128, false}};
  std::vector<AttentionSize> all;
  for (const std::int64_t D : {128, 64}) {
    for (const bool causal : {true, false}) {
      for (const std::int64_t S : {2048, 8192, 32768}) {
        if (settings.quick && (D != 128 || !causal || S > 8192)) continue;
        all.push_back({S, 16, 16, D, causal});
        if (!settings.quick) all.push_back({S, 16, 8, D, causal});
      }
    }
  }
  return all;
}

/// A choice of Hopper's kernels, and a call that it changes.
struct ChosenCall {
  const char* choice_name;
  bool cuda::hopper::Choices::*choice;
  const char* name;
  std::function<void(int)> run;
};

/// Times the call with the other choice and with the build's, and reports the ratio of their rates.
void compare_choice(Results& results, const AttentionSize& size, Stream& stream, const Repeat& repeat,
                    const ChosenCall& call) {
  using cuda::hopper::choices;
  using cuda::hopper::Choices;
  struct Restore {
    ~Restore() { choices() = Choices{}; }
  } const restore;
  const auto time = [&] { return time_on_stream(stream, repeat, call.run).median; };
  choices() = Choices{};
  const bool chosen = choices().*call.choice;
  const double with = time();
  choices().*call.choice = !chosen;
  const double other = time();
  results.add({.group = "attention",
               .name = fmt::format("{}, {}: {} over {}", call.name, call.choice_name, chosen, !chosen),
               .value = other / with,
               .unit = "of its rate",
               .parameters = size.parameters(),
               .note = fmt::format("{:.3f} ms, {:.3f}", with * 1e3, other * 1e3)});
}

/// All choices that change a call of many tiles.
void compare_choices(Results& results, const AttentionSize& size, Stream& stream, const Repeat& repeat,
                     AttentionProblem& problem) {
  using cuda::hopper::Choices;
  const auto forward = [&](int i) { problem.forward(i); };
  const auto backward = [&](int i) { problem.backward(i, false); };
  const auto in_turns = [&](int i) { problem.backward(i, /*deterministic=*/true); };
  for (const ChosenCall& call : {ChosenCall{"cache_hints", &Choices::cache_hints, "backward", backward},
                                 {"cache_hints", &Choices::cache_hints, "backward, deterministic", in_turns},
                                 {"cache_hints", &Choices::cache_hints, "forward", forward}}) {
    compare_choice(results, size, stream, repeat, call);
  }
}

}  // namespace

void attention_group(Results& results, const Settings& settings) {
  ThreadPool pool(1);
  Allocator allocator(Device::cuda(0));
  ComputeDevice device(allocator, pool, nullptr);
  Stream& stream = device.stream();
  RandomValues random(allocator, stream, DType::bfloat16, 1, settings.tiny ? 4096 : 1 << 22);
  const Repeat repeat = settings.tiny ? Repeat{1, 2} : Repeat{3, settings.quick ? 10 : 15};
  const bool hopper = stream.cuda().compute_capability() == 90 && !cuda::hopper::portable_is_forced();
  for (const AttentionSize& size : sizes(settings)) {
    AttentionProblem problem(size, allocator, stream, random);
    const auto report = [&](const char* name, double flops, const Times& times) {
      results.add({.group = "attention",
                   .name = name,
                   .value = flops / times.median * 1e-12,
                   .unit = "TFLOP/s",
                   .parameters = size.parameters(),
                   .note = fmt::format("{:.3f} ms, {:.3f} to {:.3f}", times.median * 1e3, times.lowest * 1e3,
                                       times.highest * 1e3)});
    };
    const double flops = size.forward_flops();
    report("forward", flops, time_on_stream(stream, repeat, [&](int i) { problem.forward(i); }));
    const Times any = time_on_stream(stream, repeat, [&](int i) { problem.backward(i, false); });
    report("backward", 2.5 * flops, any);
    results.check("attention", "an output of " + size.parameters().dump() + " has a NaN, or was not written",
                  problem.outputs_are_written());
    const Times same = time_on_stream(stream, repeat, [&](int i) { problem.backward(i, true); });
    report("backward, deterministic", 2.5 * flops, same);
    results.check("attention", "deterministic: an output of " + size.parameters().dump() + " has a NaN",
                  problem.outputs_are_written());
    results.add({.group = "attention",
                 .name = "deterministic over default",
                 .value = any.median / same.median,
                 .unit = "of its rate",
                 .parameters = size.parameters(),
                 .note = ""});
    const bool judged = settings.tiny || (size.causal && size.S >= 8192);
    if (judged && hopper) compare_choices(results, size, stream, repeat, problem);
  }
  if (!hopper) return;
  // With three tiles per multiprocessor, whose order matters.
  const AttentionSize few_tiles =
      settings.tiny ? AttentionSize{160, 8, 8, 128, true} : AttentionSize{6144, 16, 8, 128, true};
  AttentionProblem problem(few_tiles, allocator, stream, random);
  compare_choice(
      results, few_tiles, stream, repeat,
      {"rotated_tiles", &cuda::hopper::Choices::rotated_tiles, "backward", [&](int i) { problem.backward(i, false); }});
}

}  // namespace ringtrain::bench
