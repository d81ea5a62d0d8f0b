// Softmax cross-entropy on the CPU, parallel over tokens. A row is read three times (maximum, sum of exponentials,
// gradient); exponentials are taken of differences to the maximum, so that no logit is too large.
#include "kernels/cross_entropy.h"

#include <cmath>
#include <limits>

#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

using cpu::Vector;

namespace {

template <class A, class S>
A maximum_of(const S* row, std::int64_t V) {
  constexpr std::int64_t W = cpu::lanes<A>;
  Vector<A> largest = cpu::broadcast<A>(-std::numeric_limits<A>::infinity());
  std::int64_t i = 0;
  for (; i + W <= V; i += W) largest = cpu::maximum(cpu::load(row + i), largest);
  A result = largest[0];
  for (int lane = 1; lane < W; ++lane) result = std::max(result, largest[lane]);
  for (; i < V; ++i) result = std::max(result, cpu::widened(row[i]));
  return result;
}

/// Returns the sum of exp(row - shift) in double, over blocks of eight vectors, which are summed in A: longer sums of
/// nearly equal exponentials would all be rounded in the same direction. keep: also overwrites the row with the
/// exponentials. NaN in the row gives NaN.
template <bool keep, class S, class A>
double exponentials(S* row, std::int64_t V, A shift) {
  constexpr std::int64_t W = cpu::lanes<A>, block = 8 * W;
  Vector<double> sums{};
  double sum_of_tail = 0;
  for (std::int64_t begin = 0; begin < V; begin += block) {
    const std::int64_t end = std::min(V, begin + block), whole = begin + (end - begin) / W * W;
    const auto exponential = [=](auto at) {
      const Vector<A> e = cpu::exp2<A>((at(row) - shift) * static_cast<A>(cpu::log2_e));
      if constexpr (keep) at.put(row, e);
      return e;
    };
    Vector<A> partial{};
    for (std::int64_t i = begin; i < whole; i += W) partial += exponential(cpu::WholeVector<A>{i});
    const auto* const lanes = reinterpret_cast<const A*>(&partial);
    for (std::int64_t lane = 0; lane < W; lane += cpu::lanes<double>) sums += cpu::DoublesAt{lane}(lanes);
    if (whole < end) {
      const Vector<A> tail = exponential(cpu::PartVector<A>{whole, end - whole});
      for (int lane = 0; lane < end - whole; ++lane) sum_of_tail += static_cast<double>(tail[lane]);
    }
  }
  return cpu::horizontal_sum<double>(sums) + sum_of_tail;
}

/// Overwrites a row of logits with the gradient: factor times softmax, minus 1 at the label, under a softcap.
template <class S, class A>
void write_gradient(S* row, std::int64_t V, std::int64_t label, A largest, double sum, double factor, double softcap) {
  const auto of_label = static_cast<double>(cpu::widened(row[label]));
  const auto scale = static_cast<A>(factor / sum);
  const double p = std::exp(of_label - static_cast<double>(largest)) / sum;
  const double bent = softcap > 0 ? of_label / softcap : 0;
  const auto inverse = softcap > 0 ? static_cast<A>(1 / softcap) : A{0};
  cpu::for_vectors<A>(0, V, [=](auto at) {
    const Vector<A> logit = at(row), tanh = logit * inverse;
    const Vector<A> slope = cpu::exp2<A>((logit - largest) * static_cast<A>(cpu::log2_e)) * scale;
    at.put(row, softcap > 0 ? slope * (1 - tanh * tanh) : slope);
  });
  row[label] = cpu::rounded_to<S>((p - 1) * factor * (1 - bent * bent));
}

/// The same for a row with the logits' exponentials, without a softcap.
template <class S, class A>
void scale_exponentials(S* row, std::int64_t V, std::int64_t label, double sum, double factor) {
  const auto scale = static_cast<A>(factor / sum);
  const double of_others = static_cast<double>(cpu::widened(row[label])) / sum - 1;
  cpu::for_vectors<A>(0, V, [=](auto at) { at.put(row, at(row) * scale); });
  row[label] = cpu::rounded_to<S>(of_others * factor);
}

/// Returns a row's loss; slopes: also overwrites it with its gradient.
template <class S, class A>
double loss_of(S* row, std::int64_t V, std::int64_t label, bool slopes, double factor, double softcap) {
  const A largest = maximum_of<A>(row, V);
  const double anchor = static_cast<double>(largest) - static_cast<double>(cpu::widened(row[label]));
  // A softcap needs the logits for their slopes, and exponentials that are kept in bfloat16 would be rounded twice.
  const bool keep = slopes && softcap == 0 && std::is_same_v<S, A>;
  const double sum = keep ? exponentials<true>(row, V, largest) : exponentials<false>(row, V, largest);
  if (keep) {
    scale_exponentials<S, A>(row, V, label, sum, factor);
  } else if (slopes) {
    write_gradient(row, V, label, largest, sum, factor, softcap);
  }
  return std::log(sum) + anchor;
}

}  // namespace

void cap_logits(Stream& stream, const TensorView& x, double softcap) {
  ensure(softcap > 0, "a softcap of logits is positive");
  if (stream.on_cuda()) return cuda::cap_logits(stream, x, softcap);
  dispatch_dtype(x.dtype, [&]<class S, class A>() {
    S* const data = x.as<S>();
    const auto cap = static_cast<A>(softcap);
    cpu::map<A>(stream.pool(), x.numel(), [=](auto at) { at.put(data, cap * cpu::tanh<A>(at(data) / cap)); });
  });
}

void cross_entropy(Stream& stream, const TensorView& logits, const TensorView& nll, const ConstTensorView& labels,
                   const ConstTensorView& weights, double denominator, bool gradient, double softcap) {
  ensure(logits.shape.rank() == 2, "cross_entropy logits are [n, V]");
  ensure(softcap >= 0, "a softcap of logits is not negative");
  const std::int64_t n = logits.dim(0), V = logits.dim(1);
  check_tensor(nll, {n}, DType::float64, "cross_entropy nll is float64 [n]");
  check_tensor(labels, {n}, DType::int32, "cross_entropy labels are int32 [n]");
  check_tensor(weights, {n}, accumulator(logits.dtype), "cross_entropy weights are [n] of the logits' accumulator");
  if (stream.on_cuda())
    return cuda::cross_entropy(stream, logits, nll, labels, weights, denominator, gradient, softcap);
  check_ids(labels, V, "cross_entropy labels are -1 or a column", /*lowest=*/-1);
  dispatch_dtype(logits.dtype, [&]<class S, class A>() {
    S* const data = logits.as<S>();
    double* const nll_data = nll.as<double>();
    const auto* const label_data = labels.as<std::int32_t>();
    const A* const weight_data = weights.as<A>();
    cpu::for_rows(stream.pool(), n, 4 * V, [=](std::int64_t t) {
      S* const row = data + t * V;  // [V]
      const std::int64_t label = label_data[t];
      const bool counts = label >= 0, slopes = gradient && counts && weight_data[t] != 0;
      const double factor = slopes ? static_cast<double>(weight_data[t]) / denominator : 0;
      nll_data[t] = counts ? loss_of<S, A>(row, V, label, slopes, factor, softcap) : 0;
      if (gradient && !slopes) std::fill_n(row, V, S{});
    });
  });
}

void weighted_sum(Stream& stream, const TensorView& result, const ConstTensorView& values,
                  const ConstTensorView& weights, const ConstTensorView& labels, bool accumulate) {
  const std::int64_t n = values.numel();
  check_tensor(result, {1}, DType::float64, "weighted_sum has one float64 result");
  check_tensor(values, {n}, DType::float64, "weighted_sum values are float64 [n]");
  check_tensor(weights, {n}, weights.dtype, "weighted_sum weights are [n]");
  check_tensor(labels, {n}, DType::int32, "weighted_sum labels are int32 [n]");
  if (stream.on_cuda()) return cuda::weighted_sum(stream, result, values, weights, labels, accumulate);
  dispatch_float(weights.dtype, [&]<class R>() {
    const double* const value = values.as<double>();
    const R* const weight = weights.as<R>();
    const auto* const label = labels.as<std::int32_t>();
    const double sum = cpu::sum_over_tree(stream.pool(), n, [=](std::int64_t begin, std::int64_t end) {
      double partial = 0;
      for (std::int64_t t = begin; t < end; ++t) {
        if (label[t] >= 0) partial += value[t] * static_cast<double>(weight[t]);
      }
      return partial;
    });
    double& to = *result.as<double>();
    to = accumulate ? to + sum : sum;
  });
}

}  // namespace ringtrain
