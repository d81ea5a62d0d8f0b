// Ring attention on your own memory: four ranks share a sequence, and each compares its part with a naive sum.
#include <ringtrain/ring.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

using namespace ringtrain;
constexpr std::int64_t S = 96, H = 4, G = 2, D = 8;  // tokens, query heads, key/value heads, head size
constexpr AttentionMask mask{.causal = true, .window = 40};

/// Returns some number that depends only on the position. Tensors: q, k, v, and the gradient of the output.
double value(int tensor, std::int64_t position, std::int64_t channel) {
  return std::sin(static_cast<double>(11 * tensor + 7 * position + 3 * channel * channel));
}

/// Returns x with one row of this many channels for each position.
std::vector<double> rows_of(int tensor, const std::vector<std::int64_t>& positions, std::int64_t channels) {
  std::vector<double> x;
  for (std::int64_t position : positions)
    for (std::int64_t channel = 0; channel < channels; ++channel) x.push_back(value(tensor, position, channel));
  return x;
}

/// Returns element d of a head's output at a position, computed from the formula.
double naive(std::int64_t query, std::int64_t h, std::int64_t d) {
  double weights = 0, sum = 0;
  for (std::int64_t key = std::max<std::int64_t>(0, query - mask.window + 1); key <= query; ++key) {
    double score = 0;
    for (std::int64_t i = 0; i < D; ++i) score += value(0, query, h * D + i) * value(1, key, h / (H / G) * D + i);
    const double weight = std::exp(score / std::sqrt(double{D}));
    weights += weight;
    sum += weight * value(2, key, h / (H / G) * D + d);
  }
  return sum / weights;
}

void body(Communicator& world) {
  const std::vector<std::int64_t> positions = shard_positions(Layout::zigzag, S, world.size(), world.rank());
  const auto T = static_cast<std::int64_t>(positions.size());
  const std::vector<double> q = rows_of(0, positions, H * D), k = rows_of(1, positions, G * D),
                            v = rows_of(2, positions, G * D), dout = rows_of(3, positions, H * D);
  std::vector<double> out(q.size()), lse(positions.size() * H), dq(q.size()), dk(k.size()), dv(v.size());
  const auto queries = [&](auto& x) { return host_view(x.data(), {1, T, H, D}); };
  const auto keys = [&](auto& x) { return host_view(x.data(), {1, T, G, D}); };
  const TensorView rows = host_view(lse.data(), {1, H, T});

  AttentionOverRing attention(world, {.B = 1, .T = T, .H = H, .G = G, .D = D, .dtype = DType::float64});
  attention.set_tokens(positions, /*documents=*/{}, mask);
  attention.forward(queries(q), keys(k), keys(v), queries(out), rows);
  attention.backward(queries(dout), queries(q), keys(k), keys(v), queries(out), rows, queries(dq), keys(dk), keys(dv));

  double sums[5] = {};  // v * dv and dout * out (must be equal), k * dk and q * dq (must be equal), all errors
  for (std::size_t i = 0; i < q.size(); ++i) {
    const auto t = static_cast<std::int64_t>(i) / (H * D), channel = static_cast<std::int64_t>(i) % (H * D);
    sums[4] += std::abs(out[i] - naive(positions[static_cast<std::size_t>(t)], channel / D, channel % D));
    sums[1] += dout[i] * out[i];
    sums[3] += q[i] * dq[i];
  }
  for (std::size_t i = 0; i < k.size(); ++i) {
    sums[0] += v[i] * dv[i];
    sums[2] += k[i] * dk[i];
  }
  all_reduce_sum(world, sums, {"sums"});
  const double error = std::max({std::abs(sums[0] - sums[1]), std::abs(sums[2] - sums[3]), sums[4]});
  if (!(error < 1e-10)) fail(ExitCode::numeric, "rank {}: ring attention is wrong by {}", world.rank(), error);
  std::printf("rank %d of %d: as the naive sum\n", world.rank(), world.size());
}

int main() try {
  Launcher launcher;  // ranks are threads; under mpirun: Launcher launcher = Launcher::from_environment();
  launcher.launch({.ranks = 4}, body);
  launcher.finish(0);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.code());
}
