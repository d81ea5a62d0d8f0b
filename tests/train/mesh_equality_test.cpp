// The whole model, trained on every factorisation dp x sp of 1, 2, 3, 4, 6 and 8 ranks, against one rank: the same
// losses and the same weights, to rounding. This is what a wrong denominator, a label lost at a boundary, a gradient
// counted twice or a wrong owner of a slice cannot pass.
#include <algorithm>
#include <cmath>

#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class MeshEquality : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    TextPlan text;
    text.weights = true;
    data = write_tokens("text.h5", text);
    run(tiny(data), "reference");
  }

  /// Trains on every dp x sp of so many ranks and compares with one rank. Layouts and micro-batches take turns.
  void expect_equal_to_one_rank(int ranks) {
    const auto reference = state(checkpoint("reference", 30));
    const auto reference_losses = losses("reference");
    ASSERT_EQ(reference_losses.size(), 30u);
    const auto reference_norms = numbers("reference", "grad_norm");
    EXPECT_GT(*std::max_element(reference_norms.begin(), reference_norms.end()), 0.5) << "no step was clipped";
    EXPECT_LT(reference_losses.back(), 0.95 * reference_losses.front()) << "nothing was learnt";
    std::size_t turn = static_cast<std::size_t>(ranks);
    for (int sequence = 1; sequence <= ranks; ++sequence) {
      if (ranks % sequence != 0) continue;
      const int data_ranks = ranks / sequence;
      const std::string layout = name_of(all_layouts[turn++ % all_layouts.size()]);
      const int micro = data_ranks <= 6 && turn % 2 == 0 ? 2 : 1;
      const std::string name = fmt::format("{}x{}", data_ranks, sequence);
      SCOPED_TRACE(name + " " + layout);
      run(tiny(data, {fmt::format("mesh.data={}", data_ranks), fmt::format("mesh.sequence={}", sequence),
                      "mesh.layout=" + layout, fmt::format("training.micro_batch_size={}", micro)}),
          name);
      const auto found = losses(name);
      ASSERT_EQ(found.size(), reference_losses.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], reference_losses[i], 1e-9 * reference_losses[i]);
      const auto norms = numbers(name, "grad_norm");
      for (std::size_t i = 0; i < norms.size(); ++i)
        EXPECT_NEAR(norms[i], reference_norms[i], 1e-9 * reference_norms[i]);
      expect_same_state(state(checkpoint(name, 30)), reference, "weights/", 1e-9);
    }
  }
  std::string data;
};

TEST_F(MeshEquality, TwoRanks) {
  expect_equal_to_one_rank(2);
}
TEST_F(MeshEquality, ThreeRanks) {
  expect_equal_to_one_rank(3);
}
TEST_F(MeshEquality, FourRanks) {
  expect_equal_to_one_rank(4);
}
TEST_F(MeshEquality, SixRanks) {
  expect_equal_to_one_rank(6);
}
TEST_F(MeshEquality, EightRanks) {
  expect_equal_to_one_rank(8);
}

TEST_F(MeshEquality, OneRankTwiceHasTheSameBits) {
  run(tiny(data, {"mesh.sequence=2", "mesh.data=2"}), "first");
  run(tiny(data, {"mesh.sequence=2", "mesh.data=2", "mesh.threads_per_rank=3"}), "second");  // any number of threads
  EXPECT_EQ(losses("first"), losses("second"));
  EXPECT_EQ(state(checkpoint("first", 30)), state(checkpoint("second", 30)));
}

TEST_F(MeshEquality, Float32LossesAgreeClosely) {
  run(tiny(data, {"training.dtype=float32"}), "one");
  const auto reference = losses("one");
  for (const auto& [data_ranks, sequence] : {std::pair{2, 2}, {1, 8}, {8, 1}, {2, 3}}) {
    const std::string name = fmt::format("{}x{}", data_ranks, sequence);
    run(tiny(data, {"training.dtype=float32", fmt::format("mesh.data={}", data_ranks),
                    fmt::format("mesh.sequence={}", sequence)}),
        name);
    const auto found = losses(name);
    ASSERT_EQ(found.size(), reference.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], reference[i], 1e-4 * reference[i]) << name;
  }
  // and stay close to those of double
  const auto exact = losses("reference");
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(reference[i], exact[i], 1e-4 * exact[i]);
}

TEST_F(MeshEquality, Gpt2OnOneStreamOfDocuments) {
  const std::vector<std::string> gpt2{"model.architecture=gpt2", "model.num_key_value_heads=4",
                                      "model.max_position_embeddings=37", "data.packing=concat"};
  run(tiny(data, gpt2), "one");
  const auto reference = losses("one");
  auto settings = gpt2;
  settings.insert(settings.end(), {"mesh.data=2", "mesh.sequence=3", "training.recompute=full"});
  run(tiny(data, settings), "six");
  const auto found = losses("six");
  ASSERT_EQ(found.size(), reference.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], reference[i], 1e-9 * reference[i]);
  // A key's bias shifts all scores of a query alike, so its gradient is zero, and Adam moves it by rounding alone.
  auto six = state(checkpoint("six", 30)), one = state(checkpoint("one", 30));
  for (const std::string layer : {"0", "1"}) {
    const std::string name = "weights/model.layers." + layer + ".self_attn.k_proj.bias";
    for (const double value : six.at(name)) EXPECT_LT(std::abs(value), 1e-9);
    one.erase(name);
    six.erase(name);
  }
  expect_same_state(six, one, "weights/", 1e-9);
}

TEST_F(MeshEquality, Qwen) {
  for (const std::string architecture : {"qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    const std::vector<std::string> model{"model.architecture=" + architecture, "model.sliding_window=12",
                                         "training.steps=12"};
    run(tiny(data, model), architecture);
    auto settings = model;
    settings.insert(settings.end(), {"mesh.data=2", "mesh.sequence=3", "training.recompute=none"});
    run(tiny(data, settings), architecture + "_six");
    const auto reference = losses(architecture), found = losses(architecture + "_six");
    ASSERT_EQ(found.size(), reference.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], reference[i], 1e-9 * reference[i]);
    expect_same_state(state(checkpoint(architecture + "_six", 12)), state(checkpoint(architecture, 12)), "weights/",
                      1e-9);
  }
}

}  // namespace
}  // namespace ringtrain::testing
