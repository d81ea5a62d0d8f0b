// Compares linear layers' products with three plain loops in double, at sizes around and across every tile; the flags
// that add; empty and single dimensions; and bits that depend neither on threads nor, in forward, on the number of
// tokens.
#include "kernels/matmul.h"

#include <string>

#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

using Doubles = std::vector<double>;

struct Sizes {
  std::int64_t T, I, O;
};
const Sizes all_sizes[] = {{1, 1, 1},        {3, 17, 1},     {1, 257, 3},   {17, 3, 257},   {257, 17, 33},
                           {300, 257, 1000}, {1000, 64, 65}, {513, 40, 1},  {2, 1000, 530}, {0, 5, 7},
                           {5, 0, 7},        {5, 7, 0},      {4100, 9, 31}, {96, 1030, 96}};

std::size_t at(std::int64_t row, std::int64_t column, std::int64_t columns) {
  return static_cast<std::size_t>(row * columns + column);
}

/// c[M, N] + sum over k of a(m, k) b(k, n).
template <class A, class B>
Doubles product(Doubles c, std::int64_t M, std::int64_t N, std::int64_t K, A&& a, B&& b) {
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t k = 0; k < K; ++k) c[at(m, n, N)] += a(m, k) * b(k, n);
    }
  }
  return c;
}

template <class T>
class MatmulTest : public ::testing::Test {};
TYPED_TEST_SUITE(MatmulTest, RealTypes);

TYPED_TEST(MatmulTest, AgreesWithPlainLoops) {
  using R = TypeParam;
  CpuStream stream;
  for (const auto& [T, I, O] : all_sizes) {
    SCOPED_TRACE("T " + std::to_string(T) + " I " + std::to_string(I) + " O " + std::to_string(O));
    const auto x = random_vector<R>(T * I, 1), w = random_vector<R>(O * I, 2), dy = random_vector<R>(T * O, 3);
    const auto bias = random_vector<R>(O, 4), dx0 = random_vector<R>(T * I, 5), dw0 = random_vector<R>(O * I, 6);
    const auto garbage = random_vector<R>(T * O, 7, 1e6);
    const auto xa = [&, I = I](auto t, auto i) { return static_cast<double>(x[at(t, i, I)]); };
    const auto wa = [&, I = I](auto o, auto i) { return static_cast<double>(w[at(o, i, I)]); };
    const auto dya = [&, O = O](auto t, auto o) { return static_cast<double>(dy[at(t, o, O)]); };

    Doubles rows(static_cast<std::size_t>(T * O)), zero_rows(rows.size()), zero_x(x.size());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<double>(bias[i % static_cast<std::size_t>(O)]);
    const auto wt = [&](auto i, auto o) { return wa(o, i); };

    for (bool biased : {false, true}) {
      const ConstTensorView b = biased ? view_of(bias) : TensorView{};
      auto y = garbage, added = garbage;
      linear_forward(stream, view_of(y, {T, O}), view_of(x, {T, I}), view_of(w, {O, I}), b);
      EXPECT_LE(relative_difference(y, product(biased ? rows : zero_rows, T, O, I, xa, wt)), tolerance<R>);
      linear_forward(stream, view_of(added, {T, O}), view_of(x, {T, I}), view_of(w, {O, I}), b, view_of(dy, {T, O}));
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += dy[i];
      EXPECT_EQ(added, y);  // to the bit
    }
    {
      auto y = dy;  // a product is added to the existing values
      linear_forward(stream, view_of(y, {T, O}), view_of(x, {T, I}), view_of(w, {O, I}), {}, view_of(y, {T, O}));
      EXPECT_LE(relative_difference(y, product(converted<double>(dy), T, O, I, xa, wt)), tolerance<R>);
    }
    for (bool accumulate : {false, true}) {
      auto dx = dx0;
      linear_backward_input(stream, view_of(dx, {T, I}), view_of(dy, {T, O}), view_of(w, {O, I}), accumulate);
      const Doubles start = accumulate ? converted<double>(dx0) : zero_x;
      EXPECT_LE(relative_difference(dx, product(start, T, I, O, dya, wa)), tolerance<R>);
    }
    for (const auto& [biased, accumulate] : {std::pair{false, true}, {true, true}, {true, false}}) {
      auto dw = dw0, dbias = bias;
      linear_backward_weight(stream, view_of(dw, {O, I}), biased ? view_of(dbias) : TensorView{}, view_of(dy, {T, O}),
                             view_of(x, {T, I}), accumulate);
      const auto dyt = [&](auto o, auto t) { return dya(t, o); };
      const Doubles dw_start = accumulate ? converted<double>(dw0) : Doubles(dw0.size());
      EXPECT_LE(relative_difference(dw, product(dw_start, O, I, T, dyt, xa)), tolerance<R>);
      const auto one = [](auto, auto) { return 1.0; };
      const Doubles dbias_start = accumulate ? converted<double>(bias) : Doubles(bias.size());
      EXPECT_LE(relative_difference(dbias, product(dbias_start, O, 1, biased ? T : 0, dyt, one)), tolerance<R>);
    }
  }
}

TYPED_TEST(MatmulTest, BitsDoNotDependOnThreads) {
  using R = TypeParam;
  for (const auto& [T, I, O] : {Sizes{1000, 257, 300}, Sizes{2100, 33, 65}}) {
    const auto x = random_vector<R>(T * I, 1), w = random_vector<R>(O * I, 2), dy = random_vector<R>(T * O, 3);
    expect_same_bits_for_any_workers([&, T = T, I = I, O = O](Stream& stream) {
      std::vector<R> all(T * O + T * I + O * I + O);
      R *y = all.data(), *dx = y + T * O, *dw = dx + T * I, *dbias = dw + O * I;
      linear_forward(stream, host_view(y, {T, O}), view_of(x, {T, I}), view_of(w, {O, I}), {});
      linear_backward_input(stream, host_view(dx, {T, I}), view_of(dy, {T, O}), view_of(w, {O, I}), false);
      linear_backward_weight(stream, host_view(dw, {O, I}), host_view(dbias, {O}), view_of(dy, {T, O}),
                             view_of(x, {T, I}), false);
      return all;
    });
  }
}

TYPED_TEST(MatmulTest, BitsOfARowDoNotDependOnTheOtherRows) {
  using R = TypeParam;
  CpuStream stream;
  const std::int64_t T = 700, I = 300, O = 500;
  const auto x = random_vector<R>(T * I, 1), w = random_vector<R>(O * I, 2), dy = random_vector<R>(T * O, 3);
  std::vector<R> y(dy.size()), dx(x.size()), dw(w.size(), R{7});
  linear_forward(stream, view_of(y, {T, O}), view_of(x, {T, I}), view_of(w, {O, I}), {});
  linear_backward_input(stream, view_of(dx, {T, I}), view_of(dy, {T, O}), view_of(w, {O, I}), false);
  linear_backward_weight(stream, view_of(dw, {O, I}), {}, view_of(dy, {T, O}), view_of(x, {T, I}), false);
  std::vector<R> y_parts(y.size()), dx_parts(dx.size()), dw_parts(dw.size());
  const auto rows = [](auto& of, std::int64_t columns, std::int64_t begin, std::int64_t end) {
    return view_of(of, {static_cast<std::int64_t>(of.size()) / columns, columns}).rows(begin, end);
  };
  for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, 4}, std::pair{4, 130}, std::pair{130, 700}}) {
    linear_forward(stream, rows(y_parts, O, begin, end), rows(x, I, begin, end), view_of(w, {O, I}), {});
    linear_backward_input(stream, rows(dx_parts, I, begin, end), rows(dy, O, begin, end), view_of(w, {O, I}), false);
  }
  for (const auto& [begin, end] : {std::pair{0, 512}, std::pair{512, 700}}) {  // tokens in multiples of 256
    linear_backward_weight(stream, view_of(dw_parts, {O, I}), {}, rows(dy, O, begin, end), rows(x, I, begin, end),
                           true);
  }
  EXPECT_EQ(y_parts, y);
  EXPECT_EQ(dx_parts, dx);
  EXPECT_EQ(dw_parts, dw);
}

}  // namespace
}  // namespace ringtrain::testing
