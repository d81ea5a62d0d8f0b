// The model's operations on rows of tokens, each with its gradient, in double and one token after another. A matrix [T,
// C] is a vector, row after row. Backward functions add to the gradients they receive: gradients are sums.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ringtrain::reference {

using Vector = std::vector<double>;

/// How a run takes its sums: products of matrices may be taken in blocks; attention adds token after token.
enum class Summing { in_blocks, one_by_one };

/// Called at each point where a run rounds, so that a reference can round as well (train/check/rounding.h): with the
/// results of sums of `terms` products, and, with terms 0, with every tensor that a run stores. For sums over tokens,
/// it is called before they are taken, with what they add.
using Rounds = std::function<void(Vector& x, std::int64_t terms, Summing summing)>;

/// Returns w[rows, columns] as [columns, rows].
Vector transposed(const Vector& w, std::int64_t rows, std::int64_t columns);
/// Returns y[T, O] = x[T, I] w[I, O].
Vector linear(const Vector& x, const Vector& w, std::int64_t O);
/// dx[T, I] += dy[T, O] w[O, I].
void linear_backward_input(Vector& dx, const Vector& dy, const Vector& w, std::int64_t I, std::int64_t O);
/// dw[O, I] += dy[T, O]^T x[T, I]; db[O] (may be null) += the sum of dy's rows.
void linear_backward_weight(Vector& dw, Vector* db, const Vector& dy, const Vector& x, std::int64_t I, std::int64_t O);

/// Returns y = (x - mean) / sqrt(var + eps) * w + b of each row of w.size() elements (Ba et al., "Layer Normalization",
/// 2016, eq. 4); b null: without mean and bias (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, eq.
/// 4).
Vector norm(const Vector& x, const Vector& w, const Vector* b, double eps);
/// dx += the gradient with respect to x. dw and db (null if there is no bias) add the sums of dy_of_weights: dy, or its
/// replacement in sums over tokens.
void norm_backward(Vector& dx, Vector& dw, Vector* db, const Vector& dy, const Vector& dy_of_weights, const Vector& x,
                   const Vector& w, double eps);

/// x * sigmoid(x), and its derivative (Shazeer, "GLU Variants Improve Transformer", 2020).
double silu(double x);
double silu_derivative(double x);
/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016), and its derivative.
double gelu(double x);
double gelu_derivative(double x);

/// x = c tanh(x / c) ("Gemma 2", 2024, section 2), and its derivative as a function of the result.
void softcap(Vector& x, double c);
double softcap_derivative(double capped, double c);

/// Returns -log softmax(logits)[label], and turns logits into softmax(logits) - onehot(label), its gradient. rounds is
/// called with the sums of groups of exponentials, as a run takes them: groups of eight, or larger ones if that would
/// make more than 512 groups.
double cross_entropy(Vector& logits, std::int32_t label, const Rounds& rounds = {});

}  // namespace ringtrain::reference
