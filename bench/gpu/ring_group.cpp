// Compares rings of thread ranks that share one card, with zigzag shards of one sequence, with one rank that has all of
// it.
//
// step, pass: seconds between two moments at which all ranks are idle, with the model's forward and backward (pass), or
// the whole step (including the cost of replicated weights: their gradients' reduction, and sending back updated
// weights). Every rank has its own stream, so kernels of several ranks may run concurrently.
//
// exposed communication: the time of a pass of only attention through the ring, minus that of the same kernels on the
// same positions with this rank's own keys and values instead of those that would arrive, divided by the number of
// hops. Copies that kernels hide are not included.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "bench/gpu/groups.h"
#include "bench/gpu/random_values.h"
#include "bench/gpu/synthetic_rank.h"
#include "bench/gpu/timing.h"
#include "layers/model_parameters.h"
#include "parallel/launch/launch.h"
#include "parallel/ring/ring.h"
#include "tests/support/shards.h"

namespace ringtrain::bench {

namespace {

/// Returns the seconds of body on all ranks, each of which must call this: from all idle to all idle.
std::vector<double> seconds_of(Communicator& world, Stream& stream, const Repeat& repeat,
                               const std::function<void()>& body) {
  std::vector<double> seconds;
  const auto all_idle = [&] {
    stream.synchronize();
    world.barrier({"benchmark"});
    return std::chrono::steady_clock::now();
  };
  for (int i = 0; i < repeat.warm_up + repeat.repetitions; ++i) {
    const auto begin = all_idle();
    body();
    const auto end = all_idle();
    if (i >= repeat.warm_up) seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  return seconds;
}

struct RingTimes {
  Times pass, step;
};

RingTimes time_model(const Config& config, const ParameterTable& table, const Repeat& repeat) {
  RingTimes times;
  launch_threads({.ranks = static_cast<int>(config.mesh.sequence)}, [&](Communicator& world) {
    ThreadPool pool(1);
    SyntheticRank rank(config, table, pool, world);
    const auto pass = seconds_of(world, rank.state().stream, repeat, [&] { rank.pass(); });
    rank.state().model->take_loss_sum();
    const auto step = seconds_of(world, rank.state().stream, repeat, [&] { rank.step(); });
    if (world.rank() == 0) times = {summary(pass), summary(step)};
  });
  return times;
}

/// One rank of a ring that only computes attention.
class RingAttentionCase {
 public:
  RingAttentionCase(Communicator& world, std::int64_t S, const AttentionShape& shape, bool tiny)
      : shape_(shape),
        pool_(1),
        allocator_(Device::cuda(0)),
        device_(allocator_, pool_, nullptr),
        stream_(device_.stream()),
        ring_(allocator_, ordered(world), world.size(), capacity(world, S)) {
    auto [segments, extents] = testing::shards_of(Layout::zigzag, S, world.size());
    segments_ = std::move(segments);
    own_ = {segments_[world.rank()], {}};
    ring_.begin(shape.mask, extents, segments_, 1);

    const std::int64_t T = S / world.size(), H = shape.H, G = shape.G, D = shape.D;
    const Shape by_query{1, T, H, D}, rows{1, H, T};
    RandomValues random(allocator_, stream_, DType::bfloat16, 1, tiny ? 2048 : 1 << 20);
    const auto make = [&](const char* name, DType dtype, const Shape& size) {
      Tensor x = allocator_.make(Tag::activations, name, dtype, size);
      if (dtype == DType::float32) fill(stream_, x, std::numeric_limits<double>::quiet_NaN());
      if (dtype == DType::bfloat16) random.fill(x);
      return x;
    };
    q_ = make("q", DType::bfloat16, by_query);
    dout_ = make("dout", DType::bfloat16, by_query);
    kv_ = make("kv", DType::bfloat16, {2, 1, T, G, D});
    out_ = make("out", DType::bfloat16, by_query);
    o_ = make("o", DType::float32, by_query);
    dq_ = make("dq", DType::float32, by_query);
    dkv_ = make("dkv", DType::float32, {2, 1, T, G, D});
    lse_ = make("lse", DType::float32, rows);
    l_ = make("l", DType::float32, rows);
    delta_ = make("delta", DType::float32, rows);
    const auto bytes = attention_workspace_bytes(stream_, shape, DType::bfloat16, T, T);
    workspace_ = make("workspace", DType::uint8, {static_cast<std::int64_t>(bytes)});
    stream_.synchronize();  // the random values are freed
  }

  Stream& stream() { return stream_; }
  void forward(bool exchange) {
    if (exchange) {
      ring_.forward(stream_, 0, kv_, {}, [&](const RingBlock& b) { meet(b.k, b.v, b.tokens, b.first, b.last); });
      return;
    }
    const std::vector<RingStep> steps = steps_of_plan();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      meet(half(kv_, 0), half(kv_, 1), tokens_of(steps[i]), i == 0, i + 1 == steps.size());
    }
  }
  void backward(bool exchange) {
    attention_delta(stream_, delta_, dout_, out_);
    fill(stream_, dq_, 0);
    if (exchange) {
      ring_.backward(stream_, 0, kv_, {}, dkv_,
                     [&](const RingBlock& b) { meet_backward(b.k, b.v, b.tokens, b.dk, b.dv, b.accumulate); });
      return;
    }
    for (const RingStep& step : steps_of_plan()) {
      meet_backward(half(kv_, 0), half(kv_, 1), tokens_of(step), half(dkv_, 0), half(dkv_, 1),
                    /*accumulate=*/step.gradient_from != no_peer);
    }
  }
  bool is_written() {
    const auto good = [&](const TensorView& x) { return bench::is_written(allocator_, stream_, x); };
    return good(out_) && good(lse_) && good(dq_) && good(dkv_);
  }

 private:
  Communicator* ordered(Communicator& world) {
    world.set_stream(stream_);
    return &world;
  }
  RingCapacity capacity(const Communicator& world, std::int64_t S) const {
    const std::int64_t tokens = S / world.size();
    return {.tokens = tokens,
            .gradient_tokens = tokens,
            .G = shape_.G,
            .D = shape_.D,
            .dtype = DType::bfloat16,
            .backward = true,
            .documents = false};
  }
  static TensorView half(const TensorView& pair, std::int64_t which) {
    return pair.rows(which, which + 1).reshape({pair.dim(1), pair.dim(2), pair.dim(3), pair.dim(4)});
  }
  std::vector<RingStep> steps_of_plan() const {
    std::vector<RingStep> steps;
    for (const RingHop& hop : ring_.plan()) {
      if (hop.step) steps.push_back(*hop.step);
    }
    return steps;
  }
  AttentionTokens tokens_of(const RingStep& step) const { return {segments_[step.owner], {}}; }
  void meet(const ConstTensorView& k, const ConstTensorView& v, const AttentionTokens& keys, bool first, bool last) {
    attention_forward(stream_, shape_, q_, k, v, own_, keys, {o_, lse_, l_},
                      {.init = first, .finalize = last, .out = out_, .lse = lse_}, workspace_);
  }
  void meet_backward(const ConstTensorView& k, const ConstTensorView& v, const AttentionTokens& keys,
                     const TensorView& dk, const TensorView& dv, bool accumulate) {
    attention_backward(stream_, shape_, q_, k, v, dout_, lse_, delta_, own_, keys, dq_, dk, dv, workspace_, accumulate);
  }

  const AttentionShape shape_;
  ThreadPool pool_;
  Allocator allocator_;
  ComputeDevice device_;
  Stream& stream_;
  Ring ring_;
  std::vector<SegmentList> segments_;
  AttentionTokens own_;
  Tensor q_, dout_, kv_, out_, o_, dq_, dkv_, lse_, l_, delta_, workspace_;
};

void time_hops(Results& results, const Settings& settings, std::int64_t S, int N, const Repeat& repeat) {
  const AttentionShape shape{.B = 1,
                             .H = settings.tiny ? 2 : 16,
                             .G = settings.tiny ? 1 : 8,
                             .D = settings.tiny ? 64 : 128,
                             .scale = 1 / std::sqrt(settings.tiny ? 64.0 : 128.0),
                             .mask = {.causal = true, .window = 0},
                             .deterministic = false};
  Times with[2], without[2];
  std::vector<char> written(N);
  launch_threads({.ranks = N}, [&](Communicator& world) {
    RingAttentionCase rank(world, S, shape, settings.tiny);
    const auto time = [&](bool backward, bool exchange) {
      return summary(seconds_of(world, rank.stream(), repeat,
                                [&] { backward ? rank.backward(exchange) : rank.forward(exchange); }));
    };
    for (const bool backward : {false, true}) {
      const Times pass_only = time(backward, false), all = time(backward, true);
      if (world.rank() == 0) {
        without[backward] = pass_only;
        with[backward] = all;
      }
    }
    written[world.rank()] = rank.is_written();
  });
  for (const char good : written) {
    results.check("ring", fmt::format("attention in a ring of {}: an output has a NaN, or was not written", N), good);
  }
  for (const bool backward : {false, true}) {
    results.add({.group = "ring",
                 .name = backward ? "exposed communication a hop, backward" : "exposed communication a hop, forward",
                 .value = (with[backward].median - without[backward].median) / (N - 1) * 1e6,
                 .unit = "us",
                 .parameters = {{"ranks", N}, {"S", S}},
                 .note = fmt::format("of {:.0f} us a hop without exchange", without[backward].median / N * 1e6)});
  }
}

}  // namespace

void ring_group(Results& results, const Settings& settings) {
  const std::int64_t S = settings.tiny ? 64 : settings.quick ? 16384 : 32768;
  const Repeat repeat = settings.tiny ? Repeat{0, 1} : Repeat{2, 10};
  ModelConfig model = billion_model(settings.tiny);
  model.num_hidden_layers = settings.tiny ? 1 : 4;
  model.vocab_size = settings.tiny ? 96 : 32000;
  const ParameterTable table = make_parameter_table(model);
  RingTimes one;
  for (const int N : {1, 2, 4, 8}) {
    if (settings.tiny && N > 2) break;
    Config config = synthetic_config(model, S);
    config.mesh.sequence = N;
    config.training.loss_chunk = settings.tiny ? 16 : 2048;
    const RingTimes times = time_model(config, table, repeat);
    if (N == 1) one = times;
    const auto report = [&](const char* name, const Times& t, const Times& of_one) {
      const Json parameters{{"ranks", N}, {"S", S}, {"layers", model.num_hidden_layers}};
      results.add({.group = "ring",
                   .name = name,
                   .value = t.median * 1e3,
                   .unit = "ms",
                   .parameters = parameters,
                   .note = fmt::format("{:.3f} to {:.3f}", t.lowest * 1e3, t.highest * 1e3)});
      if (N == 1) return;
      results.add({.group = "ring",
                   .name = std::string(name) + " over one rank",
                   .value = t.median / of_one.median,
                   .unit = "of its time",
                   .parameters = parameters,
                   .note = ""});
    };
    report("pass", times.pass, one.pass);
    report("step", times.step, one.step);
    if (N > 1) time_hops(results, settings, S, N, repeat);
  }
}

}  // namespace ringtrain::bench
