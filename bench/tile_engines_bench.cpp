// Which engine multiplies an attention tile fastest on one core: C[M, N] = A[M, K] B[K, N], operands with contiguous
// rows in the L1 caches, M and N the tile's queries and keys, K the head size. Engines: our attention_gemm.h
// (registers over all of K, nothing packed), Eigen, and where they are installed libxsmm (code made at run time for the
// shape) and oneDNN. GFLOP/s, the best of five repetitions; names are engine/M/N/K. The table in bench/results/cpu.md
// is this program's output.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#ifdef RINGTRAIN_LIBXSMM
#include <libxsmm.h>
#endif
#ifdef RINGTRAIN_ONEDNN
#include <dnnl.h>
#include <omp.h>
#endif

#include "kernels/cpu/attention_gemm.h"

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Tile {
  std::int64_t M, N, K;
  Matrix a, b, c;
  Tile(std::int64_t m, std::int64_t n, std::int64_t k)
      : M(m), N(n), K(k), a(Matrix::Random(m, k)), b(Matrix::Random(k, n)), c(Matrix::Zero(m, n)) {}
};

void ours(Tile& t) {
  using namespace ringtrain::cpu;
  for (std::int64_t column = 0; column < t.N; column += panel_width<float>) {
    gemm_panel<float, Order::rows, Store::overwrite>(t.M, std::min(panel_width<float>, t.N - column), t.K, t.a.data(),
                                                     t.K, t.b.data() + column, t.N, t.c.data() + column, t.N);
  }
}

/// B's panels packed side by side, once a tile and within the time: what rows far apart in memory would need.
void ours_packed(Tile& t) {
  using namespace ringtrain::cpu;
  constexpr std::int64_t wide = panel_width<float>;
  alignas(64) static float panel[wide * 128];
  for (std::int64_t column = 0; column < t.N; column += wide) {
    for (std::int64_t p = 0; p < t.K; ++p) std::copy_n(t.b.data() + p * t.N + column, wide, panel + p * wide);
    gemm_panel<float, Order::rows, Store::overwrite>(t.M, wide, t.K, t.a.data(), t.K, panel, wide, t.c.data() + column,
                                                     t.N);
  }
}

void eigen(Tile& t) {
  t.c.noalias() = t.a * t.b;
}

#ifdef RINGTRAIN_ONEDNN
void onednn(Tile& t) {
  dnnl_sgemm('N', 'N', t.M, t.N, t.K, 1, t.a.data(), t.K, t.b.data(), t.N, 0, t.c.data(), t.N);
}
#endif

using Product = std::function<void(Tile&)>;

void measure(benchmark::State& state, const std::function<Product(const Tile&)>& prepare, std::int64_t M,
             std::int64_t N, std::int64_t K) {
  Tile tile(M, N, K);
  const Product product = prepare(tile);
  for (auto _ : state) {
    product(tile);
    benchmark::ClobberMemory();
  }
  const Matrix expected = (tile.a.cast<double>() * tile.b.cast<double>()).cast<float>();
  if (!tile.c.isApprox(expected, 1e-5F)) state.SkipWithError("the product is wrong");
  const double flops = 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  const auto always = [](Product product) { return [product](const Tile&) { return product; }; };
  std::vector<std::pair<std::string, std::function<Product(const Tile&)>>> engines{
      {"ours", always(ours)}, {"ours_packed", always(ours_packed)}, {"eigen", always(eigen)}};
#ifdef RINGTRAIN_LIBXSMM
  libxsmm_init();
  engines.emplace_back("libxsmm", [](const Tile& t) -> Product {
    // Its matrices have contiguous columns: the transposed product of the same numbers.
    const auto m = static_cast<libxsmm_blasint>(t.N), n = static_cast<libxsmm_blasint>(t.M),
               k = static_cast<libxsmm_blasint>(t.K);
    const float one = 1, zero = 0;
    const libxsmm_smmfunction code = libxsmm_smmdispatch(m, n, k, &m, &k, &m, &one, &zero, nullptr, nullptr);
    if (!code) return [](Tile&) {};
    return [code](Tile& tile) { code(tile.b.data(), tile.a.data(), tile.c.data()); };
  });
#endif
#ifdef RINGTRAIN_ONEDNN
  omp_set_num_threads(1);
  engines.emplace_back("onednn", always(onednn));
#endif
  for (const std::int64_t K : {64, 128}) {
    for (const auto& [M, N] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {64, 64}, {64, 128}, {128, 64}, {128, 128}, {256, 128}, {128, 256}, {256, 256}, {512, 512}}) {
      for (const auto& [name, prepare] : engines) {
        const auto run = [prepare = prepare, M = M, N = N, K](benchmark::State& state) {
          measure(state, prepare, M, N, K);
        };
        const std::string title = name + "/" + std::to_string(M) + "/" + std::to_string(N) + "/" + std::to_string(K);
        benchmark::RegisterBenchmark(title.c_str(), run)
            ->UseRealTime()
            ->MinTime(0.05)
            ->Repetitions(5)
            ->ReportAggregatesOnly()
            ->ComputeStatistics("best",
                                [](const std::vector<double>& x) { return *std::max_element(x.begin(), x.end()); });
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
