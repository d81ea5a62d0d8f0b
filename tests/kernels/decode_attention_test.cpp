// Compares attention of one query over a cache with the plain formula in double, at key counts around and across the
// pieces; keys split over two states; and bits that do not depend on threads.
#include "kernels/decode_attention.h"

#include <cmath>
#include <limits>
#include <string>

#include "reference/attention.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

AttentionShape shape_of(std::int64_t H, std::int64_t G, std::int64_t D) {
  return {.B = 1, .H = H, .G = G, .D = D, .scale = 0.7 / std::sqrt(static_cast<double>(D)), .mask = {}};
}

/// One query's state, and the workspace.
template <class R>
struct Call {
  Call(const AttentionShape& attention, std::int64_t T)
      : shape(attention),
        o(static_cast<std::size_t>(shape.H * shape.D), R{77}),
        m(static_cast<std::size_t>(shape.H), R{77}),
        l(static_cast<std::size_t>(shape.H), R{77}),
        workspace(static_cast<std::size_t>(decode_attention_workspace(shape, T)), R{77}) {}

  AttentionState state() {
    return {view_of(o, {1, 1, shape.H, shape.D}), view_of(m, {1, shape.H, 1}), view_of(l, {1, shape.H, 1})};
  }
  void attend(Stream& stream, const std::vector<R>& q, const R* k, const R* v, std::int64_t T) {
    const Shape keys{T, shape.G, shape.D};
    decode_attention(stream, shape, view_of(q, {shape.H, shape.D}), host_view(k, keys), host_view(v, keys), state(),
                     view_of(workspace));
  }
  std::vector<R> finished(Stream& stream) {
    attention_finalize(stream, state(), state().o, state().m);
    std::vector<R> result = o;
    result.insert(result.end(), m.begin(), m.end());
    return result;
  }

  AttentionShape shape;
  std::vector<R> o, m, l, workspace;
};

template <class T>
class DecodeAttention : public ::testing::Test {};
TYPED_TEST_SUITE(DecodeAttention, RealTypes);

TYPED_TEST(DecodeAttention, AgreesWithThePlainFormula) {
  using R = TypeParam;
  CpuStream stream;
  for (const auto& [H, G, D] : {std::tuple{1, 1, 1}, {4, 2, 20}, {9, 3, 64}, {8, 1, 72}, {3, 3, 128}}) {
    AttentionShape shape = shape_of(H, G, D);
    for (const std::int64_t T : {1, 2, 127, 128, 129, 700}) {
      shape.softcap = T % 2 == 0 ? 1.5 : 0;
      SCOPED_TRACE("H " + std::to_string(H) + " D " + std::to_string(D) + " T " + std::to_string(T));
      const auto q = random_vector<R>(H * D, 1, 3), k = random_vector<R>(T * G * D, 2),
                 v = random_vector<R>(T * G * D, 3);
      reference::Tokens queries{{T}, {}}, keys;
      for (std::int64_t t = 0; t < T; ++t) keys.positions.push_back(t);
      const auto expected =
          reference::forward({.H = H, .G = G, .D = D, .scale = shape.scale, .softcap = shape.softcap},
                             converted<double>(q), converted<double>(k), converted<double>(v), queries, keys);
      auto result = expected.out;
      result.insert(result.end(), expected.lse.begin(), expected.lse.end());
      Call<R> call(shape, T);
      call.attend(stream, q, k.data(), v.data(), T);
      EXPECT_LT(relative_difference(call.finished(stream), result), tolerance<R>);
      // The same keys in two states, one of which may have none.
      for (const std::int64_t cut : {std::int64_t{0}, T / 3, T}) {
        Call<R> first(shape, T), second(shape, T);
        const std::int64_t offset = cut * G * D;
        first.attend(stream, q, k.data(), v.data(), cut);
        second.attend(stream, q, k.data() + offset, v.data() + offset, T - cut);
        combine_attention(stream, first.state(), second.state());
        EXPECT_LT(relative_difference(first.finished(stream), result), tolerance<R>) << cut;
      }
    }
  }
}

TYPED_TEST(DecodeAttention, WithoutKeysIsTheStateOfNoKey) {
  using R = TypeParam;
  CpuStream stream;
  const auto q = random_vector<R>(40, 1), none = random_vector<R>(1, 1);
  Call<R> call(shape_of(4, 2, 10), 0);
  call.attend(stream, q, none.data(), none.data(), 0);
  combine_attention(stream, call.state(), call.state());
  const auto result = call.finished(stream);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(result[i], R{0});
  EXPECT_EQ(result[40], -std::numeric_limits<R>::infinity());
}

TYPED_TEST(DecodeAttention, LargeScoresDoNotOverflow) {
  using R = TypeParam;
  CpuStream stream;
  const auto q = random_vector<R>(64, 1, 300), k = random_vector<R>(300 * 64, 2, 300),
             v = random_vector<R>(300 * 64, 3);
  Call<R> call(shape_of(1, 1, 64), 300);
  call.attend(stream, q, k.data(), v.data(), 300);
  for (const R x : call.finished(stream)) EXPECT_TRUE(std::isfinite(x));
}

TYPED_TEST(DecodeAttention, BitsDoNotDependOnWorkers) {
  using R = TypeParam;
  const auto q = random_vector<R>(9 * 64, 1), k = random_vector<R>(1000 * 192, 2), v = random_vector<R>(1000 * 192, 3);
  expect_same_bits_for_any_workers([&](Stream& stream) {
    Call<R> call(shape_of(9, 3, 64), 1000);
    call.attend(stream, q, k.data(), v.data(), 1000);
    return call.finished(stream);
  });
}

}  // namespace
}  // namespace ringtrain::testing
