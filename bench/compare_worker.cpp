// Our side of bench/compare's kernel rows: reads one JSON object per line from stdin, measures, and answers with one
// line.
//   {"kind": "about"}                 -> {"libraries": ["eigen", "onednn"], "bfloat16": "AVX512-BF16"}
//   {"kind": "sgemm", "library": "eigen", "threads": 2, "seconds": 0.3}
//   {"kind": "product", "dtype": "bfloat16", "size": 2048, "threads": 2, "seconds": 0.3}   ours, x[n, n] w[n, n]^T
//   {"kind": "attention", "pass": "forward", "B": 1, "S": 4096, "H": 2, "G": 2, "D": 64, "causal": true,
//    "dtype": "float32", "threads": 1, "seconds": 0.3}
//     -> {"seconds": of the fastest call, "calls": how many were made, "flops": of one call}
// A measurement repeats the call until `seconds` have passed, at least three times. Baselines (bench/baselines) answer
// the same questions, so the driver can alternate between ours and theirs. Ends at the end of stdin.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/attention_case.h"
#include "bench/gemm.h"
#include "kernels/bfloat16_products.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace {

using namespace ringtrain;
using namespace ringtrain::bench;
using nlohmann::json;

json timed(double budget, double flops, const auto& body) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  double best = std::numeric_limits<double>::max();
  int calls = 0;
  for (; calls < 3 || since(begin) < budget; ++calls) {
    const auto start = Clock::now();
    body();
    best = std::min(best, since(start));
  }
  return {{"seconds", best}, {"calls", calls}, {"flops", flops}};
}

/// The problems used so far for one number of threads, with warm memory.
class Bench {
 public:
  explicit Bench(int threads) : pool_(threads), product_(pool_) {}

  json sgemm(const std::string& name, double seconds) {
    const Library library = name == "onednn" ? Library::onednn : Library::eigen;
    return timed(seconds, product_.flops(), [&] { product_.run(library); });
  }
  json product(DType dtype, std::int64_t n, double seconds) {
    Stream stream(pool_);
    Allocator allocator(Device::cpu());
    const auto make = [&](const char* name) {
      Tensor x = allocator.make(Tag::activations, name, dtype, {n, n});
      fill_normal(stream, x, 1, 1, 0);
      return x;
    };
    const Tensor x = make("x"), w = make("w"), y = make("y");
    const double flops = 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    return timed(seconds, flops, [&] { linear_forward(stream, y, x, w, {}); });
  }
  json attention(const AttentionSetting& setting, bool backward, double seconds) {
    auto& problem = attention_[setting];
    if (!problem) problem = std::make_unique<AttentionCase>(setting, pool_);
    return timed(seconds, attention_flops(setting, backward),
                 [&] { backward ? problem->backward() : problem->forward(); });
  }

 private:
  ThreadPool pool_;
  Gemm product_;
  std::map<AttentionSetting, std::unique_ptr<AttentionCase>> attention_;
};

DType dtype_of(const json& question) {
  const std::string name = question.value("dtype", "float32");
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    if (name == name_of(dtype)) return dtype;
  }
  fail(ExitCode::usage, "no dtype is called {}", name);
}

AttentionSetting setting_of(const json& question) {
  AttentionSetting s;
  s.dtype = dtype_of(question);
  for (const auto& [name, member] : {std::pair{"B", &s.B}, {"S", &s.S}, {"H", &s.H}, {"G", &s.G}, {"D", &s.D}}) {
    *member = question.value(name, *member);
  }
  s.causal = question.value("causal", s.causal);
  return s;
}

json answer(const json& question, std::map<int, std::unique_ptr<Bench>>& benches) {
  const std::string kind = question.at("kind");
  if (kind == "about") {
    json libraries = {"eigen"};
    if (has_onednn) libraries.push_back("onednn");
    return {{"libraries", libraries}, {"bfloat16", bfloat16_products_text()}};
  }
  const int threads = question.at("threads");
  auto& bench = benches[threads];
  if (!bench) bench = std::make_unique<Bench>(threads);
  const double seconds = question.at("seconds");
  if (kind == "sgemm") return bench->sgemm(question.at("library"), seconds);
  if (kind == "product") return bench->product(dtype_of(question), question.value("size", 2048), seconds);
  if (kind == "attention") return bench->attention(setting_of(question), question.at("pass") == "backward", seconds);
  return {{"error", "no measurement is called " + kind}};
}

}  // namespace

int main() {
  std::map<int, std::unique_ptr<Bench>> benches;
  for (std::string line; std::getline(std::cin, line);) {
    json reply;
    try {
      reply = answer(json::parse(line), benches);
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    std::printf("%s\n", reply.dump().c_str());
    std::fflush(stdout);
  }
}
