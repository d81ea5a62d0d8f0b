// The kernels that memory bounds: norms, rotary, SwiGLU, GELU, cross-entropy, AdamW, embedding, at GPT-2 124M's shapes
// (4096 tokens of width 768). Bytes are those that must move: each operand read or written once. Beside each a memcpy
// of as many bytes (half read, half written) on the same threads, timed in turn with it. Rates are of the fastest
// repetition. Names are kernel/threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace {

using namespace ringtrain;

constexpr std::int64_t T = 4096, C = 768, F = 3072, H = 12, D = 64, V = 50257, loss_chunk = 1024;
constexpr std::int64_t parameters = std::int64_t{8} << 20;

/// A kernel ready to run, and the bytes it must move. It owns its tensors.
struct Case {
  explicit Case(ThreadPool& pool) : stream(pool) {}
  Tensor make(const Shape& shape, double stddev = 1) {
    Tensor x = allocator.make(Tag::activations, "x", DType::float32, shape);
    fill_normal(stream, x, stddev, /*seed=*/1, /*first_index=*/0);
    return x;
  }
  Tensor make_ids(std::int64_t count, std::int64_t rows) {
    Tensor x = allocator.make(Tag::activations, "ids", DType::int32, {count});
    for (std::int64_t i = 0; i < count; ++i) x.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % rows);
    return x;
  }
  const Tensor& operator[](std::size_t i) const { return tensors[i]; }

  Allocator allocator{Device::cpu()};
  Stream stream;
  std::vector<Tensor> tensors;
  std::function<void()> run;
  std::int64_t elements = 0;  // of float32, read plus written
};

template <class... Shapes>
void give(Case& c, const Shapes&... shapes) {
  (c.tensors.push_back(c.make(shapes)), ...);
}

const Shape width{T, C}, wide{T, F}, row{C}, column{T};

void rmsnorm_forward(Case& c) {
  give(c, width, column, width, row);
  c.elements = 2 * T * C;
  c.run = [&c] { ringtrain::rmsnorm_forward(c.stream, c[0], c[1], c[2], c[3], 1e-5); };
}
void rmsnorm_backward(Case& c) {
  give(c, width, row, width, width, row, column);
  c.elements = 4 * T * C;  // dx is read and written
  c.run = [&c] { ringtrain::rmsnorm_backward(c.stream, c[0], c[1], c[2], c[3], c[4], c[5], true); };
}
void layernorm_forward(Case& c) {
  give(c, width, column, column, width, row, row);
  c.elements = 2 * T * C;
  c.run = [&c] { ringtrain::layernorm_forward(c.stream, c[0], c[1], c[2], c[3], c[4], c[5], 1e-5); };
}
void layernorm_backward(Case& c) {
  give(c, width, row, row, width, width, row, column, column);
  c.elements = 4 * T * C;
  c.run = [&c] { ringtrain::layernorm_backward(c.stream, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], true); };
}
void rope_forward(Case& c) {
  give(c, Shape{T, H, D}, Shape{T, D});
  c.elements = 2 * T * C + T * D;
  c.run = [&c] { ringtrain::rope_forward(c.stream, c[0], c[1]); };
}
void rope_backward(Case& c) {
  rope_forward(c);
  c.run = [&c] { ringtrain::rope_backward(c.stream, c[0], c[0], c[1]); };
}
void swiglu_forward(Case& c) {
  give(c, wide, wide, wide);
  c.elements = 3 * T * F;
  c.run = [&c] { ringtrain::swiglu_forward(c.stream, c[0], c[1], c[2]); };
}
void swiglu_backward(Case& c) {
  give(c, wide, wide, wide, wide, wide);
  c.elements = 5 * T * F;
  c.run = [&c] { ringtrain::swiglu_backward(c.stream, c[0], c[1], c[2], c[3], c[4]); };
}
void gelu_forward(Case& c) {
  give(c, wide, wide);
  c.elements = 2 * T * F;
  c.run = [&c] { ringtrain::gelu_forward(c.stream, c[0], c[1]); };
}
void gelu_backward(Case& c) {
  give(c, wide, wide, wide);
  c.elements = 3 * T * F;
  c.run = [&c] { ringtrain::gelu_backward(c.stream, c[0], c[1], c[2]); };
}
void cross_entropy_with_gradient(Case& c) {
  give(c, Shape{loss_chunk, V}, Shape{loss_chunk});
  c.tensors.push_back(c.make_ids(loss_chunk, V));
  c.tensors.push_back(c.allocator.make(Tag::activations, "nll", DType::float64, {loss_chunk}));
  c.elements = 2 * loss_chunk * V;
  c.run = [&c] { cross_entropy(c.stream, c[0], c[3], c[2], c[1], 4096, true); };
}
void adamw(Case& c) {
  give(c, Shape{parameters}, Shape{parameters}, Shape{parameters}, Shape{parameters});
  fill(c.stream, c[2], 1);  // second moments are no negative numbers
  c.elements = 7 * parameters;
  c.run = [&c] {
    const AdamWSlice slice{.w = c[0], .m = c[1], .v = c[2], .g = c[3], .rounded = {}, .weight_decay = 0.1};
    adamw_update(c.stream, {&slice, 1}, {1e-6, 0.9, 0.95, 1e-8, 100, 1});
  };
}
void embedding_forward(Case& c) {
  give(c, width, Shape{V, C});
  c.tensors.push_back(c.make_ids(T, V));
  c.elements = 2 * T * C;
  c.run = [&c] { ringtrain::embedding_forward(c.stream, c[0], c[2], c[1], false); };
}
void embedding_backward(Case& c) {
  embedding_forward(c);
  c.elements = 3 * T * C;
  c.run = [&c] { ringtrain::embedding_backward(c.stream, c[1], c[2], c[0]); };
}

double seconds_of(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(benchmark::State& state, void (*prepare)(Case&), int threads) {
  ThreadPool pool(threads);
  Case c(pool);
  prepare(c);
  const auto bytes = static_cast<std::size_t>(c.elements) * sizeof(float), half = bytes / 2,
             part = std::size_t{1} << 20;
  std::vector<char> from(half, 1), to(half, 2);
  const auto parts = static_cast<std::int64_t>((half + part - 1) / part);
  const auto copy_all = [&] {
    pool.run(parts, [&](std::int64_t i, int) {
      const std::size_t begin = static_cast<std::size_t>(i) * part;
      std::memcpy(to.data() + begin, from.data() + begin, std::min(part, half - begin));
    });
  };
  double best = std::numeric_limits<double>::max(), best_copy = best;
  for (auto _ : state) {
    best_copy = std::min(best_copy, seconds_of(copy_all));
    const double seconds = seconds_of(c.run);
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["memcpy"] = static_cast<double>(bytes) / best_copy * 1e-9;
  state.counters["of_memcpy"] = best_copy / best;
}

}  // namespace

int main(int argc, char** argv) {
  const std::pair<const char*, void (*)(Case&)> cases[] = {
      {"rmsnorm_forward", rmsnorm_forward},
      {"rmsnorm_backward", rmsnorm_backward},
      {"layernorm_forward", layernorm_forward},
      {"layernorm_backward", layernorm_backward},
      {"rope_forward", rope_forward},
      {"rope_backward", rope_backward},
      {"swiglu_forward", swiglu_forward},
      {"swiglu_backward", swiglu_backward},
      {"gelu_forward", gelu_forward},
      {"gelu_backward", gelu_backward},
      {"cross_entropy_with_gradient", cross_entropy_with_gradient},
      {"adamw", adamw},
      {"embedding_forward", embedding_forward},
      {"embedding_backward", embedding_backward},
  };
  for (const auto& [name, prepare] : cases) {
    for (const int threads : {1, 2}) {
      const auto run = [prepare = prepare, threads](benchmark::State& state) { measure(state, prepare, threads); };
      benchmark::RegisterBenchmark((std::string(name) + "/threads" + std::to_string(threads)).c_str(), run)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond)
          ->MinTime(0.2);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
