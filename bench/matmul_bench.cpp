// A linear layer's three products at the shapes of small and large models, beside one single-threaded Eigen product of
// the same size. Argument: T, I, O, workers. GFLOP/s.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <vector>

#include "framework/stream.h"
#include "kernels/matmul.h"

namespace {

using namespace ringtrain;

enum class Product { forward, backward_input, backward_weight };

void run(benchmark::State& state, Product product) {
  const std::int64_t T = state.range(0), I = state.range(1), O = state.range(2);
  ThreadPool pool(static_cast<int>(state.range(3)));
  Stream stream(pool);
  std::vector<float> x(T * I, 0.5F), w(static_cast<std::size_t>(O * I), 0.25F);
  std::vector<float> y(T * O, 1.0F);
  const TensorView xv = host_view(x.data(), {T, I}), wv = host_view(w.data(), {O, I}), yv = host_view(y.data(), {T, O});
  for (auto _ : state) {
    if (product == Product::forward) linear_forward(stream, yv, xv, wv, {});
    if (product == Product::backward_input) linear_backward_input(stream, xv, yv, wv, false);
    if (product == Product::backward_weight) linear_backward_weight(stream, wv, {}, yv, xv, /*accumulate=*/true);
  }
  const double flops = 2.0 * static_cast<double>(T) * static_cast<double>(I) * static_cast<double>(O);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* b) {
  for (std::int64_t workers : {1, 2}) {
    b->Args({2048, 2048, 2048, workers});
    b->Args({8192, 256, 256, workers});
    b->Args({8192, 256, 768, workers});
    b->Args({2048, 768, 3072, workers});
    b->Args({1024, 256, 257, workers});
  }
  b->UseRealTime()->MinTime(0.2);
}

/// The yardstick: y[T, O] += x[T, I] w[O, I]^T by one call, one thread.
void eigen(benchmark::State& state) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Matrix x = Matrix::Constant(state.range(0), state.range(1), 0.5F);
  const Matrix w = Matrix::Constant(state.range(2), state.range(1), 0.25F);
  Matrix y = Matrix::Zero(state.range(0), state.range(2));
  for (auto _ : state) y.noalias() += x * w.transpose();
  const double flops = 2.0 * static_cast<double>(x.size()) * static_cast<double>(w.rows());
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(eigen)->Args({2048, 2048, 2048})->Args({8192, 256, 256})->Args({2048, 768, 3072})->MinTime(0.2);
BENCHMARK_CAPTURE(run, forward, Product::forward)->Apply(shapes);
BENCHMARK_CAPTURE(run, backward_input, Product::backward_input)->Apply(shapes);
BENCHMARK_CAPTURE(run, backward_weight, Product::backward_weight)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
