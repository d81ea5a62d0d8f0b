#include "tests/support/reference_attention.h"

#include <Eigen/Core>
#include <cmath>
#include <limits>

namespace ringtrain::reference {

namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using Heads = Eigen::Map<Matrix, Eigen::Unaligned, Stride>;
using ConstHeads = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;

/// Returns head `head` of sequence b of a [B, T, heads, D] tensor: [T, D].
ConstHeads head_of(const std::vector<double>& x, const Attention& a, const Tokens& tokens, std::int64_t heads,
                   std::int64_t b, std::int64_t head) {
  const auto T = static_cast<Eigen::Index>(tokens.positions.size());
  return {x.data() + (b * T * heads + head) * a.D, T, a.D, Stride(heads * a.D)};
}

Heads head_of(std::vector<double>& x, const Attention& a, const Tokens& tokens, std::int64_t heads, std::int64_t b,
              std::int64_t head) {
  const auto T = static_cast<Eigen::Index>(tokens.positions.size());
  return {x.data() + (b * T * heads + head) * a.D, T, a.D, Stride(heads * a.D)};
}

/// The softmax over the seen keys, row by row.
struct Softmax {
  Matrix p;             // [Tq, Tk]; 0 where the key is not seen
  Eigen::VectorXd lse;  // [Tq]
};

Softmax softmax(const Attention& a, const ConstHeads& q, const ConstHeads& k, const Tokens& queries, const Tokens& keys,
                std::int64_t b) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  Matrix scores = a.scale * (q * k.transpose());
  Softmax result{Matrix::Zero(q.rows(), k.rows()), Eigen::VectorXd::Constant(q.rows(), none)};
  for (Eigen::Index i = 0; i < q.rows(); ++i) {
    for (Eigen::Index j = 0; j < k.rows(); ++j) {
      if (!is_visible(a, queries, keys, b, i, j)) scores(i, j) = none;
    }
    if (k.rows() == 0) continue;
    const double largest = scores.row(i).maxCoeff();
    if (largest == none) continue;
    for (Eigen::Index j = 0; j < k.rows(); ++j) result.p(i, j) = std::exp(scores(i, j) - largest);
    const double sum = result.p.row(i).sum();
    result.p.row(i) /= sum;
    result.lse(i) = largest + std::log(sum);
  }
  return result;
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

Forward forward(const Attention& a, const std::vector<double>& q, const std::vector<double>& k,
                const std::vector<double>& v, const Tokens& queries, const Tokens& keys) {
  Forward result{std::vector<double>(q.size(), 0.0), {}};
  for (std::int64_t b = 0; b < a.B; ++b) {
    for (std::int64_t h = 0; h < a.H; ++h) {
      const std::int64_t g = h / (a.H / a.G);
      const Softmax row =
          softmax(a, head_of(q, a, queries, a.H, b, h), head_of(k, a, keys, a.G, b, g), queries, keys, b);
      result.lse.insert(result.lse.end(), row.lse.begin(), row.lse.end());
      head_of(result.out, a, queries, a.H, b, h) = row.p * head_of(v, a, keys, a.G, b, g);
    }
  }
  return result;
}

Backward backward(const Attention& a, const std::vector<double>& q, const std::vector<double>& k,
                  const std::vector<double>& v, const std::vector<double>& dout, const Tokens& queries,
                  const Tokens& keys) {
  Backward result{std::vector<double>(q.size(), 0.0), std::vector<double>(k.size(), 0.0),
                  std::vector<double>(v.size(), 0.0)};
  for (std::int64_t b = 0; b < a.B; ++b) {
    for (std::int64_t h = 0; h < a.H; ++h) {
      const std::int64_t g = h / (a.H / a.G);
      const ConstHeads Q = head_of(q, a, queries, a.H, b, h), dO = head_of(dout, a, queries, a.H, b, h);
      const ConstHeads K = head_of(k, a, keys, a.G, b, g), V = head_of(v, a, keys, a.G, b, g);
      const Matrix P = softmax(a, Q, K, queries, keys, b).p;
      const Matrix dP = dO * V.transpose();
      const Eigen::VectorXd expectation = P.cwiseProduct(dP).rowwise().sum();  // of dP under P
      const Matrix dS = a.scale * P.cwiseProduct(dP.colwise() - expectation);
      head_of(result.dq, a, queries, a.H, b, h) = dS * K;
      head_of(result.dk, a, keys, a.G, b, g) += dS.transpose() * Q;
      head_of(result.dv, a, keys, a.G, b, g) += P.transpose() * dO;
    }
  }
  return result;
}

}  // namespace ringtrain::reference
