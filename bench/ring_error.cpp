// The error of attention on a ring of N ranks relative to the plain formulas in double, for N = 1, 2, 4, 8: one JSON
// object per line for each seed, layout, ring, and tensor, with the error's root mean square over that of the tensor.
// Usage: ring_error SEEDS float32|bfloat16 TOKENS. Causal, 2 heads of 64 that share keys and values, scores with
// standard deviation 1. Called by bench/compare.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/parallel/ring_case.h"

namespace {

using namespace ringtrain;
using namespace ringtrain::testing;

double relative_error(const std::vector<double>& x, const std::vector<double>& reference) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - reference[i]) * (x[i] - reference[i]);
    size += reference[i] * reference[i];
  }
  return std::sqrt(difference / size);
}

/// Scales the queries so that scores have standard deviation 1, which is similar to those of a trained model.
void scale_scores(Problem& p) {
  double squares = 0;
  for (const double k : p.k) squares += k * k;
  const double key = std::sqrt(squares / static_cast<double>(p.k.size()));  // the same for queries and keys
  const double times = 1 / (key * key * std::sqrt(static_cast<double>(p.D)) * p.scale());
  for (double& q : p.q) q *= times;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: ring_error SEEDS float32|bfloat16 TOKENS\n");
    return 2;
  }
  const int seeds = std::atoi(argv[1]);
  const bool bfloat16 = std::strcmp(argv[2], "bfloat16") == 0;
  const DType dtype = bfloat16 ? DType::bfloat16 : DType::float32;
  for (int seed = 1; seed <= seeds; ++seed) {
    Problem problem{.S = std::atoll(argv[3]), .H = 2, .G = 1, .D = 64, .mask = {}};
    make_inputs(problem, static_cast<unsigned>(seed));
    scale_scores(problem);
    bfloat16 ? round_inputs<BFloat16>(problem) : round_inputs<float>(problem);
    const Result reference = reference_result(problem);
    for (const Layout layout : all_layouts) {
      for (const int ring : {1, 2, 4, 8}) {
        const Result result = run_ring(problem, {.N = ring, .layout = layout, .dtype = dtype});
        const auto print = [&](const char* tensor, const std::vector<double>& x, const std::vector<double>& y) {
          std::printf(R"({"seed": %d, "layout": "%s", "ring": %d, "tensor": "%s", "error": %.6g})"
                      "\n",
                      seed, name_of(layout), ring, tensor, relative_error(x, y));
        };
        print("out", result.out, reference.out);
        print("dq", result.dq, reference.dq);
        print("dk", result.dk, reference.dk);
        print("dv", result.dv, reference.dv);
      }
    }
  }
}
