// Attention's rate, and its ratio to a large sgemm (dgemm) timed in turn with it, so that a busy machine slows both.
// Kernel FLOPs: forward 4 * S^2 * D * H, backward 2.5 times that, causal half. Rates are of the fastest repetition.
// Run: attention_bench [--benchmark_filter=REGEX]; names are pass/type/head size/mask/length/heads/threads.
#include <benchmark/benchmark.h>

#include <Eigen/Dense>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "kernels/attention.h"

namespace {

using namespace ringtrain;

struct Setting {
  bool backward, causal;
  std::int64_t D, S, H, G;
  Layout layout;  // of the shard: anything but contiguous stands for a rank of a ring of 4 with 4 * S tokens
  int threads;
};

double seconds_of(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A large product on every thread at once: what the machine gives a matrix product of the same thread count.
template <class T>
class LargeProduct {
 public:
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
  explicit LargeProduct(ThreadPool& pool) : pool_(pool) {
    for (int i = 0; i < pool.workers(); ++i) {
      a_.push_back(Matrix::Random(size, size)), b_.push_back(Matrix::Random(size, size));
      c_.push_back(Matrix::Zero(size, size));
    }
  }
  double flops() const { return 2.0 * size * size * size * pool_.workers(); }
  void run() {
    pool_.run(pool_.workers(), [&](std::int64_t i, int) {
      const auto n = static_cast<std::size_t>(i);
      c_[n].noalias() = a_[n] * b_[n];
    });
  }

 private:
  static constexpr int size = sizeof(T) == 4 ? 1536 : 1024;
  ThreadPool& pool_;
  std::vector<Matrix> a_, b_, c_;
};

template <class T>
void attention(benchmark::State& state, const Setting& s) {
  ThreadPool pool(s.threads);
  Stream stream(pool);
  LargeProduct<T> product(pool);
  Allocator allocator(Device::cpu());
  const DType dtype = DTypeOf<T>::value;
  const auto make = [&](const Shape& shape) {
    Tensor x = allocator.make(Tag::activations, "x", dtype, shape);
    Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>>(x.as<T>(), shape.numel()).setRandom();
    return x;
  };
  const AttentionShape shape{1, s.H, s.G, s.D, 1 / std::sqrt(static_cast<double>(s.D)), {s.causal, 0}};
  const Shape by_query{1, s.S, s.H, s.D}, by_key{1, s.S, s.G, s.D}, rows{1, s.H, s.S};
  const Tensor q = make(by_query), dout = make(by_query), out = make(by_query), dq = make(by_query);
  const Tensor k = make(by_key), v = make(by_key), dk = make(by_key), dv = make(by_key);
  const Tensor lse = make(rows), l = make(rows), delta = make(rows);
  const auto bytes = static_cast<std::int64_t>(attention_workspace_bytes(stream, shape, dtype, s.S, s.S));
  const Tensor workspace = allocator.make(Tag::workspace, "workspace", DType::uint8, {bytes});
  const SegmentList segments =
      s.layout == Layout::contiguous ? SegmentList{{0, 1, s.S}} : shard_segments(s.layout, 4 * s.S, 4, 1);
  const AttentionTokens tokens{segments, {}};
  const AttentionState running{out, lse, l};
  const auto forward = [&] {
    attention_reset(stream, running);
    attention_forward(stream, shape, q, k, v, tokens, tokens, running, workspace);
    attention_finish(stream, running, lse);
  };
  const auto backward = [&] {
    attention_backward(stream, shape, q, k, v, dout, lse, delta, tokens, tokens, dq, dk, dv, workspace);
  };
  forward();
  attention_delta(stream, delta, dout, out);

  const auto S = static_cast<double>(s.S);
  const double flops = 4 * S * S * static_cast<double>(s.D * s.H) * (s.causal ? 0.5 : 1) * (s.backward ? 2.5 : 1);
  double best = std::numeric_limits<double>::max(), best_product = best;
  for (auto _ : state) {
    best_product = std::min(best_product, seconds_of([&] { product.run(); }));
    const double seconds = s.backward ? seconds_of(backward) : seconds_of(forward);
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  const double rate = flops / best, product_rate = product.flops() / best_product;
  state.counters["GFLOP/s"] = rate * 1e-9;
  state.counters["gemm"] = product_rate * 1e-9;
  state.counters["of_gemm"] = rate / product_rate;
}

void add(const Setting& s, DType dtype = DType::float32) {
  const std::string name = std::string(s.backward ? "backward/" : "forward/") + name_of(dtype) + "/D" +
                           std::to_string(s.D) + (s.causal ? "/causal" : "/full") +
                           (s.layout == Layout::contiguous ? "" : std::string("-") + name_of(s.layout)) + "/S" +
                           std::to_string(s.S) + "/H" + std::to_string(s.H) + "/G" + std::to_string(s.G) + "/threads" +
                           std::to_string(s.threads);
  const auto run = [s, dtype](benchmark::State& state) {
    dispatch_float(dtype, [&]<class T>() { attention<T>(state, s); });
  };
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr Layout contiguous = Layout::contiguous;
  for (bool backward : {false, true}) {
    for (std::int64_t D : {64, 128}) {
      for (bool causal : {false, true}) add({backward, causal, D, 4096, 2, 2, contiguous, 1});
    }
    add({backward, true, 64, 4096, 1, 1, contiguous, 1});  // one head of one sequence: one thread against two
    add({backward, true, 64, 4096, 1, 1, contiguous, 2});
    add({backward, false, 128, 4096, 1, 1, contiguous, 2});
    add({backward, true, 64, 4096, 8, 2, contiguous, 1});
    add({backward, true, 64, 4096, 2, 2, Layout::striped, 1});
    add({backward, true, 64, 4096, 2, 2, Layout::zigzag, 1});
    add({backward, true, 64, 1024, 12, 12, contiguous, 1});  // GPT-2 124M
    add({backward, true, 64, 4096, 2, 2, contiguous, 1}, DType::float64);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
