#include "tests/support/rounded_attention.h"

#include <cmath>

namespace ringtrain::reference {

double rounded(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // |fraction| in [0.5, 1): 8 bits of it are kept
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

Rounded rounded_attention(const Attention& a, const std::vector<double>& q, const std::vector<double>& k,
                          const std::vector<double>& v, const std::vector<double>& dout, const Tokens& queries,
                          const Tokens& keys) {
  const auto Tq = static_cast<std::int64_t>(queries.positions.size());
  const auto Tk = static_cast<std::int64_t>(keys.positions.size());
  const auto element = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  Rounded result{std::vector<double>(q.size(), 0.0), std::vector<double>(q.size(), 0.0),
                 std::vector<double>(k.size(), 0.0), std::vector<double>(v.size(), 0.0)};
  std::vector<double> p(element(Tk)), slope(element(Tk), 1.0);
  for (std::int64_t b = 0; b < a.B; ++b) {
    for (std::int64_t h = 0; h < a.H; ++h) {
      const auto kv = [&](std::int64_t j) { return element(((b * Tk + j) * a.G + h / (a.H / a.G)) * a.D); };
      for (std::int64_t i = 0; i < Tq; ++i) {
        const std::size_t query = element(((b * Tq + i) * a.H + h) * a.D);
        double largest = -INFINITY, sum = 0;
        for (std::int64_t j = 0; j < Tk; ++j) {
          double score = -INFINITY;
          if (is_visible(a, queries, keys, b, i, j)) {
            score = 0;
            for (std::size_t d = 0; d < element(a.D); ++d) score += q[query + d] * k[kv(j) + d];
            score *= a.scale;
            if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
          }
          p[element(j)] = score;
          if (a.softcap > 0) slope[element(j)] = 1 - score / a.softcap * (score / a.softcap);
          largest = std::fmax(largest, score);
        }
        if (std::isinf(largest)) continue;
        for (double& x : p) sum += x = std::exp(x - largest);
        for (double& x : p) x /= sum;
        for (std::int64_t j = 0; j < Tk; ++j) {
          const double weight = rounded(p[element(j)]);
          for (std::size_t d = 0; weight != 0 && d < element(a.D); ++d) {
            result.out[query + d] += weight * v[kv(j) + d];
            result.dv[kv(j) + d] += weight * dout[query + d];
          }
        }
        double delta = 0;
        for (std::size_t d = 0; d < element(a.D); ++d) {
          result.out[query + d] = rounded(result.out[query + d]);
          delta += result.out[query + d] * dout[query + d];
        }
        for (std::int64_t j = 0; j < Tk; ++j) {
          if (p[element(j)] == 0) continue;
          double dp = 0;
          for (std::size_t d = 0; d < element(a.D); ++d) dp += dout[query + d] * v[kv(j) + d];
          const double ds = rounded(p[element(j)] * slope[element(j)] * (dp - delta)) * a.scale;
          for (std::size_t d = 0; d < element(a.D); ++d) {
            result.dq[query + d] += ds * k[kv(j) + d];
            result.dk[kv(j) + d] += ds * q[query + d];
          }
        }
      }
    }
  }
  return result;
}

}  // namespace ringtrain::reference
