// Compares RMSNorm and LayerNorm and their gradients with the reference's formulas in double: the flag that adds, rows
// of tiny and huge size, and bits that do not depend on threads.
#include "kernels/norm.h"

#include <cmath>

#include "reference/operations.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

using Doubles = std::vector<double>;

constexpr double eps = 1e-5;

template <class R>
struct Norm {
  std::int64_t T, C;
  bool layer;
  double offset = 0;  // of the weights
  std::vector<R> x, w, b, dy;
  std::vector<R> y, mean, rstd, dx, dw, db;

  Norm(std::int64_t tokens, std::int64_t width, bool is_layer, double size = 1, double center = 0)
      : T(tokens), C(width), layer(is_layer) {
    x = random_vector<R>(T * C, 1, size);
    for (R& value : x) value += static_cast<R>(center);
    w = random_vector<R>(C, 2);
    b = random_vector<R>(layer ? C : 0, 3);
    dy = random_vector<R>(T * C, 4);
    y = dx = random_vector<R>(T * C, 5);
    mean = rstd = std::vector<R>(static_cast<std::size_t>(T));
    dw = random_vector<R>(C, 6);
    db = random_vector<R>(layer ? C : 0, 7);
  }
  void forward(Stream& stream) {
    const Shape shape{T, C};
    norm_forward(stream, view_of(y, shape), of_layer(mean), view_of(rstd), view_of(x, shape), view_of(w), of_layer(b),
                 eps, offset);
  }
  void backward(Stream& stream, bool accumulate) {
    const Shape shape{T, C};
    norm_backward(stream, view_of(dx, shape), view_of(dw), of_layer(db), view_of(dy, shape), view_of(x, shape),
                  view_of(w), of_layer(mean), view_of(rstd), accumulate, offset);
  }
  TensorView of_layer(std::vector<R>& values) const { return layer ? view_of(values) : TensorView{}; }
  Doubles reference_y() const {
    const Doubles bias = converted<double>(b);
    return reference::norm(converted<double>(x), converted<double>(w), layer ? &bias : nullptr, eps);
  }
};

template <class R>
class NormTest : public ::testing::Test {};
TYPED_TEST_SUITE(NormTest, RealTypes);

TYPED_TEST(NormTest, ForwardAgreesWithTheFormula) {
  CpuStream stream;
  for (bool layer : {false, true}) {
    for (std::int64_t T : {0, 1, 3, 257}) {
      for (std::int64_t C : {1, 3, 17, 257, 1000}) {
        Norm<TypeParam> norm(T, C, layer);
        norm.forward(stream);
        EXPECT_LE(relative_difference(norm.y, norm.reference_y()), tolerance<TypeParam>) << T << " x " << C;
      }
    }
    for (double size : {1e-12, 1e12}) {
      Norm<TypeParam> norm(3, 33, layer, size);
      norm.forward(stream);
      EXPECT_LE(relative_difference(norm.y, norm.reference_y()), tolerance<TypeParam>) << size;
    }
  }
  Norm<TypeParam> offset(5, 100, true, 1, 1000);  // the stddev of a row far from 0
  offset.forward(stream);
  EXPECT_LE(relative_difference(offset.y, offset.reference_y()), 100 * tolerance<TypeParam>);
}

TYPED_TEST(NormTest, AnOffsetIsAWeightThatManyGreater) {
  using R = TypeParam;
  CpuStream stream;
  Norm<R> counted(31, 65, /*is_layer=*/false);
  // So that 1 + w is exact: backward adds them in double.
  for (R& w : counted.w) w = std::round(w * 1024) / 1024;
  Norm<R> plain = counted;
  for (R& w : plain.w) w += 1;
  counted.offset = 1;
  counted.forward(stream);
  plain.forward(stream);
  EXPECT_EQ(counted.y, plain.y);
  counted.backward(stream, /*accumulate=*/false);
  plain.backward(stream, /*accumulate=*/false);
  EXPECT_EQ(counted.dx, plain.dx);
  EXPECT_EQ(counted.dw, plain.dw);
}

TYPED_TEST(NormTest, GradientsAgreeWithTheFormula) {
  CpuStream stream;
  for (bool layer : {false, true}) {
    for (bool accumulate : {false, true}) {
      for (const auto& [T, C] : {std::pair<std::int64_t, std::int64_t>{4, 5}, {4, 17}, {4, 70}, {300, 257}}) {
        Norm<TypeParam> norm(T, C, layer);
        norm.forward(stream);
        Doubles dx = converted<double>(norm.dx), dw = converted<double>(norm.dw), db = converted<double>(norm.db);
        if (!accumulate) dx.assign(dx.size(), 0.0);
        const Doubles dy = converted<double>(norm.dy);
        reference::norm_backward(dx, dw, layer ? &db : nullptr, dy, dy, converted<double>(norm.x),
                                 converted<double>(norm.w), eps);
        norm.backward(stream, accumulate);
        EXPECT_LE(relative_difference(norm.dx, dx), tolerance<TypeParam>) << T << " x " << C;
        EXPECT_LE(relative_difference(norm.dw, dw), tolerance<TypeParam>) << T << " x " << C;
        EXPECT_LE(relative_difference(norm.db, db), tolerance<TypeParam>) << T << " x " << C;
      }
    }
  }
}

TYPED_TEST(NormTest, BitsDoNotDependOnThreads) {
  for (bool layer : {false, true}) {
    expect_same_bits_for_any_workers([&](Stream& stream) {
      Norm<TypeParam> norm(1000, 257, layer);
      norm.forward(stream);
      norm.backward(stream, true);
      std::vector<TypeParam> all = norm.y;
      for (const auto* part : {&norm.rstd, &norm.mean, &norm.dx, &norm.dw, &norm.db}) {
        all.insert(all.end(), part->begin(), part->end());
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace ringtrain::testing
