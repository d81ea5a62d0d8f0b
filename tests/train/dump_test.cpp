// train --dump-step and check --compare on whole runs: every mesh has the same tensors, a fault is located, and the run
// itself does not change, to the bit.
#include <fstream>

#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class DumpedStep : public TextTest {
 protected:
  DumpedStep() : TextTest({.weights = true}) {}
  /// Six sequences per step, one step.
  Config small(const std::vector<std::string>& settings) const {
    return tiny(data, joined({"training.global_batch_size=6", "training.steps=1"}, settings));
  }
  /// Flips the sign of the first `count` float64 numbers of a dumped tensor's file.
  static void turn_sign(const std::string& dump, int rank, const std::string& dataset, std::size_t count) {
    const std::string path = dump_part_path(dump, rank, 0);
    const DatasetList list = read_dataset_list(path, ExitCode::data);
    const Hdf5Dataset* const found = find_dataset(list.datasets, dataset);
    ASSERT_NE(found, nullptr) << dataset;
    std::vector<double> values(count);
    File::open(path, ExitCode::data).read_at(found->offset, values.data(), count * sizeof(double));
    for (double& value : values) value = -value;
    File::open_for_update(path, ExitCode::data).write_at(found->offset, values.data(), count * sizeof(double));
  }
};

TEST_F(DumpedStep, IsTheSameOnEveryMeshAndLayout) {
  const std::string one = run_dumped(small({}), "1x1", 1);
  const DumpReader reader(one);
  const auto expect_there = [&](std::initializer_list<std::string> names) {
    for (const std::string& name : names) EXPECT_NE(reader.find(name), nullptr) << name;
  };
  expect_there({"model.embed_tokens.weight", "input.tokens", "input.documents", "embedding", "layer.0.attention_norm"});
  expect_there({"layer.1.query", "layer.1.key", "layer.1.value", "layer.1.attention", "layer.1.logsumexp"});
  expect_there({"layer.1.gate", "layer.1.output", "final_norm", "logits", "nll", "grad.logits", "grad.layer.1.output"});
  expect_there({"grad.layer.0.activation", "grad.layer.0.query", "grad.layer.0.key", "grad.layer.0.value"});
  expect_there({"grad.embedding", "grad.model.layers.1.self_attn.q_proj.weight"});
  const auto location = [&](const char* name) { return reader.find(name) - reader.index().tensors.data(); };
  EXPECT_LT(location("layer.0.output"), location("layer.1.query")) << "in the order of the step";
  EXPECT_LT(location("layer.1.output"), location("grad.layer.1.output"));
  EXPECT_LT(location("grad.layer.1.query"), location("grad.layer.0.output"));

  const std::vector<std::vector<std::string>> meshes{
      {"mesh.data=2", "mesh.sequence=3", "mesh.layout=striped"},
      {"mesh.data=3", "mesh.sequence=2", "mesh.layout=zigzag", "training.micro_batch_size=2",
       "training.feedforward_chunk=0", "training.recompute=full"},
      {"mesh.sequence=3", "mesh.layout=contiguous", "training.loss_chunk=1000", "training.recompute=keep_attention",
       "training.feedforward_chunk=5"}};
  for (const auto& mesh : meshes) {
    SCOPED_TRACE(mesh.front());
    EXPECT_GE(expect_dumps_agree(run_dumped(small(mesh), mesh.front(), 1), one).tensors.size(), 90U);
  }
}

TEST_F(DumpedStep, OfGpt2AndALaterStepIsTheSameToo) {
  const std::vector<std::string> gpt2{"model.architecture=gpt2", "model.num_key_value_heads=4",
                                      "model.max_position_embeddings=37", "data.packing=concat", "training.steps=2"};
  const std::string one = run_dumped(small(gpt2), "one", 2);
  const DumpReader a(one), b(run_dumped(small(joined(gpt2, {"mesh.data=2", "mesh.sequence=3"})), "six", 2));
  EXPECT_EQ(a.find("input.documents"), nullptr);
  // Adam divides by the size of a gradient, so the rounding errors of one step are larger in the next.
  const Tolerance tolerance{.relative = 1e-9, .absolute = 1e-12};
  const DumpComparison comparison = compare_dumps(a, b, tolerance);
  for (const ComparedTensor& tensor : comparison.tensors) {
    // Zero except for rounding (tests/train/mesh_equality_test.cpp), which Adam turns into steps of any sign.
    if (tensor.name.ends_with("k_proj.bias") || tensor.name.ends_with("key_projection")) continue;
    if (tensor.name.find(".key") != std::string::npos || tensor.name.find("logsumexp") != std::string::npos) continue;
    EXPECT_EQ(tensor.values.differing, 0) << tensor.name << " " << tensor.values.relative(tensor.values.greatest);
  }
  EXPECT_TRUE(comparison.unlike.empty());
}

TEST_F(DumpedStep, ChangesNoBitOfTheRun) {
  for (const char* const recompute : {"none", "full"}) {
    SCOPED_TRACE(recompute);
    const std::string with = std::string("with-") + recompute, without = std::string("without-") + recompute;
    const Config config = small({"mesh.data=2", "mesh.sequence=2", "training.steps=3", "mesh.layout=striped",
                                 std::string("training.recompute=") + recompute});
    run_dumped(config, with, 2);
    run(config, without);
    expect_same_bits(with, without);
    EXPECT_EQ(numbers(with, "grad_norm"), numbers(without, "grad_norm"));
    EXPECT_EQ(losses(with).size(), 3u);
  }
}

TEST_F(DumpedStep, LocatesAFaultOfALayer) {
  // One micro-batch per rank, so that the hook runs once.
  const std::vector<std::string> settings{"training.micro_batch_size=3", "mesh.data=2", "mesh.sequence=2"};
  const std::string right = run_dumped(small({}), "right", 1);
  const std::string wrong =
      run_dumped(small(settings), "wrong", 1, [](RankState& state, std::int64_t) { negate_query_row(state, true); });
  const DumpReader a(right), b(wrong);
  const DumpComparison comparison = compare_dumps(a, b, default_tolerance(a.index(), b.index()));
  ASSERT_NE(comparison.first(), nullptr);
  EXPECT_EQ(comparison.first()->name, "layer.1.query_projection");
  EXPECT_EQ(comparison.first()->location, "sequence 0, position 0, column 5");
  EXPECT_EQ(comparison.first()->values.a, -comparison.first()->values.b);
  EXPECT_EQ(comparison.first()->values.differing, 6 * 37);
}

TEST_F(DumpedStep, ComparisonNamesTensorPlaceAndRank) {
  const std::string right = run_dumped(small({}), "right", 1);
  const std::string wrong = run_dumped(small({"mesh.data=2", "mesh.sequence=3", "mesh.layout=striped"}), "wrong", 1);
  // Rank 4 has positions 1, 4, ... of the second data rank's sequences, which are 3, 4, and 5.
  turn_sign(wrong, 4, "grad.layer.0.gate/2", 3);
  turn_sign(wrong, 2, "grad.layer.0.up/0", 1);
  const ChildResult found =
      run_child("check", {"--compare", right, wrong, "--tolerance", "1e-12", "--absolute", "0"}, folder);
  EXPECT_EQ(found.code, 5) << found.err;
  EXPECT_TRUE(holds_all(found.out, {"first difference: grad.layer.0.gate at sequence 5, position 1, column 0\n",
                                    "(rank 4)", "\n2 of ", "  grad.layer.0.up    1 of 5328 elements"}));
  EXPECT_EQ(run_child("check", {"--compare", right, wrong, "--tolerance", "3"}, folder).code, 0);
}

TEST_F(DumpedStep, FromTheCommandLine) {
  write_config(tiny(data, {"training.seq_len=16", "training.global_batch_size=2", "training.steps=2",
                           "training.dtype=float32", "data.packing=concat"}));
  int runs = 0;
  const auto train_with = [&](const std::vector<std::string>& more) {
    return run_child("train", joined({"--config", "run.yaml", "--output", at("run" + std::to_string(runs++))}, more),
                     folder);
  };
  const ChildResult first = train_with({"--dump-step", "2", "--dump", at("a")});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(holds(first.err, "tensors are in " + at("a")));
  const ChildResult again = train_with({"--dump-step", "2", "--dump", at("a"), "--set", "mesh.sequence=2"});
  ASSERT_EQ(again.code, 0) << again.err;  // an earlier dump is replaced
  ASSERT_EQ(train_with({"--dump-step", "2", "--dump", at("b")}).code, 0);

  const ChildResult compared = run_child("check", {"--compare", "a", "b"}, folder);
  EXPECT_EQ(compared.code, 0) << compared.out << compared.err;
  EXPECT_TRUE(holds(compared.out, "tensors agree within 1e-05"));

  EXPECT_EQ(train_with({"--dump-step", "2"}).code, 2);
  EXPECT_EQ(train_with({"--dump", at("c")}).code, 2);
  const ChildResult late = train_with({"--dump-step", "3", "--dump", at("c")});
  EXPECT_EQ(late.code, 2);
  EXPECT_TRUE(holds(late.err, "--dump-step 3: give a step after 0, up to 2"));
  EXPECT_FALSE(std::filesystem::exists(at("c")));
  std::filesystem::create_directory(at("mine"));
  std::ofstream(at("mine/thesis.txt")) << "mine";
  const ChildResult refused = train_with({"--dump-step", "1", "--dump", at("mine")});
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(holds(refused.err, "only a dump is replaced"));
  EXPECT_EQ(content_of(at("mine/thesis.txt")), "mine");
  EXPECT_EQ(run_child("check", {"--compare", at("a"), at("mine")}, folder).code, 3);
  EXPECT_EQ(run_child("check", {"--compare", at("a")}, folder).code, 2);
  EXPECT_EQ(run_child("check", {"--compare", at("a"), at("a"), "--output", "c.json"}, folder).code, 2);
}

}  // namespace
}  // namespace ringtrain::testing
