// `check` on a GPU: what it computes in float32 and in bfloat16 lies within bounds that rounding alone explains.
#include "tests/support/gpu.h"
#include "tests/train/check/check_fixture.h"

namespace ringtrain::testing {
namespace {

class GpuCheck : public CheckTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
    data = write_tokens("text.h5", {});
  }
  /// So short that the emulator is done in seconds.
  Config small(std::vector<std::string> settings) const {
    settings.insert(settings.begin(), {"training.seq_len=13", "training.global_batch_size=2", "mesh.sequence=2",
                                       "mesh.backend=threads", "training.device=cuda"});
    return tiny(data, settings);
  }
  std::string data;
};

TEST_F(GpuCheck, ARunIsRightInBothTypes) {
  for (const std::string dtype : {"float32", "bfloat16"}) {
    for (const std::string architecture : {"llama", "gpt2", "qwen3"}) {
      SCOPED_TRACE(dtype + " " + architecture);
      std::vector<std::string> settings{"training.dtype=" + dtype, "model.architecture=" + architecture};
      if (architecture == "gpt2") {
        settings.insert(settings.end(), {"model.num_key_value_heads=4", "model.max_position_embeddings=13"});
      }
      const CheckReport report = check(small(settings));
      EXPECT_EQ(wrong(report), "");
      EXPECT_GT(report.tensors.size(), 100U);
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
