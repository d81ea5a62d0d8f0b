// Compares decode attention on the GPU with the CPU's in double: groups of heads, heads of odd sizes, key counts around
// and across the pieces, softcaps, unaligned caches, and combined states.
#include "kernels/decode_attention.h"

#include <cmath>

#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

class GpuDecodeAttentionTest : public GpuKernelTest {
 protected:
  /// One query's state.
  struct State {
    Both o, m, l;
  };
  State state_of(const AttentionShape& shape) {
    return {output({1, 1, shape.H, shape.D}, DType::float32), output({1, shape.H, 1}, DType::float32),
            output({1, shape.H, 1}, DType::float32)};
  }
  /// The state of `count` keys, combined with that of all the others; both finished.
  void expect_agreement(const AttentionShape& shape, DType dtype, std::int64_t T, std::int64_t cut, std::int64_t skip) {
    forget();
    const std::string what = fmt::format("{}: H {} G {} D {}, {} keys, cut at {}, {} elements on", name_of(dtype),
                                         shape.H, shape.G, shape.D, T, cut, skip);
    const std::int64_t H = shape.H, D = shape.D;
    const Both q = random({H, D}, dtype, 1, 3), k = random({T, shape.G, D}, dtype, 2, 1, skip);
    const Both v = random({T, shape.G, D}, dtype, 3, 1, skip);
    const State first = state_of(shape), second = state_of(shape);
    const Both workspace = output({std::max<std::int64_t>(1, decode_attention_workspace(shape, T))}, DType::float32);
    const Both out = output({1, 1, H, D}, dtype), lse = output({1, H, 1}, DType::float32);
    on_both([&](Stream& stream, auto at) {
      const AttentionState one{at(first.o), at(first.m), at(first.l)}, two{at(second.o), at(second.m), at(second.l)};
      decode_attention(stream, shape, at(q), at(k).rows(0, cut), at(v).rows(0, cut), one, at(workspace));
      decode_attention(stream, shape, at(q), at(k).rows(cut, T), at(v).rows(cut, T), two, at(workspace));
      combine_attention(stream, one, two);
      attention_finalize(stream, one, at(out), at(lse));
    });
    expect_agrees(out, what);
    if (T > 0) return expect_agrees(lse, what);
    for (const double x : on_host(lse.gpu)) EXPECT_EQ(x, -std::numeric_limits<double>::infinity());
  }
};

TEST_F(GpuDecodeAttentionTest, AgreesForAnyShape) {
  const std::int64_t most = emulated ? 300 : 5000;
  for (const DType dtype : storage_types) {
    for (const auto& [H, G, D] : {std::tuple{1, 1, 1}, {4, 2, 20}, {9, 3, 64}, {8, 1, 72}, {3, 3, 128}, {16, 2, 256}}) {
      AttentionShape shape{
          .B = 1, .H = H, .G = G, .D = D, .scale = 0.7 / std::sqrt(static_cast<double>(D)), .mask = {}};
      for (const std::int64_t T : {std::int64_t{1}, std::int64_t{127}, std::int64_t{129}, most}) {
        shape.softcap = T == 129 ? 1.5 : 0;
        expect_agreement(shape, dtype, T, T / 3, 0);
      }
      expect_agreement(shape, dtype, 130, 130, 3);
    }
  }
}

TEST_F(GpuDecodeAttentionTest, WithoutKeysIsTheStateOfNoKey) {
  const AttentionShape shape{.B = 1, .H = 4, .G = 2, .D = 10, .scale = 1, .mask = {}};
  expect_agreement(shape, DType::float32, 0, 0, 0);
}

TEST_F(GpuDecodeAttentionTest, LargeScoresDoNotOverflow) {
  AttentionShape shape{.B = 1, .H = 2, .G = 1, .D = 64, .scale = 100, .mask = {}};
  expect_agreement(shape, DType::float32, 200, 150, 0);
}

}  // namespace
}  // namespace ringtrain::testing
