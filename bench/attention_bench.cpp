// Attention's rate, and its ratio to a large product (sgemm, dgemm; the faster of Eigen's and oneDNN's) timed in turn
// with it, so that a busy machine slows both. FLOPs as in attention_flops. Rates are of the fastest repetition. Run:
// attention_bench [--benchmark_filter=REGEX]; names are pass/type/head size/mask/length/heads/threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>

#include "bench/attention_case.h"
#include "bench/gemm.h"

namespace {

using namespace ringtrain;
using namespace ringtrain::bench;

double seconds_of(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class T>
void attention(benchmark::State& state, const AttentionSetting& setting, bool backward, int threads) {
  ThreadPool pool(threads);
  Gemm<T> product(pool);
  AttentionCase problem(setting, pool);
  double best = std::numeric_limits<double>::max(), best_product = best;
  for (auto _ : state) {
    best_product = std::min(best_product, seconds_of([&] { product.run(Library::eigen); }));
    if (has_onednn && sizeof(T) == 4) {
      best_product = std::min(best_product, seconds_of([&] { product.run(Library::onednn); }));
    }
    const double seconds = seconds_of([&] { backward ? problem.backward() : problem.forward(); });
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  const double rate = attention_flops(setting, backward) / best, product_rate = product.flops() / best_product;
  state.counters["GFLOP/s"] = rate * 1e-9;
  state.counters["gemm"] = product_rate * 1e-9;
  state.counters["of_gemm"] = rate / product_rate;
}

std::string name_of_case(const AttentionSetting& s, bool backward, int threads) {
  std::string name = std::string(backward ? "backward/" : "forward/") + name_of(s.dtype) + "/D" + std::to_string(s.D) +
                     (s.causal ? "/causal" : "/full");
  if (s.layout != Layout::contiguous) name += std::string("-") + name_of(s.layout);
  if (s.window > 0) name += "-window" + std::to_string(s.window);
  if (s.documents > 1) name += "-documents" + std::to_string(s.documents);
  return name + "/S" + std::to_string(s.S) + "/H" + std::to_string(s.H) + "/G" + std::to_string(s.G) + "/threads" +
         std::to_string(threads);
}

void add(const AttentionSetting& s, int threads = 1) {
  for (const bool backward : {false, true}) {
    const auto run = [s, backward, threads](benchmark::State& state) {
      dispatch_float(s.dtype, [&]<class T>() { attention<T>(state, s, backward, threads); });
    };
    const std::string name = name_of_case(s, backward, threads);
    benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::int64_t D : {64, 128}) {
    for (const bool causal : {false, true}) add({.D = D, .causal = causal});
  }
  for (const std::int64_t D : {32, 80, 96, 256}) add({.D = D});     // at most 25 % slower per FLOP than 64 and 128
  for (const int threads : {1, 2}) add({.H = 1, .G = 1}, threads);  // one head of one sequence
  add({.H = 1, .G = 1, .D = 128, .causal = false}, 2);
  add({.H = 8, .G = 2});
  add({.H = 8, .G = 8, .D = 128, .causal = false});  // rows 4 KiB apart: one set of an L1 cache
  add({.S = 16384, .window = 1024});
  add({.S = 8192, .documents = 8});
  add({.layout = Layout::striped});
  add({.layout = Layout::zigzag});
  add({.S = 1024, .H = 12, .G = 12});  // GPT-2 124M
  add({.dtype = DType::float64});
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
