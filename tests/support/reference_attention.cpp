#include "tests/support/reference_attention.h"

#include <cmath>
#include <limits>

namespace ringtrain::reference {

namespace {

/// Where the elements of one head stand, and the softmax of one row of scores.
struct Row {
  std::vector<double> p;  // [Tk]; 0 where the key is not seen
  double lse = -std::numeric_limits<double>::infinity();
};

std::size_t at(const Attention& a, std::size_t T, std::int64_t heads, std::int64_t b, std::size_t t,
               std::int64_t head) {
  return ((static_cast<std::size_t>(b) * T + t) * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head)) *
         static_cast<std::size_t>(a.D);
}

double dot(const double* x, const double* y, std::int64_t n) {
  double sum = 0;
  for (std::int64_t d = 0; d < n; ++d) sum += x[d] * y[d];
  return sum;
}

Row softmax_row(const Attention& a, const std::vector<double>& q, const std::vector<double>& k, const Tokens& queries,
                const Tokens& keys, std::int64_t b, std::int64_t h, std::size_t i) {
  const std::size_t Tq = queries.positions.size(), Tk = keys.positions.size();
  const std::int64_t g = h / (a.H / a.G);
  Row row{std::vector<double>(Tk, 0.0)};
  double largest = -std::numeric_limits<double>::infinity();
  std::vector<double> scores(Tk, 0.0);
  for (std::size_t j = 0; j < Tk; ++j) {
    if (!sees(a, queries, keys, b, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j))) continue;
    scores[j] = a.scale * dot(&q[at(a, Tq, a.H, b, i, h)], &k[at(a, Tk, a.G, b, j, g)], a.D);
    largest = std::fmax(largest, scores[j]);
  }
  double sum = 0;
  for (std::size_t j = 0; j < Tk; ++j) {
    if (!sees(a, queries, keys, b, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j))) continue;
    row.p[j] = std::exp(scores[j] - largest);
    sum += row.p[j];
  }
  if (sum == 0) return row;
  for (double& p : row.p) p /= sum;
  row.lse = largest + std::log(sum);
  return row;
}

}  // namespace

bool sees(const Attention& a, const Tokens& queries, const Tokens& keys, std::int64_t b, std::int64_t i,
          std::int64_t j) {
  const auto document = [b](const Tokens& tokens, std::int64_t t) {
    if (tokens.documents.empty()) return 0;
    return static_cast<int>(
        tokens.documents[static_cast<std::size_t>(b) * tokens.positions.size() + static_cast<std::size_t>(t)]);
  };
  if (document(queries, i) != document(keys, j)) return false;
  const std::int64_t behind =
      queries.positions[static_cast<std::size_t>(i)] - keys.positions[static_cast<std::size_t>(j)];
  if (a.causal && behind < 0) return false;
  const std::int64_t distance = behind < 0 ? -behind : behind;
  return a.window == 0 || distance <= a.window - 1;
}

Forward forward(const Attention& a, const std::vector<double>& q, const std::vector<double>& k,
                const std::vector<double>& v, const Tokens& queries, const Tokens& keys) {
  const std::size_t Tq = queries.positions.size(), Tk = keys.positions.size();
  Forward result{std::vector<double>(q.size(), 0.0), {}};
  for (std::int64_t b = 0; b < a.B; ++b) {
    for (std::int64_t h = 0; h < a.H; ++h) {
      for (std::size_t i = 0; i < Tq; ++i) {
        const Row row = softmax_row(a, q, k, queries, keys, b, h, i);
        result.lse.push_back(row.lse);
        double* out = &result.out[at(a, Tq, a.H, b, i, h)];
        for (std::size_t j = 0; j < Tk; ++j) {
          if (row.p[j] == 0) continue;
          const double* value = &v[at(a, Tk, a.G, b, j, h / (a.H / a.G))];
          for (std::int64_t d = 0; d < a.D; ++d) out[d] += row.p[j] * value[d];
        }
      }
    }
  }
  return result;
}

Backward backward(const Attention& a, const std::vector<double>& q, const std::vector<double>& k,
                  const std::vector<double>& v, const std::vector<double>& dout, const Tokens& queries,
                  const Tokens& keys) {
  const std::size_t Tq = queries.positions.size(), Tk = keys.positions.size();
  Backward result{std::vector<double>(q.size(), 0.0), std::vector<double>(k.size(), 0.0),
                  std::vector<double>(v.size(), 0.0)};
  std::vector<double> dp(Tk);
  for (std::int64_t b = 0; b < a.B; ++b) {
    for (std::int64_t h = 0; h < a.H; ++h) {
      const std::int64_t g = h / (a.H / a.G);
      for (std::size_t i = 0; i < Tq; ++i) {
        const Row row = softmax_row(a, q, k, queries, keys, b, h, i);
        const std::size_t query = at(a, Tq, a.H, b, i, h);
        double expectation = 0;  // of dp under p
        for (std::size_t j = 0; j < Tk; ++j) {
          dp[j] = row.p[j] == 0 ? 0 : dot(&dout[query], &v[at(a, Tk, a.G, b, j, g)], a.D);
          expectation += row.p[j] * dp[j];
        }
        for (std::size_t j = 0; j < Tk; ++j) {
          if (row.p[j] == 0) continue;
          const std::size_t key = at(a, Tk, a.G, b, j, g);
          const double ds = row.p[j] * (dp[j] - expectation) * a.scale;
          for (std::int64_t d = 0; d < a.D; ++d) {
            const auto e = static_cast<std::size_t>(d);
            result.dv[key + e] += row.p[j] * dout[query + e];
            result.dk[key + e] += ds * q[query + e];
            result.dq[query + e] += ds * k[key + e];
          }
        }
      }
    }
  }
  return result;
}

}  // namespace ringtrain::reference
