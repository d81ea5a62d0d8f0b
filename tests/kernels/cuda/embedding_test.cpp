// Table look-up on the GPU, and its gradient: exactly the bits of additions in token order, for tables of one to three
// digits of the sort, equal and distinct ids, and more tokens than one sort takes.
#include "kernels/embedding.h"

#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

class GpuEmbeddingTest : public GpuKernelTest {
 protected:
  void expect_token_order(DType dtype, const std::vector<std::int32_t>& ids, std::int64_t rows, std::int64_t C,
                          std::int64_t skip = 0) {
    const auto T = static_cast<std::int64_t>(ids.size());
    forget();
    const std::string what = fmt::format("{} tokens, {} rows of {} {}", T, rows, C, name_of(dtype));
    const Both tokens = integers(ids), dy = random({T, C}, dtype, 2, 1, skip);
    const Both dtable = random({rows, C}, DType::float32, 3, 1, skip);
    std::vector<float> expected = converted<float>(on_host(dtable.gpu));
    const std::vector<double> more = on_host(dy.gpu);
    for (std::size_t t = 0; t < ids.size(); ++t) {
      for (std::size_t c = 0; c < static_cast<std::size_t>(C); ++c) {
        expected[static_cast<std::size_t>(ids[t] * C) + c] +=
            static_cast<float>(more[t * static_cast<std::size_t>(C) + c]);
      }
    }
    on_gpu([&] { embedding_backward(gpu(), dtable.gpu, tokens.gpu, dy.gpu); });
    const std::vector<double> got = on_host(dtable.gpu);
    std::size_t at = 0;
    while (at < got.size() && got[at] == static_cast<double>(expected[at])) ++at;
    EXPECT_EQ(at, got.size()) << what << ": the first other element is " << got[at] << " and not " << expected[at];
  }
};

TEST_F(GpuEmbeddingTest, LooksUp) {
  for (DType dtype : storage_types) {
    for (std::int64_t T : {0, 1, 3, 100}) {
      for (std::int64_t C : {1, 17, 64, 520, 2056}) {
        forget();
        const std::string what = fmt::format("{} x {} of {}", T, C, name_of(dtype));
        const std::int64_t rows = 13, skip = T == 3 ? 1 : 0;
        const Both ids = integers(random_integers(T, 1, rows)), table = random({rows, C}, dtype, 2, 1, skip);
        const Both y = output({T, C}, dtype, skip), sum = random({T, C}, dtype, 3, 1, skip);
        on_both([&](Stream& stream, auto at) {
          embedding_forward(stream, at(y), at(ids), at(table), false);
          embedding_forward(stream, at(sum), at(ids), at(table), true);
        });
        expect_agrees(y, what);
        expect_agrees(sum, what);
      }
    }
  }
}

TEST_F(GpuEmbeddingTest, AddsUpInTokenOrder) {
  for (DType dtype : storage_types) {
    for (std::int64_t T : {0, 1, 31, 257}) {
      for (std::int64_t C : {1, 17, 64, 520}) {
        for (std::int64_t rows : {1, 13, 300}) {
          expect_token_order(dtype, random_integers(T, 1, static_cast<std::uint64_t>(rows)), rows, C, C == 64 ? 1 : 0);
        }
      }
    }
    // Several tiles of the sort, one to three digits.
    for (std::int64_t rows : {256, 257, 70000}) {
      expect_token_order(dtype, random_integers(5000, 4, static_cast<std::uint64_t>(rows)), rows, 8);
    }
    std::vector<std::int32_t> falling(2100);
    for (std::size_t i = 0; i < falling.size(); ++i) falling[i] = static_cast<std::int32_t>(falling.size() - 1 - i);
    expect_token_order(dtype, falling, 2100, 8);
    expect_token_order(dtype, std::vector<std::int32_t>(4100, 2), 3, 8);  // one long chain
  }
}

TEST_F(GpuEmbeddingTest, MoreTokensThanOneSortTakes) {
  if (emulated) GTEST_SKIP() << "too long without a GPU";
  expect_token_order(DType::bfloat16, random_integers(600000, 1, 50000), 50000, 24);
}

}  // namespace
}  // namespace ringtrain::testing
