#include "extras/planner/measure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <Eigen/Dense>
#include <algorithm>
#include <chrono>
#include <cmath>

#include "framework/allocator.h"
#include "framework/cores.h"
#include "framework/error.h"
#include "framework/profile/clock.h"
#include "framework/system/host_name.h"
#include "framework/system/system_memory.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "parallel/launch/launcher.h"

namespace ringtrain {

namespace {

/// Returns the median seconds of body's calls within `budget` seconds, of at least three calls. As in a run, the
/// machine's other work is included.
template <class Body>
double median_seconds(double budget, const Body& body) {
  std::vector<double> all;
  double spent = 0;
  for (int call = 0; call < 4 || spent < budget; ++call) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const double seconds = seconds_since(start);
    if (call > 0) all.push_back(seconds);  // the first has cold caches
    spent += seconds;
  }
  std::ranges::nth_element(all, all.begin() + std::ssize(all) / 2);
  return all[all.size() / 2];
}

/// Kernels of one dtype on all cores, and tensors for them.
class Bench {
 public:
  Bench(DType dtype, int cores) : dtype_(dtype), pool_(cores), stream_(pool_), allocator_(Device::cpu()) {}

  Tensor make(const char* name, const Shape& shape) { return make(name, shape, dtype_); }
  /// The same for sums.
  Tensor make_sum(const char* name, const Shape& shape) { return make(name, shape, accumulator(dtype_)); }

  /// The three products of a linear layer: parts are calls, FLOPs, and bytes of rows read and written.
  void products(std::int64_t T, std::int64_t I, std::int64_t O, std::vector<TimedCall>& samples) {
    const Tensor x = make("x", {T, I}), w = make("w", {O, I}), y = make("y", {T, O}), dw = make_sum("dw", {O, I});
    const double flops = 2.0 * static_cast<double>(T * I * O);
    const double bytes = static_cast<double>(T * (I + O)) * static_cast<double>(size_of(dtype_));
    const auto add = [&](const auto& body) { samples.push_back({{1, flops, bytes}, median_seconds(0.1, body)}); };
    add([&] { linear_forward(stream_, y, x, w, {}); });
    add([&] { linear_backward_input(stream_, x, y, w, /*accumulate=*/false); });
    add([&] { linear_backward_weight(stream_, dw, {}, y, x, /*accumulate=*/true); });
  }

  /// Attention of one block: parts are calls, FLOPs, and pairs times heads (the additional cost of each score).
  void attention(std::int64_t T, std::int64_t H, std::int64_t D, bool causal, std::vector<TimedCall>& forward,
                 std::vector<TimedCall>& backward) {
    const AttentionShape shape{1, H, H, D, 1 / std::sqrt(static_cast<double>(D)), {causal, 0}};
    const Shape heads{1, T, H, D}, by_row{1, H, T};
    const Tensor q = make("q", heads), k = make("k", heads), v = make("v", heads), out = make("out", heads),
                 dout = make("dout", heads), o = make_sum("o", heads), dq = make_sum("dq", heads),
                 dk = make_sum("dk", heads), dv = make_sum("dv", heads), lse = make_sum("lse", by_row),
                 l = make_sum("l", by_row), delta = make_sum("delta", by_row);
    const auto bytes = static_cast<std::int64_t>(attention_workspace_bytes(stream_, shape, dtype_, T, T));
    const Tensor workspace = allocator_.make(Tag::workspace, "workspace", DType::uint8, {bytes});
    const Segment segment{0, 1, T};
    const AttentionTokens tokens{{&segment, 1}, {}};
    const double pairs = static_cast<double>(visible_pairs(shape.mask, {&segment, 1}, {&segment, 1}) * H);
    forward.push_back({{1, 4 * pairs * static_cast<double>(D), pairs}, median_seconds(0.2, [&] {
                         attention_forward(stream_, shape, q, k, v, tokens, tokens, {o, lse, l},
                                           {.init = true, .finalize = true, .out = out, .lse = lse}, workspace);
                       })});
    attention_delta(stream_, delta, dout, out);
    backward.push_back({{1, 10 * pairs * static_cast<double>(D), pairs}, median_seconds(0.3, [&] {
                          attention_backward(stream_, shape, q, k, v, dout, lse, delta, tokens, tokens, dq, dk, dv,
                                             workspace);
                        })});
  }

  /// Passes over rows of C: norm, activation, residual sum, forward and backward. Parts are calls, and bytes as in
  /// layer_work(); some of them are limited more by arithmetic than by memory.
  void passes(std::int64_t T, std::int64_t C, std::vector<TimedCall>& samples) {
    const Tensor x = make("x", {T, C}), y = make("y", {T, C}), z = make("z", {T, C}), dx = make("dx", {T, C}),
                 dy = make("dy", {T, C}), w = make("w", {C}), dw = make("dw", {C}), rstd = make("rstd", {T});
    const double row = static_cast<double>(x.view().bytes());
    const auto time = [&](double tensors, const auto& body) {
      samples.push_back({{1, tensors * row}, median_seconds(0.1, body)});
    };
    time(2, [&] { norm_forward(stream_, y, {}, rstd, x, w, {}, 1e-5); });
    time(4, [&] { norm_backward(stream_, dx, dw, {}, dy, x, w, {}, rstd, /*accumulate=*/true); });
    time(3, [&] { activation_forward(stream_, Activation::silu, z, x, y); });
    time(6, [&] { activation_backward(stream_, Activation::silu, dx, dy, z, x, y, z); });
    time(3, [&] { add(stream_, y, x); });
  }

 private:
  Tensor make(const char* name, const Shape& shape, DType dtype) {
    Tensor tensor = allocator_.make(Tag::workspace, name, dtype, shape);
    fill_normal(stream_, tensor, 0.1, /*seed=*/1, /*first_index=*/0);
    return tensor;
  }

  DType dtype_;
  ThreadPool pool_;
  Stream stream_;
  Allocator allocator_;
};

/// Returns messages both ways between two thread ranks: parts are messages and bytes.
std::vector<TimedCall> messages() {
  std::vector<TimedCall> samples;
  Launcher threads;
  threads.launch({.ranks = 2, .timeout_seconds = 60}, [&](Communicator& world) {
    Allocator allocator(Device::cpu());
    for (std::int64_t bytes = 4096; bytes <= (std::int64_t{1} << 24); bytes *= 8) {
      const Tensor sent = allocator.make(Tag::ring, "sent", DType::uint8, {bytes});
      const Tensor received = allocator.make(Tag::ring, "received", DType::uint8, {bytes});
      const int peer = 1 - world.rank();
      constexpr int repeats = 20;
      const auto round = [&] {
        for (int i = 0; i < repeats; ++i) world.wait(world.exchange(sent, peer, received, peer, {"measured message"}));
      };
      round();
      double best = 1e30;
      for (int attempt = 0; attempt < 8; ++attempt) {
        world.barrier({"measured messages"});
        const auto start = std::chrono::steady_clock::now();
        round();
        best = std::min(best, seconds_since(start));
      }
      if (world.rank() == 0) samples.push_back({{1, static_cast<double>(bytes)}, best / repeats});
    }
  });
  return samples;
}

/// Returns the fit of a dtype's kernels, for one core. The peak, here always that of float32, is the best rate that was
/// measured: the maximum of a core is not known.
Hardware measure_kernels(DType dtype, int cores) {
  Bench bench(dtype, cores);
  std::vector<TimedCall> products, forward, backward;
  for (const std::int64_t T : {32, 64, 128}) bench.products(T, 64, 64, products);  // the call is a large part of these
  for (const std::int64_t T : {512, 1024, 2048}) {
    for (const auto& [I, O] :
         {std::pair<std::int64_t, std::int64_t>{64, 64}, {64, 192}, {192, 64}, {256, 256}, {256, 1024}, {768, 768}}) {
      bench.products(T, I, O, products);
    }
  }
  for (const std::int64_t T : {512, 1024, 3072}) {
    for (const std::int64_t D : {32, 64, 128}) {
      for (const bool causal : {false, true}) bench.attention(T, cores, D, causal, forward, backward);
    }
  }
  const std::vector<double> p = fit(products), f = fit(forward), b = fit(backward);
  const double n = cores, matmul = 1 / p[1] / n, of_forward = 1 / f[1] / n, of_backward = 1 / b[1] / n;
  const double peak = std::max({matmul, of_forward, of_backward});
  return {.cores = cores,
          .peak_float32 = peak,
          .matmul_efficiency = matmul / peak,
          .attention_forward_efficiency = of_forward / peak,
          .attention_backward_efficiency = of_backward / peak,
          .pair_seconds_forward = f[2] * n,
          .pair_seconds_backward = b[2] * n,
          .product_bandwidth = p[2] > 0 ? 1 / p[2] / n : 0,
          .kernel_seconds = p[0]};
}

/// Fills in the cost of passes over memory.
void measure_passes(Hardware& hardware) {
  Bench bench(DType::float32, static_cast<int>(hardware.cores));
  std::vector<TimedCall> few, many;
  for (const std::int64_t T : {32, 64, 128, 256}) bench.passes(T, 64, few);
  const std::int64_t cached = std::max<std::int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 64 << 20);
  const std::int64_t bytes = std::min(cached / 2, available_memory() / 32);  // of one of seven tensors
  bench.passes(bytes / 4 / 768, 768, many);
  for (TimedCall& sample : many) sample.parts.erase(sample.parts.begin());  // the cost of a call is negligible here
  // Measured with tensors that no cache can hold: within a step, they have long been evicted.
  hardware.memory_bandwidth = 1 / fit(many)[0];
  // What remains for a few rows, which the caches hold, in addition to their bytes.
  hardware.kernel_seconds = std::max(hardware.kernel_seconds, fit(few)[0]);
}

}  // namespace

std::vector<double> fit(const std::vector<TimedCall>& samples) {
  ensure(!samples.empty(), "a fit needs samples");
  const std::int64_t rows = std::ssize(samples), parts = std::ssize(samples[0].parts);
  Eigen::MatrixXd shares(rows, parts);
  for (std::int64_t row = 0; row < rows; ++row) {
    shares.row(row) = Eigen::Map<const Eigen::RowVectorXd>(samples[row].parts.data(), parts) / samples[row].seconds;
  }
  // The parts' magnitudes differ by a dozen orders, so scale all columns to length one.
  const Eigen::RowVectorXd lengths = shares.colwise().norm();
  shares.array().rowwise() /= lengths.array();
  while (true) {
    const Eigen::VectorXd solution = shares.colPivHouseholderQr().solve(Eigen::VectorXd::Ones(rows));
    Eigen::Index worst = 0;
    if (!(solution.minCoeff(&worst) < 0)) {
      const Eigen::VectorXd seconds = solution.cwiseQuotient(lengths.transpose());
      return {seconds.begin(), seconds.end()};
    }
    shares.col(worst).setZero();  // a part with negative time: from now on, it has none
  }
}

Hardware measure_hardware() {
  const int cores = available_cores();
  Hardware hardware = measure_kernels(DType::float32, cores);
  hardware.name = fmt::format("{}, {} cores, measured", host_name(), cores);
  hardware.peak_float64 = measure_kernels(DType::float64, cores).peak_float32;
  hardware.peak_bfloat16 = measure_kernels(DType::bfloat16, cores).peak_float32;
  measure_passes(hardware);
  hardware.memory_bytes = static_cast<double>(usable_memory(available_memory()));  // less may be free at another time
  const std::vector<double> link = fit(messages());
  hardware.levels = {{.ranks = 65536, .bandwidth = 1 / link[1], .latency = link[0]}};
  return hardware;
}

}  // namespace ringtrain
