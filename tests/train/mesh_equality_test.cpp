// Trains the whole model on every factorization dp x sp of 1, 2, 3, 4, 6, and 8 ranks, and compares with one rank: the
// same losses and the same weights, to rounding. A wrong denominator, a label lost at a boundary, a gradient counted
// twice, or a wrong owner of a slice fails this test.
#include <algorithm>
#include <cmath>

#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class MeshEquality : public TextTest {
 protected:
  MeshEquality() : TextTest({.weights = true}) {}
  void SetUp() override {
    TextTest::SetUp();
    run(tiny(data), "reference");
  }

  /// Trains on every dp x sp of this many ranks and compares with one rank. Alternates layouts and micro-batches.
  void expect_equal_to_one_rank(int ranks) {
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
      run(tiny(data, joined(mesh_of(data_ranks, sequence),
                            {"mesh.layout=" + layout, fmt::format("training.micro_batch_size={}", micro)})),
          name);
      expect_same_numbers(name, "reference");
      expect_close(numbers(name, "grad_norm"), reference_norms, 1e-9);
    }
  }
};

TEST_F(MeshEquality, EveryFactorisationEqualsOneRank) {
  for (const int ranks : {2, 3, 4, 6, 8}) expect_equal_to_one_rank(ranks);
}

TEST_F(MeshEquality, OneRankTwiceHasTheSameBits) {
  run(tiny(data, {"mesh.sequence=2", "mesh.data=2"}), "first");
  run(tiny(data, {"mesh.sequence=2", "mesh.data=2", "mesh.threads_per_rank=3"}), "second");  // any number of threads
  expect_same_bits("first", "second");
}

TEST_F(MeshEquality, Float32LossesAgreeClosely) {
  run(tiny(data, {"training.dtype=float32"}), "one");
  for (const auto& [data_ranks, sequence] : {std::pair{2, 2}, {1, 8}, {8, 1}, {2, 3}}) {
    const std::string name = fmt::format("{}x{}", data_ranks, sequence);
    SCOPED_TRACE(name);
    run(tiny(data, joined({"training.dtype=float32"}, mesh_of(data_ranks, sequence))), name);
    expect_close(losses(name), losses("one"), 1e-4);
  }
  expect_close(losses("one"), losses("reference"), 1e-4);  // and remain close to those of double
}

TEST_F(MeshEquality, Gpt2OnOneStreamOfDocuments) {
  const std::vector<std::string> gpt2{"model.architecture=gpt2", "model.num_key_value_heads=4",
                                      "model.max_position_embeddings=37", "data.packing=concat"};
  run(tiny(data, gpt2), "one");
  run(tiny(data, joined(gpt2, {"mesh.data=2", "mesh.sequence=3", "training.recompute=full"})), "six");
  expect_close(losses("six"), losses("one"), 1e-9);
  // A key's bias shifts all scores of a query equally, so its gradient is zero, and Adam moves it only because of
  // rounding.
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
    run(tiny(data, joined(model, {"mesh.data=2", "mesh.sequence=3", "training.recompute=none"})),
        architecture + "_six");
    expect_same_numbers(architecture + "_six", architecture);
  }
}

}  // namespace
}  // namespace ringtrain::testing
