// How far attention on a ring of N float32 ranks is from the plain formulas in double, for N = 1, 2, 4, 8: one JSON
// object a line for each seed, layout, ring and tensor, with the error's root mean square over that of the tensor.
// Usage: ring_error [SEEDS]. Causal, 2048 tokens, 2 heads of 64 that share keys and values. Called by bench/compare.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

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

/// The inputs as float32 holds them, so that the error is that of the computation.
void round_inputs(Problem& p) {
  for (auto* x : {&p.q, &p.k, &p.v, &p.dout}) {
    for (double& value : *x) value = static_cast<double>(static_cast<float>(value));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int seeds = argc > 1 ? std::atoi(argv[1]) : 1;
  for (int seed = 1; seed <= seeds; ++seed) {
    Problem problem{.S = 2048, .H = 2, .G = 1, .D = 64, .mask = {}};
    make_inputs(problem, static_cast<unsigned>(seed));
    round_inputs(problem);
    const Result reference = reference_result(problem);
    for (const Layout layout : all_layouts) {
      for (const int ring : {1, 2, 4, 8}) {
        const Result result = run_ring(problem, {.N = ring, .layout = layout, .dtype = DType::float32});
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
