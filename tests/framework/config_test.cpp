// The meaning of a config's keys: defaults, every key, settings, differences.
#include "framework/config/config.h"
#include "framework/device.h"
#include "tests/framework/config_text.h"
#include "tests/support/paths.h"

#include <filesystem>

namespace ringtrain::testing {
namespace {

TEST(Config, TheLeastConfigHasTheDefaults) {
  const Config config = parse_config(base, "some/folder/small.yaml", {});
  EXPECT_EQ(config.name, "small");
  EXPECT_EQ(config.training.seq_len, 64);
  EXPECT_EQ(config.training.steps, 10);
  EXPECT_EQ(config.model.num_key_value_heads, 4);
  EXPECT_EQ(config.model.head_dim, 64);
  EXPECT_EQ(config.mesh.layout, Layout::zigzag);
  ASSERT_EQ(config.data.train.size(), 1u);
  EXPECT_EQ(config.data.train[0].path, "a.h5");
  EXPECT_EQ(config.data.train[0].weight, 1.0);
}

TEST(Config, TheRotaryKeysOfOtherTypesReachTheirMembers) {
  const RopeScalingConfig llama3 = parse_config(with("model",
                                                     "rope_scaling: {type: llama3, factor: 8, low_freq_factor: 0.5, "
                                                     "high_freq_factor: 3, original_max_position_embeddings: 64}"),
                                                "x.yaml", {})
                                       .model.rope_scaling;
  EXPECT_EQ(llama3.type, RopeType::llama3);
  EXPECT_EQ(llama3.low_freq_factor, 0.5);
  EXPECT_EQ(llama3.high_freq_factor, 3);
  const RopeScalingConfig longrope = parse_config(with("model",
                                                       "head_dim: 4\n  max_position_embeddings: 512\n"
                                                       "  rope_scaling: {type: longrope, short_factor: [1, 2], "
                                                       "long_factor: [1.5, 30], original_max_position_embeddings: 64}"),
                                                  "x.yaml", {})
                                         .model.rope_scaling;
  EXPECT_EQ(longrope.type, RopeType::longrope);
  EXPECT_EQ(longrope.short_factor, (std::vector<double>{1, 2}));
  EXPECT_EQ(longrope.long_factor, (std::vector<double>{1.5, 30}));
  EXPECT_EQ(longrope.factor, 8);  // from the two lengths
}

// (For most keys, the name and the member are the same text: KEY in config_schema.cpp.)
TEST(Config, EveryKindOfValueReachesItsMember) {
  const Config c = parse_config(R"(
model: {architecture: gpt2, max_position_embeddings: 65, layer_types: [full_attention, sliding_attention]}
lora: {rank: 3, alpha: 8.5, targets: [q_proj, "o_proj"]}
data: {train: [{path: a.h5, weight: 2}, b.h5], validation: v.h5, packing: concat}
training: {seq_len: 2K, steps: 9, seed: 18446744073709551615, dtype: float64, deterministic: false}
optimizer: {betas: [0.5, 0.75], eps: 1.0e-3}
evaluation: {context_lengths: [64, 128], target_tokens: 24, on_training_data: true}
)",
                                "x.yaml", {});
  EXPECT_EQ(c.model.architecture, Architecture::gpt2);
  EXPECT_EQ(c.model.max_position_embeddings, 65);
  EXPECT_EQ(c.model.layer_types, (std::vector{LayerType::full_attention, LayerType::sliding_attention}));
  EXPECT_EQ(c.model.lora.rank, 3);
  EXPECT_EQ(c.model.lora.alpha, 8.5);
  EXPECT_EQ(c.model.lora.targets, (std::vector<std::string>{"q_proj", "o_proj"}));
  ASSERT_EQ(c.data.train.size(), 2u);
  EXPECT_EQ(c.data.train[0].path, "a.h5");
  EXPECT_EQ(c.data.train[0].weight, 2.0);
  EXPECT_EQ(c.data.train[1].path, "b.h5");
  EXPECT_EQ(c.data.train[1].weight, 1.0);
  EXPECT_EQ(c.data.validation, "v.h5");
  EXPECT_EQ(c.data.packing, Packing::concat);
  EXPECT_EQ(c.training.seq_len, 2048);
  EXPECT_EQ(c.training.seed, 18446744073709551615u);
  EXPECT_EQ(c.training.dtype, DType::float64);
  EXPECT_FALSE(c.training.deterministic);
  EXPECT_EQ(c.optimizer.beta1, 0.5);
  EXPECT_EQ(c.optimizer.beta2, 0.75);
  EXPECT_EQ(c.optimizer.eps, 1e-3);
  EXPECT_EQ(c.evaluation.context_lengths, (std::vector<std::int64_t>{64, 128}));
  EXPECT_TRUE(c.evaluation.on_training_data);
}

TEST(Config, SettingsOverrideTheFileAndTheLastOneCounts) {
  const Config config =
      parse_config(base, "x.yaml",
                   {"mesh.sequence=3", "training.steps=50", "mesh.sequence=2", "data.train=/data/a: b=c.h5",
                    "optimizer.betas=[0.5, 0.6]", "model.rope_scaling={type: linear, factor: 4}",
                    "data.validation='q.h5'", "training.seed=+7"});
  EXPECT_EQ(config.mesh.sequence, 2);
  EXPECT_EQ(config.training.steps, 50);
  EXPECT_EQ(config.data.train[0].path, "/data/a: b=c.h5");
  EXPECT_EQ(config.data.validation, "q.h5");
  EXPECT_EQ(config.optimizer.beta2, 0.6);
  EXPECT_EQ(config.model.rope_scaling.type, RopeType::linear);
  EXPECT_EQ(config.model.rope_scaling.factor, 4.0);
  EXPECT_EQ(config.training.seed, 7u);
  const Config cleared =
      parse_config("training: {seq_len: 1, steps: 1}\ndata: {train: a, validation: b}", "x", {"data.validation="});
  EXPECT_EQ(cleared.data.validation, "");
}

TEST(Config, AFileMayLeaveRequiredKeysToSettings) {
  EXPECT_EQ(complaint("data: {train: a}", {"training.seq_len=8", "training.steps=1"}), "");
  EXPECT_EQ(complaint("model:\n", {"training={seq_len: 8, steps: 1}", "data.train=a"}), "");
}

TEST(Config, DifferencesNameTheKeyAndBothValues) {
  const Config before = parse_config(base, "before.yaml", {});
  EXPECT_TRUE(differences(before, parse_config(base, "after.yaml", {})).empty());
  const Config after =
      parse_config(base, "after.yaml",
                   {"training.seq_len=128", "mesh.layout=striped", "optimizer.betas=[0.9, 0.99]",
                    "data.train=[{path: a.h5, weight: 0.5}]", "model.rope_scaling={type: ntk, factor: 2}"});
  std::string text;
  for (const ConfigDifference& d : differences(before, after)) text += d.key + " " + d.before + " -> " + d.after + "\n";
  EXPECT_EQ(text,
            "model.rope_scaling.type none -> ntk\n"
            "model.rope_scaling.factor 1 -> 2\n"
            "data.train \"a.h5\" -> [{path: \"a.h5\", weight: 0.5}]\n"
            "mesh.layout zigzag -> striped\n"
            "training.seq_len 64 -> 128\n"
            "optimizer.betas [0.9, 0.95] -> [0.9, 0.99]\n");
}

TEST(Config, EveryConfigOfTheProjectIsValid) {
  int files = 0;
  ModelConfig of_a_folder;
  of_a_folder.max_position_embeddings = 8192;
  const ConfigLookup lookup{.model = [&](const std::string&) { return of_a_folder; },
                            .steps = [](const Config&, double) { return std::int64_t{10}; }};
  for (const auto& entry : std::filesystem::directory_iterator(source_folder() + "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    Config config;
    EXPECT_NO_THROW(config = read_config(entry.path().string(), {}, ConfigUse::know, {}, lookup)) << entry.path();
    if (config.training.device == Device::Kind::cpu || built_with_cuda) {
      EXPECT_NO_THROW(read_config(entry.path().string(), {}, ConfigUse::run, {}, lookup)) << entry.path();
    }
  }
  EXPECT_GE(files, 3);
}

TEST(Config, TinyRunsOnAnyMesh) {
  for (const int data : {1, 2, 3, 4, 6, 8}) {
    for (const int sequence : {1, 2, 3, 8}) {
      EXPECT_NO_THROW(read_config(source_folder() + "/configs/tiny.yaml",
                                  {"mesh.data=" + std::to_string(data), "mesh.sequence=" + std::to_string(sequence),
                                   "training.seq_len=" + std::to_string(17 * sequence)}));
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
