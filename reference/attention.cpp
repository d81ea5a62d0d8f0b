#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ringtrain::reference {

namespace {

using Vector = std::vector<double>;

/// Returns head g of the keys or values of one sequence, [D, Tk]: element d of all keys is contiguous, so that the
/// inner loops below run over keys.
Vector transposed_head(const Attention& a, const Vector& x, std::int64_t Tk, std::int64_t b, std::int64_t g) {
  Vector head(a.D * Tk);
  for (std::int64_t j = 0; j < Tk; ++j) {
    for (std::int64_t d = 0; d < a.D; ++d) head[d * Tk + j] = x[((b * Tk + j) * a.G + g) * a.D + d];
  }
  return head;
}

/// One query's keys: the visible ones lie in [first, last), and seen says which of those are visible.
struct Keys {
  std::int64_t first = 0, last = 0;
  std::vector<bool> seen;  // [Tk]
};

Keys keys_of(const Attention& a, const Tokens& queries, const Tokens& keys, std::int64_t b, std::int64_t i) {
  const auto Tk = static_cast<std::int64_t>(keys.positions.size());
  Keys result{Tk, 0, std::vector<bool>(static_cast<std::size_t>(Tk))};
  for (std::int64_t j = 0; j < Tk; ++j) {
    if (!is_visible(a, queries, keys, b, i, j)) continue;
    result.seen[j] = true;
    result.first = std::min(result.first, j);
    result.last = j + 1;
  }
  return result;
}

/// products[j] = sum over d of x[d] * head[d, j], for the keys in [first, last).
void multiply(Vector& products, const double* x, const Vector& head, std::int64_t D, const Keys& keys) {
  const auto Tk = static_cast<std::int64_t>(products.size());
  std::fill(products.begin(), products.end(), 0.0);
  for (std::int64_t d = 0; d < D; ++d) {
    const double* const row = head.data() + d * Tk;
    for (std::int64_t j = keys.first; j < keys.last; ++j) products[j] += x[d] * row[j];
  }
}

/// Turns scores into the softmax over the visible keys and the sink (-inf: no sink); 0 elsewhere. Returns the
/// logsumexp, -inf if there is neither a key nor a sink.
double softmax(Vector& scores, const Keys& keys, double sink) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  double largest = sink, sum = 0;
  for (std::int64_t j = keys.first; j < keys.last; ++j) {
    if (keys.seen[j]) largest = std::max(largest, scores[j]);
  }
  for (std::int64_t j = keys.first; j < keys.last; ++j) {
    scores[j] = keys.seen[j] ? std::exp(scores[j] - largest) : 0.0;
    sum += scores[j];
  }
  if (sink != none) sum += std::exp(sink - largest);
  for (std::int64_t j = keys.first; j < keys.last; ++j) scores[j] /= sum;
  return largest == none ? none : largest + std::log(sum);
}

/// p = softmax(scale * q k) of one query of head h over all keys; slopes: of its scores, as functions of scale * q k.
/// Returns its logsumexp.
double weights_of(Vector& p, Vector& slopes, const Attention& a, std::int64_t h, const double* q,
                  const Vector& key_head, const Keys& keys) {
  multiply(p, q, key_head, a.D, keys);
  for (std::size_t j = 0; j < p.size(); ++j) {
    p[j] *= a.scale;
    slopes[j] = 1;
    if (a.softcap == 0) continue;
    const double bent = std::tanh(p[j] / a.softcap);
    p[j] = a.softcap * bent;
    slopes[j] = 1 - bent * bent;
  }
  return softmax(p, keys, a.sinks.empty() ? -std::numeric_limits<double>::infinity() : a.sinks[h]);
}

}  // namespace

bool is_visible(const Attention& a, const Tokens& queries, const Tokens& keys, std::int64_t b, std::int64_t i,
                std::int64_t j) {
  const auto document = [b](const Tokens& tokens, std::int64_t t) {
    if (tokens.documents.empty()) return 0;
    return static_cast<int>(
        tokens.documents[static_cast<std::size_t>(b) * tokens.positions.size() + static_cast<std::size_t>(t)]);
  };
  if (document(queries, i) != document(keys, j)) return false;
  const std::int64_t behind = queries.positions[i] - keys.positions[j];
  if (a.causal && behind < 0) return false;
  const std::int64_t distance = behind < 0 ? -behind : behind;
  return a.window == 0 || distance <= a.window - 1;
}

Forward forward(const Attention& a, const Vector& q, const Vector& k, const Vector& v, const Tokens& queries,
                const Tokens& keys) {
  const auto Tq = static_cast<std::int64_t>(queries.positions.size());
  const auto Tk = static_cast<std::int64_t>(keys.positions.size());
  Forward result{Vector(q.size(), 0.0), Vector(a.B * a.H * Tq)};
  Vector p(Tk), slopes(Tk);
  for (std::int64_t b = 0; b < a.B; ++b) {
    for (std::int64_t h = 0; h < a.H; ++h) {
      const std::int64_t g = h / (a.H / a.G);
      const Vector key_head = transposed_head(a, k, Tk, b, g);
      for (std::int64_t i = 0; i < Tq; ++i) {
        const std::int64_t row = ((b * Tq + i) * a.H + h) * a.D;
        const Keys seen = keys_of(a, queries, keys, b, i);
        result.lse[(b * a.H + h) * Tq + i] = weights_of(p, slopes, a, h, &q[row], key_head, seen);
        for (std::int64_t j = seen.first; j < seen.last; ++j) {
          const double* const value = &v[((b * Tk + j) * a.G + g) * a.D];
          for (std::int64_t d = 0; d < a.D; ++d) result.out[row + d] += p[j] * value[d];
        }
      }
    }
  }
  return result;
}

Backward backward(const Attention& a, const Vector& q, const Vector& k, const Vector& v, const Vector& out,
                  const Vector& dout, const Tokens& queries, const Tokens& keys) {
  const auto Tq = static_cast<std::int64_t>(queries.positions.size());
  const auto Tk = static_cast<std::int64_t>(keys.positions.size());
  Backward result{Vector(q.size(), 0.0), Vector(k.size(), 0.0), Vector(v.size(), 0.0), Vector(a.sinks.size(), 0.0)};
  Vector p(Tk), slopes(Tk), dp(Tk);
  for (std::int64_t b = 0; b < a.B; ++b) {
    for (std::int64_t h = 0; h < a.H; ++h) {
      const std::int64_t g = h / (a.H / a.G);
      const Vector key_head = transposed_head(a, k, Tk, b, g), value_head = transposed_head(a, v, Tk, b, g);
      for (std::int64_t i = 0; i < Tq; ++i) {
        const std::int64_t row = ((b * Tq + i) * a.H + h) * a.D;
        const Keys seen = keys_of(a, queries, keys, b, i);
        const double lse = weights_of(p, slopes, a, h, &q[row], key_head, seen);
        multiply(dp, &dout[row], value_head, a.D, seen);
        double delta = 0;  // the mean of dp under p; a sink's dp is 0
        for (std::int64_t d = 0; d < a.D; ++d) delta += dout[row + d] * out[row + d];
        if (!a.sinks.empty()) result.dsinks[h] -= std::exp(a.sinks[h] - lse) * delta;
        for (std::int64_t j = seen.first; j < seen.last; ++j) {
          if (!seen.seen[j]) continue;
          const double ds = a.scale * slopes[j] * p[j] * (dp[j] - delta);
          const std::int64_t key = ((b * Tk + j) * a.G + g) * a.D;
          for (std::int64_t d = 0; d < a.D; ++d) {
            result.dq[row + d] += ds * k[key + d];
            result.dk[key + d] += ds * q[row + d];
            result.dv[key + d] += p[j] * dout[row + d];
          }
        }
      }
    }
  }
  return result;
}

}  // namespace ringtrain::reference
