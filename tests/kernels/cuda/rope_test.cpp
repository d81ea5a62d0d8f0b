// Compares rotary embedding on the GPU with the CPU's in double: angles of large positions, heads of any even size,
// both directions, and a float32 gradient that becomes bfloat16.
#include "kernels/rope.h"

#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

class GpuRopeTest : public GpuKernelTest {};

TEST_F(GpuRopeTest, Table) {
  RopeScalingConfig yarn;
  yarn.type = RopeType::yarn;
  yarn.factor = 8;
  yarn.original_max_position_embeddings = 8192;
  for (std::int64_t D : {2, 64, 300}) {
    for (std::int64_t T : {0, 1, 70}) {
      forget();
      std::vector<std::int32_t> position = random_integers(T, 1, std::uint64_t{1} << 31);
      for (std::size_t t = 0; t < position.size() / 2; ++t) position[t] = static_cast<std::int32_t>(t);
      const RopeFrequencies frequencies = rope_frequencies(D, 500000, yarn);
      const Both positions = integers(position), table = output({T, D}, DType::float32);
      on_both([&](Stream& stream, auto at) { rope_table(stream, at(table), at(positions), frequencies); });
      expect_agrees(table, fmt::format("{} x {}", T, D), 1e-7);
    }
  }
}

TEST_F(GpuRopeTest, Rotates) {
  for (DType dtype : storage_types) {
    for (std::int64_t D : {2, 6, 64, 128, 256, 600}) {
      for (std::int64_t H : {1, 3, 16, 33}) {
        for (std::int64_t T : {0, 1, 5}) {
          forget();
          const std::string what = fmt::format("{} x {} x {} of {}", T, H, D, name_of(dtype));
          const std::int64_t skip = H == 3 ? 1 : 0;
          const Both x = random({T, H, D}, dtype, 1, 1, skip), gradient = random({T, H, D}, DType::float32, 2, 1, skip);
          const Both table = random({T, D}, DType::float32, 3), dx = output({T, H, D}, dtype, skip);
          on_both([&](Stream& stream, auto at) {
            rope_forward(stream, at(x), at(table));
            rope_backward(stream, at(dx), at(gradient), at(table));
          });
          expect_agrees(x, what);
          expect_agrees(dx, what);
          if (dtype != DType::float32) continue;
          on_both([&](Stream& stream, auto at) { rope_backward(stream, at(gradient), at(gradient), at(table)); });
          EXPECT_EQ(on_host(gradient.gpu), on_host(dx.gpu)) << what;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
