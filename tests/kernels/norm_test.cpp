// RMSNorm and LayerNorm against their formulas in double, their gradients against central differences, the flag that
// adds, rows of tiny and huge size, and bits that do not depend on threads.
#include "kernels/norm.h"

#include <cmath>
#include <string>

#include "reference/operations.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain {
namespace {

using namespace ringtrain::testing;
using Doubles = std::vector<double>;

constexpr double eps = 1e-5;

template <class R>
struct Norm {
  std::int64_t T, C;
  bool layer;
  std::vector<R> x, w, b, dy;
  std::vector<R> y, mean, rstd, dx, dw, db;

  Norm(std::int64_t tokens, std::int64_t width, bool is_layer, double size = 1, double offset = 0)
      : T(tokens), C(width), layer(is_layer) {
    x = random_vector<R>(T * C, 1, size);
    for (R& value : x) value += static_cast<R>(offset);
    w = random_vector<R>(C, 2), b = random_vector<R>(layer ? C : 0, 3), dy = random_vector<R>(T * C, 4);
    y = dx = random_vector<R>(T * C, 5);
    mean = rstd = std::vector<R>(static_cast<std::size_t>(T));
    dw = random_vector<R>(C, 6), db = random_vector<R>(layer ? C : 0, 7);
  }
  void forward(Stream& stream) {
    const Shape shape{T, C};
    if (layer) {
      layernorm_forward(stream, view_of(y, shape), view_of(mean), view_of(rstd), view_of(x, shape), view_of(w),
                        view_of(b), eps);
    } else {
      rmsnorm_forward(stream, view_of(y, shape), view_of(rstd), view_of(x, shape), view_of(w), eps);
    }
  }
  void backward(Stream& stream, bool accumulate) {
    const Shape shape{T, C};
    if (layer) {
      layernorm_backward(stream, view_of(dx, shape), view_of(dw), view_of(db), view_of(dy, shape), view_of(x, shape),
                         view_of(w), view_of(mean), view_of(rstd), accumulate);
    } else {
      rmsnorm_backward(stream, view_of(dx, shape), view_of(dw), view_of(dy, shape), view_of(x, shape), view_of(w),
                       view_of(rstd), accumulate);
    }
  }
  Doubles reference_y() const {
    const Doubles bias = converted<double>(b);
    return reference::norm(converted<double>(x), converted<double>(w), layer ? &bias : nullptr, eps);
  }
};

template <class R>
Doubles difference(const std::vector<R>& after, const std::vector<R>& before) {
  Doubles d(after.size());
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = static_cast<double>(after[i]) - static_cast<double>(before[i]);
  return d;
}

template <class R>
class NormTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(NormTest, Types);

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
  const Shape shape{31, 65};
  rmsnorm_forward(stream, view_of(counted.y, shape), view_of(counted.rstd), view_of(counted.x, shape),
                  view_of(counted.w), eps, /*offset=*/1);
  plain.forward(stream);
  EXPECT_EQ(counted.y, plain.y);
  rmsnorm_backward(stream, view_of(counted.dx, shape), view_of(counted.dw), view_of(counted.dy, shape),
                   view_of(counted.x, shape), view_of(counted.w), view_of(counted.rstd), /*accumulate=*/false,
                   /*offset=*/1);
  plain.backward(stream, /*accumulate=*/false);
  EXPECT_EQ(counted.dx, plain.dx);
  EXPECT_EQ(counted.dw, plain.dw);
}

TEST(NormGradientTest, GradientsAgreeWithDifferences) {
  CpuStream stream;
  for (bool layer : {false, true}) {
    for (bool accumulate : {false, true}) {
      for (std::int64_t C : {5, 17, 70}) {
        Norm<double> norm(4, C, layer);
        norm.forward(stream);
        const Norm<double> before = norm;
        norm.backward(stream, accumulate);
        const auto loss = [&] { return dot(norm.reference_y(), norm.dy); };
        const Doubles dx = accumulate ? difference(norm.dx, before.dx) : norm.dx;
        EXPECT_LE(relative_difference(dx, numeric_gradient(norm.x, loss)), 1e-8);
        EXPECT_LE(relative_difference(difference(norm.dw, before.dw), numeric_gradient(norm.w, loss)), 1e-8);
        if (layer) {
          EXPECT_LE(relative_difference(difference(norm.db, before.db), numeric_gradient(norm.b, loss)), 1e-8);
        }
      }
    }
  }
}

TEST(NormGradientTest, FloatGradientsAgreeWithDouble) {
  CpuStream stream;
  for (bool layer : {false, true}) {
    Norm<float> narrow(300, 257, layer);
    Norm<double> wide(300, 257, layer);
    wide.x = converted<double>(narrow.x), wide.w = converted<double>(narrow.w), wide.b = converted<double>(narrow.b);
    wide.dy = converted<double>(narrow.dy), wide.dw = converted<double>(narrow.dw);
    wide.db = converted<double>(narrow.db);
    narrow.forward(stream), narrow.backward(stream, false);
    wide.forward(stream), wide.backward(stream, false);
    EXPECT_LE(relative_difference(narrow.dx, wide.dx), tolerance<float>);
    EXPECT_LE(relative_difference(narrow.dw, wide.dw), tolerance<float>);
    EXPECT_LE(relative_difference(narrow.db, wide.db), tolerance<float>);
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
}  // namespace ringtrain
