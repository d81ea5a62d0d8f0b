// Every class of mistake in a config, with its exact line of text.
#include "framework/config/config.h"
#include "framework/device.h"
#include "tests/framework/config_text.h"

#include <filesystem>
#include <fstream>

namespace ringtrain::testing {
namespace {

/// Lines of one section, and what is wrong with the key of the first.
struct KeyMistake {
  std::string section, lines, says;
};

void expect_told(const std::vector<KeyMistake>& mistakes) {
  for (const auto& [section, lines, says] : mistakes) {
    const int line = section == "training" ? 4 : section == "data" ? 6 : 7;
    EXPECT_EQ(complaint(with(section, lines)),
              fmt::format("x.yaml:{}: {}.{}: {}", line, section, lines.substr(0, lines.find(':')), says));
  }
}

/// A whole text, and all that is wrong with it.
struct TextMistake {
  std::string text, says;
  Settings settings = {};
};

void expect_told(const std::vector<TextMistake>& mistakes) {
  for (const auto& [text, says, settings] : mistakes) EXPECT_EQ(complaint(text, settings), says) << text;
}

TEST(ConfigMistakes, UnknownAndRepeatedKeys) {
  expect_told(std::vector<KeyMistake>{
      {"model", "hiden_size: 128", "unknown key; did you mean model.hidden_size?"},
      {"optimizer", "rl: 1", "unknown key; did you mean optimizer.lr?"},
      {"mesh", "recompute: full", "unknown key; did you mean training.recompute?"},
      {"model", "quantisation_bits: 4", "unknown key"},
  });
  expect_told(std::vector<TextMistake>{
      {base + "sliding_window: 3\n", "x.yaml:3: sliding_window: unknown key; did you mean model.sliding_window?"},
      {base + "optimiser: {lr: 1}\n", "x.yaml:3: optimiser: unknown key; did you mean optimizer?"},
      {base + "optimiser:\n  lr: x\n",
       "x.yaml:3: optimiser: unknown key; did you mean optimizer?\n"
       "x.yaml:4: optimizer.lr: is the text \"x\", but must be a number in [0, 100]"},
      {"training: {seq_len: 64, step: 10}\ndata: {train: a}\n",
       "x.yaml:1: training.step: unknown key; did you mean training.steps?"},
      {with("model", "rope_scaling: {kind: yarn}"), "x.yaml:7: model.rope_scaling.kind: unknown key"},
      {base + "mesh.sequence: 2\n",
       "x.yaml:3: mesh.sequence: a key of a file has no dots: write one section inside the other"},
      {with("mesh", "data: 1\n  sequence: 2\n  data: 2"),
       "x.yaml:9: mesh.data: is given twice; the first is in line 7"},
      {base + "mesh: {data: 1}\nmodel: {}\nmesh: {sequence: 1}\n",
       "x.yaml:5: mesh: is given twice; the first is in line 3"},
      {base + "mesh: 4\n", "x.yaml:3: mesh: is a section of keys, but holds one value"},
      {base + "mesh: [4]\n", "x.yaml:3: mesh: is a section of keys, but holds a list"},
      {"data:\n  packing: concat\n",
       "x.yaml: data.train: is required but missing (a path, or a list of {path, weight})\n"
       "x.yaml: training.seq_len: is required but missing (tokens of a sequence)\n"
       "x.yaml: training.steps: is required but missing (optimizer steps)"},
  });
}

TEST(ConfigMistakes, Settings) {
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {"mesh={data: 1, data: 1}", "mesh.data: is given twice"},
      {"training.steps", "must be key.path=value"},
      {"=4", "must be key.path=value"},
      {"mesh.seqence=4", "unknown key; did you mean mesh.sequence?"},
      {"mesh.sequence=four", "is the text \"four\", but must be an integer from 1 to 1024"},
      {"optimizer.betas=[0.9", "not valid YAML: end of sequence flow not found (column 1)"},
      {"data.validation=a\x80", "the byte 0x80 is not UTF-8 text"},
      {"mesh.backend=nccl", "nccl carries GPU memory; with training.device cpu use threads or mpi (or auto)"},
  };
  for (const auto& [setting, says] : mistakes) {
    EXPECT_EQ(complaint(base, {setting}), fmt::format("--set {}: {}", setting, says));
  }
}

TEST(ConfigMistakes, Values) {
  expect_told(std::vector<KeyMistake>{
      {"mesh", "data: two", "is the text \"two\", but must be an integer from 1 to 1024"},
      {"mesh", "data: \"2\"", "is the text \"2\", but must be an integer from 1 to 1024"},
      {"mesh", "data: 2.5", "is the text \"2.5\", but must be an integer from 1 to 1024"},
      {"training", "loss_chunk: 1e3", "is the text \"1e3\", but must be an integer from 1 to 1073741824; write 1000"},
      {"mesh", "data: 0x2", "is the text \"0x2\", but must be an integer from 1 to 1024"},
      {"mesh", "data: 010", "is the text \"010\", but must be an integer from 1 to 1024; write 10"},
      {"mesh", "data:", "is empty, but must be an integer from 1 to 1024"},
      {"mesh", "data: [2]", "is a list, but must be an integer from 1 to 1024"},
      {"mesh", "data: {ranks: 2}", "is a map, but must be an integer from 1 to 1024"},
      {"mesh", "data: 0", "0 is out of range; it must be an integer from 1 to 1024"},
      {"model", "sliding_window: -1", "-1 is out of range; it must be an integer from 0 to 1073741824"},
      {"mesh", "data: 9223372036854775808",
       "9223372036854775808 is out of range; it must be an integer from 1 to 1024"},
      {"training", "seed: -1", "-1 is out of range; it must be an integer from 0 to 18446744073709551615"},
      {"training", "seed: 18446744073709551616",
       "18446744073709551616 is out of range; it must be an integer from 0 to 18446744073709551615"},
      {"optimizer", "lr: fast", "is the text \"fast\", but must be a number in [0, 100]"},
      {"optimizer", "lr: nan", "is the text \"nan\", but must be a number in [0, 100]"},
      {"optimizer", "lr: .nan", "is the text \".nan\", but must be a number in [0, 100]"},
      {"optimizer", "lr: -inf", "is the text \"-inf\", but must be a number in [0, 100]"},
      {"optimizer", "lr: 1e999", "1e999 does not fit a double; it must be a number in [0, 100]"},
      {"optimizer", "lr: 1e-3e", "is the text \"1e-3e\", but must be a number in [0, 100]"},
      {"optimizer", "eps: 0", "0 is out of range; it must be a number in (0, 1]"},
      {"training", "deterministic: yes", "is the text \"yes\", but must be true or false"},
      {"training", "deterministic: 'true'", "is the text \"true\", but must be true or false"},
      {"mesh", "layout: zigzig", "is the text \"zigzig\", but must be one of contiguous, striped, zigzag"},
      {"optimizer", "name: sgd", "is the text \"sgd\", but must be adamw"},
      {"data", "validation: {a: b}", "is a map, but must be text"},
      {"mesh", "layout: " + std::string(200, 'z'),
       "is the text \"" + std::string(77, 'z') + "...\", but must be one of contiguous, striped, zigzag"},
      {"optimizer", "betas: [0.9]", "is a list of 1, but must be a list of two numbers in [0, 1)"},
      {"optimizer", "betas: 0.9", "is the text \"0.9\", but must be a list of two numbers in [0, 1)"},
      {"evaluation", "context_lengths: 64", "is the text \"64\", but must be a list of lengths in tokens"},
      {"evaluation", "context_lengths: [0, 64]", "0 is out of range; it must be an integer from 1 to 1073741824"},
  });
  expect_told(std::vector<TextMistake>{
      {with("optimizer", "betas: [0.9,\n          1.0]"),
       "x.yaml:8: optimizer.betas: 1.0 is out of range; it must be a number in [0, 1)"},
      {"training: {seq_len: 64, steps: 10}\ndata: {train: []}",
       "x.yaml:2: data.train: the list is empty; name at least one token file"},
      {"training: {seq_len: 64, steps: 10}\ndata: {train: \"\"}",
       "x.yaml:2: data.train: needs the path of a token file; make one with prepare"},
      {"training: {seq_len: 64, steps: 10}\ndata: {train: {path: a}}",
       "x.yaml:2: data.train: is a map, but must be a path, or a list of {path, weight}"},
      {"training: {seq_len: 64, steps: 10}\ndata:\n  train:\n    - {path: a, weight: 0}\n    - {weight: 1}\n"
       "    - {path: a, wait: 1}\n    - {path: a, path: b}\n    - [c]\n    - {path: [d]}\n",
       "x.yaml:4: data.train: weight 0 is out of range; it must be a number in (0, 1000000000]\n"
       "x.yaml:5: data.train: an entry needs a path\n"
       "x.yaml:6: data.train: an entry has the keys path and weight, not wait\n"
       "x.yaml:7: data.train: path is given twice in one entry\n"
       "x.yaml:8: data.train: is a list, but must be text\n"
       "x.yaml:9: data.train: path is a list, but must be text"},
      {with("evaluation", "context_lengths:\n    - 64\n    - 64"),
       "x.yaml:9: evaluation.context_lengths: lengths must ascend, but 64 follows 64"},
  });
}

TEST(ConfigMistakes, KeysThatDoNotFitTogether) {
  expect_told(std::vector<KeyMistake>{
      {"model", "hidden_size: 250",
       "250 does not divide by model.num_attention_heads = 4; the nearest that do are 248 and 252, or set "
       "model.head_dim"},
      {"model", "num_key_value_heads: 3",
       "model.num_attention_heads = 4 is not a multiple of it (3); every key/value head serves the same number of "
       "query heads"},
      {"model", "num_key_value_heads: 8",
       "model.num_attention_heads = 4 is not a multiple of it (8); every key/value head serves the same number of "
       "query heads"},
      {"training", "offload: activations", "what is offloaded leaves a GPU; with training.device cpu use none"},
  });
  expect_told(std::vector<TextMistake>{
      {with("training", "global_batch_size: 10\n  micro_batch_size: 2"),
       "x.yaml:4: training.global_batch_size: 10 does not divide by mesh.data * training.micro_batch_size = 4 * 2 = 8; "
       "the nearest that fits: 8 and 16",
       {"mesh.data=4"}},
      {base,
       "x.yaml: training.global_batch_size: 1 does not divide by mesh.data * training.micro_batch_size = 3 * 1 = 3; "
       "the nearest that fits: 3",
       {"mesh.data=3"}},
      {base,
       "--set training.steps=1000000000: training.steps * training.global_batch_size * training.seq_len = 1000000000 * "
       "1048576 * 1073741824 tokens are more than can be counted (4e18)",
       {"training.seq_len=1073741824", "training.steps=1000000000", "training.global_batch_size=1048576"}},
      {with("model", "rope_scaling: {factor: 2}"),
       "x.yaml:7: model.rope_scaling.factor: 2 has no effect with model.rope_scaling.type none; choose linear, ntk, "
       "yarn, llama3 or longrope, or leave it out"},
      {with("model", "rope_scaling: {type: linear, factor: 0.5}"),
       "x.yaml:7: model.rope_scaling.factor: 0.5 would shorten the length that was trained; it must be at least 1"},
      {with("model", "rope_scaling: {type: linear}"),
       "x.yaml: model.rope_scaling.factor: linear needs the new length / the trained length"},
      {with("model",
            "rope_scaling: {type: yarn, original_max_position_embeddings: 64}\n"
            "  max_position_embeddings: 32"),
       "x.yaml: model.rope_scaling.factor: yarn takes it from model.max_position_embeddings / "
       "model.rope_scaling.original_max_position_embeddings = 32 / 64, which must be at least 1; give the factor, or "
       "the length that the model is meant for"},
      {with("model", "rope_scaling: {type: linear, factor: 2, beta_fast: 31, truncate: false}"),
       "x.yaml:7: model.rope_scaling.beta_fast: 31 has no effect with model.rope_scaling.type linear; choose yarn, or "
       "leave it out\n"
       "x.yaml:7: model.rope_scaling.truncate: false has no effect with model.rope_scaling.type linear; choose yarn, "
       "or leave it out"},
      {with("model", "rope_scaling: {type: llama3, factor: 8}"),
       "x.yaml: model.rope_scaling.original_max_position_embeddings: llama3 needs the length that the weights were "
       "trained at"},
      {with("model",
            "rope_scaling: {type: llama3, factor: 8, original_max_position_embeddings: 64, low_freq_factor: 4}"),
       "x.yaml: model.rope_scaling.high_freq_factor: 4 must be above model.rope_scaling.low_freq_factor = 4"},
      {with("model",
            "head_dim: 4\n  rope_scaling: {type: longrope, factor: 2, short_factor: [1], long_factor: [1, 2], "
            "original_max_position_embeddings: 1}"),
       "x.yaml:8: model.rope_scaling.original_max_position_embeddings: longrope takes the logarithm of this length, "
       "which must be 2 or more\n"
       "x.yaml:8: model.rope_scaling.short_factor: has 1 numbers, but longrope needs one for each of the "
       "model.head_dim / 2 = 2 pairs"},
      {with("model", "rope_scaling: {short_factor: 1, long_factor: [1, x]}"),
       "x.yaml:7: model.rope_scaling.short_factor: is the text \"1\", but must be a list of numbers\n"
       "x.yaml:7: model.rope_scaling.long_factor: is the text \"x\", but must be a number in (0, 1000000000]"},
      {with("model", "rope_scaling: {original_max_position_embeddings: 2}"),
       "x.yaml:7: model.rope_scaling.original_max_position_embeddings: 2 has no effect with model.rope_scaling.type "
       "none; choose linear, ntk, yarn, llama3 or longrope, or leave it out"},
      {with("model", "rope_scaling: {type: yarn, factor: 2}"),
       "x.yaml: model.rope_scaling.original_max_position_embeddings: yarn needs the length that the weights were "
       "trained at"},
      {with("evaluation", "interval: 5"),
       "x.yaml: evaluation.context_lengths: evaluation.interval = 5 needs at least one length; or set "
       "evaluation.interval to 0"},
      {with("evaluation", "{interval: 5, context_lengths: [100, 200], target_tokens: 51}"),
       "x.yaml:7: evaluation.target_tokens: 51 is more than half of the shortest of evaluation.context_lengths, 100; "
       "make it at most 50, so that every target has context"},
      {with("optimizer", "{lr: 2, weight_decay: 0.5}"),
       "x.yaml:7: optimizer.weight_decay: optimizer.lr * optimizer.weight_decay = 2 * 0.5 is 1 or more: a step would "
       "turn weights round"},
  });
}

TEST(ConfigMistakes, WhatThisBuildCannotDo) {
#if RINGTRAIN_CUDA
  expect_told(std::vector<TextMistake>{
      {with("training", "device: cuda\n  dtype: float64"),
       "x.yaml:5: training.dtype: float64 is for training.device cpu; with cuda use bfloat16 or float32"},
  });
#else
  expect_told(std::vector<KeyMistake>{
      {"training", "device: cuda", "cuda is not in this build; use cpu, or build with cmake --preset cuda"},
  });
#endif
#if !RINGTRAIN_MPI
  EXPECT_EQ(complaint(base, {"mesh.backend=mpi"}),
            "--set mesh.backend=mpi: mpi is not in this build, for which no MPI library was found; use threads (or "
            "auto), or install libopenmpi-dev and build again");
#endif
}

TEST(ConfigMistakes, Syntax) {
  expect_told(std::vector<TextMistake>{
      {"training:\n  seq_len: 64\n steps: 4\n", "x.yaml:3: not valid YAML: end of map not found (column 2)"},
      {"training: {seq_len: 64}\ndata: \"a\n", "x.yaml:2: not valid YAML: illegal EOF in scalar (column 9)"},
      {"training: {seq_len: 64}\ndata: &d {train: a}\n",
       "x.yaml:2: an anchor (&name) is not supported; write the value where it is used"},
      {"data: &d {train: a}\nmodel: *d\n",
       "x.yaml:1: an anchor (&name) is not supported; write the value where it is used"},
      {base + "mesh: {data: !!int 2}\n", "x.yaml:3: the tag tag:yaml.org,2002:int is not supported; leave it out"},
      {base + "---\nmesh: {data: 1}\n",
       "x.yaml:4: not valid YAML: the document ends before this line, which does not belong to it"},
      {base + "? [a, b]\n: c\n", "x.yaml:3: a key must be a name"},
      {base + "mesh: {data: 1}\n\x04\n", "x.yaml:4: the control character 0x04 cannot stand in a config"},
      {base + "# caf\xe9\n", "x.yaml:3: the byte 0xE9 is not UTF-8 text"},
      {"# \xc0\xaf\n", "x.yaml:1: the byte 0xC0 is not UTF-8 text"},
      {"a: " + std::string(5000, '['), "x.yaml:1: is nested deeper than 32 levels"},
  });
}

TEST(Config, AllProblemsAreToldAtOnceInTheOrderOfTheFile) {
  EXPECT_EQ(
      complaint("mesh: {data: 0}\nmodel:\n  hidden_size: 250\n  head_dimm: 2\ndata: {train: a}\n", {"x=1"}),
      "x.yaml:1: mesh.data: 0 is out of range; it must be an integer from 1 to 1024\n"
      "x.yaml:3: model.hidden_size: 250 does not divide by model.num_attention_heads = 4; the nearest that do are 248 "
      "and 252, or set model.head_dim\n"
      "x.yaml:4: model.head_dimm: unknown key; did you mean model.head_dim?\n"
      "x.yaml: training.seq_len: is required but missing (tokens of a sequence)\n"
      "x.yaml: training.steps: is required but missing (optimizer steps)\n"
      "--set x=1: unknown key");
}

TEST(Config, AFileThatIsNoConfigIsNamed) {
  const auto reading = [](const std::string& path) -> std::string {
    try {
      read_config(path, {});
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
  };
  const std::string folder = ::testing::TempDir() + "config_test";
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/c.yaml";
  EXPECT_EQ(reading(folder + "/none.yaml"), "cannot open " + folder + "/none.yaml: No such file or directory");
  EXPECT_EQ(reading(folder), folder + ": is a folder, not a config file");
  EXPECT_EQ(reading("/dev/zero"), "cannot open /dev/zero: it is a device, not a file");
  std::ofstream(path) << std::string((1 << 20) + 1, ' ');
  EXPECT_EQ(reading(path), path + ": is larger than 1 MiB, so it is no config");
  // No page holds a line for each of so many mistakes.
  {
    std::ofstream many(path);
    for (int i = 0; i < 80000; ++i) many << "key" << i << ": 1\n";
  }
  const std::string told = reading(path);
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 30) << told.substr(0, 2000);
  EXPECT_NE(told.find(path + ":1: key0: unknown key"), std::string::npos);
  EXPECT_NE(told.find("more problems; mend these first"), std::string::npos);
  std::ofstream(path) << std::string(500'000, 'k') << ": 1\n";
  EXPECT_LT(reading(path).size(), 1000u);
  std::ofstream(path) << "";
  EXPECT_TRUE(reading(path).starts_with(path + ": the file holds no keys\n")) << reading(path);
  std::ofstream(path) << base;
  EXPECT_EQ(reading(path), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ringtrain::testing
