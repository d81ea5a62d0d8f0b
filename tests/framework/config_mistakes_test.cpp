// Every class of mistake in a config, with its exact line of text.
#include "framework/config/config.h"
#include "framework/device.h"
#include "tests/framework/config_text.h"

#include <filesystem>
#include <fstream>
#include <ostream>

namespace ringtrain::testing {
namespace {

struct Mistake {
  const char* name;
  std::string text;
  Settings settings;
  std::string says;
};

class ConfigMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(ConfigMistake, IsToldInOneExactLine) {
  EXPECT_EQ(complaint(GetParam().text, GetParam().settings), GetParam().says);
}

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

std::string name_of_case(const ::testing::TestParamInfo<Mistake>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Keys, ConfigMistake,
    ::testing::Values(
        Mistake{"Unknown",
                with("model", "hiden_size: 128"),
                {},
                "x.yaml:7: model.hiden_size: unknown key; did you mean model.hidden_size?"},
        Mistake{"UnknownSwapped",
                with("optimizer", "rl: 1"),
                {},
                "x.yaml:7: optimizer.rl: unknown key; did you mean optimizer.lr?"},
        Mistake{"UnknownInAnotherSection",
                with("mesh", "recompute: full"),
                {},
                "x.yaml:7: mesh.recompute: unknown key; did you mean training.recompute?"},
        Mistake{"UnknownAtTheTop",
                base + "sliding_window: 3\n",
                {},
                "x.yaml:3: sliding_window: unknown key; did you mean model.sliding_window?"},
        Mistake{"UnknownLikeNothing",
                with("model", "quantisation_bits: 4"),
                {},
                "x.yaml:7: model.quantisation_bits: unknown key"},
        Mistake{"UnknownSection",
                base + "optimiser: {lr: 1}\n",
                {},
                "x.yaml:3: optimiser: unknown key; did you mean optimizer?"},
        Mistake{"UnknownSectionAndAKeyInIt",
                base + "optimiser:\n  lr: x\n",
                {},
                "x.yaml:3: optimiser: unknown key; did you mean optimizer?\n"
                "x.yaml:4: optimizer.lr: is the text \"x\", but must be a number in [0, 100]"},
        Mistake{"MisspeltRequired",
                "training: {seq_len: 64, step: 10}\ndata: {train: a}\n",
                {},
                "x.yaml:1: training.step: unknown key; did you mean training.steps?"},
        Mistake{"UnknownNested",
                with("model", "rope_scaling: {kind: yarn}"),
                {},
                "x.yaml:7: model.rope_scaling.kind: unknown key"},
        Mistake{"Dotted",
                base + "mesh.sequence: 2\n",
                {},
                "x.yaml:3: mesh.sequence: a key of a file has no dots: write one section inside the other"},
        Mistake{"Duplicate",
                with("mesh", "data: 1\n  sequence: 2\n  data: 2"),
                {},
                "x.yaml:9: mesh.data: is given twice; the first is in line 7"},
        Mistake{"DuplicateSection",
                base + "mesh: {data: 1}\nmodel: {}\nmesh: {sequence: 1}\n",
                {},
                "x.yaml:5: mesh: is given twice; the first is in line 3"},
        Mistake{"DuplicateInASetting",
                base,
                {"mesh={data: 1, data: 1}"},
                "--set mesh={data: 1, data: 1}: mesh.data: is given twice"},
        Mistake{
            "SectionIsAScalar", base + "mesh: 4\n", {}, "x.yaml:3: mesh: is a section of keys, but holds one value"},
        Mistake{"SectionIsAList", base + "mesh: [4]\n", {}, "x.yaml:3: mesh: is a section of keys, but holds a list"},
        Mistake{"SettingWithoutValue", base, {"training.steps"}, "--set training.steps: must be key.path=value"},
        Mistake{"SettingWithoutKey", base, {"=4"}, "--set =4: must be key.path=value"},
        Mistake{"SettingUnknown",
                base,
                {"mesh.seqence=4"},
                "--set mesh.seqence=4: unknown key; did you mean mesh.sequence?"},
        Mistake{"SettingWrongType",
                base,
                {"mesh.sequence=four"},
                "--set mesh.sequence=four: is the text \"four\", but must be an integer from 1 to 1024"},
        Mistake{"SettingBadYaml",
                base,
                {"optimizer.betas=[0.9"},
                "--set optimizer.betas=[0.9: not valid YAML: end of sequence flow not found (column 1)"},
        Mistake{"SettingNotText",
                base,
                {"data.validation=a\x80"},
                "--set data.validation=a\x80: the byte 0x80 is not UTF-8 text"},
        Mistake{"Missing",
                "data:\n  packing: concat\n",
                {},
                "x.yaml: data.train: is required but missing (a path, or a list of {path, weight})\n"
                "x.yaml: training.seq_len: is required but missing (tokens of a sequence)\n"
                "x.yaml: training.steps: is required but missing (optimizer steps)"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Values, ConfigMistake,
    ::testing::Values(
        Mistake{"IntegerIsText",
                with("mesh", "data: two"),
                {},
                "x.yaml:7: mesh.data: is the text \"two\", but must be an integer from 1 to 1024"},
        Mistake{"IntegerIsQuoted",
                with("mesh", "data: \"2\""),
                {},
                "x.yaml:7: mesh.data: is the text \"2\", but must be an integer from 1 to 1024"},
        Mistake{"IntegerIsReal",
                with("mesh", "data: 2.5"),
                {},
                "x.yaml:7: mesh.data: is the text \"2.5\", but must be an integer from 1 to 1024"},
        Mistake{"IntegerInExponents",
                with("training", "loss_chunk: 1e3"),
                {},
                "x.yaml:4: training.loss_chunk: is the text \"1e3\", but must be an integer from 1 to 1073741824; "
                "write 1000"},
        Mistake{"IntegerIsHexadecimal",
                with("mesh", "data: 0x2"),
                {},
                "x.yaml:7: mesh.data: is the text \"0x2\", but must be an integer from 1 to 1024"},
        Mistake{"IntegerIsOctal",
                with("mesh", "data: 010"),
                {},
                "x.yaml:7: mesh.data: is the text \"010\", but must be an integer from 1 to 1024; write 10"},
        Mistake{"IntegerIsEmpty",
                with("mesh", "data:"),
                {},
                "x.yaml:7: mesh.data: is empty, but must be an integer from 1 to 1024"},
        Mistake{"IntegerIsAList",
                with("mesh", "data: [2]"),
                {},
                "x.yaml:7: mesh.data: is a list, but must be an integer from 1 to 1024"},
        Mistake{"IntegerIsAMap",
                with("mesh", "data: {ranks: 2}"),
                {},
                "x.yaml:7: mesh.data: is a map, but must be an integer from 1 to 1024"},
        Mistake{"IntegerTooSmall",
                with("mesh", "data: 0"),
                {},
                "x.yaml:7: mesh.data: 0 is out of range; it must be an integer from 1 to 1024"},
        Mistake{"IntegerNegative",
                with("model", "sliding_window: -1"),
                {},
                "x.yaml:7: model.sliding_window: -1 is out of range; it must be an integer from 0 to 1073741824"},
        Mistake{"IntegerOverflow",
                with("mesh", "data: 9223372036854775808"),
                {},
                "x.yaml:7: mesh.data: 9223372036854775808 is out of range; it must be an integer from 1 to 1024"},
        Mistake{"SeedNegative",
                with("training", "seed: -1"),
                {},
                "x.yaml:4: training.seed: -1 is out of range; it must be an integer from 0 to 18446744073709551615"},
        Mistake{"SeedOverflow",
                with("training", "seed: 18446744073709551616"),
                {},
                "x.yaml:4: training.seed: 18446744073709551616 is out of range; it must be an integer from 0 to "
                "18446744073709551615"},
        Mistake{"RealIsText",
                with("optimizer", "lr: fast"),
                {},
                "x.yaml:7: optimizer.lr: is the text \"fast\", but must be a number in [0, 100]"},
        Mistake{"RealIsNan",
                with("optimizer", "lr: nan"),
                {},
                "x.yaml:7: optimizer.lr: is the text \"nan\", but must be a number in [0, 100]"},
        Mistake{"RealIsYamlNan",
                with("optimizer", "lr: .nan"),
                {},
                "x.yaml:7: optimizer.lr: is the text \".nan\", but must be a number in [0, 100]"},
        Mistake{"RealIsInfinite",
                with("optimizer", "lr: -inf"),
                {},
                "x.yaml:7: optimizer.lr: is the text \"-inf\", but must be a number in [0, 100]"},
        Mistake{"RealOverflow",
                with("optimizer", "lr: 1e999"),
                {},
                "x.yaml:7: optimizer.lr: 1e999 does not fit a double; it must be a number in [0, 100]"},
        Mistake{"RealHalfRead",
                with("optimizer", "lr: 1e-3e"),
                {},
                "x.yaml:7: optimizer.lr: is the text \"1e-3e\", but must be a number in [0, 100]"},
        Mistake{"RealOutOfRange",
                with("optimizer", "eps: 0"),
                {},
                "x.yaml:7: optimizer.eps: 0 is out of range; it must be a number in (0, 1]"},
        Mistake{"FlagIsYes",
                with("training", "deterministic: yes"),
                {},
                "x.yaml:4: training.deterministic: is the text \"yes\", but must be true or false"},
        Mistake{"FlagIsQuoted",
                with("training", "deterministic: 'true'"),
                {},
                "x.yaml:4: training.deterministic: is the text \"true\", but must be true or false"},
        Mistake{"Word",
                with("mesh", "layout: zigzig"),
                {},
                "x.yaml:7: mesh.layout: is the text \"zigzig\", but must be one of contiguous, striped, zigzag"},
        Mistake{"OnlyAdamw",
                with("optimizer", "name: sgd"),
                {},
                "x.yaml:7: optimizer.name: is the text \"sgd\", but must be adamw"},
        Mistake{"TextIsAMap",
                with("data", "validation: {a: b}"),
                {},
                "x.yaml:6: data.validation: is a map, but must be text"},
        Mistake{"LongValueIsCut",
                with("mesh", "layout: " + std::string(200, 'z')),
                {},
                "x.yaml:7: mesh.layout: is the text \"" + std::string(77, 'z') +
                    "...\", but must be one of contiguous, striped, zigzag"},
        Mistake{"BetasCount",
                with("optimizer", "betas: [0.9]"),
                {},
                "x.yaml:7: optimizer.betas: is a list of 1, but must be a list of two numbers in [0, 1)"},
        Mistake{"BetasScalar",
                with("optimizer", "betas: 0.9"),
                {},
                "x.yaml:7: optimizer.betas: is the text \"0.9\", but must be a list of two numbers in [0, 1)"},
        Mistake{"BetasRange",
                with("optimizer", "betas: [0.9,\n          1.0]"),
                {},
                "x.yaml:8: optimizer.betas: 1.0 is out of range; it must be a number in [0, 1)"},
        Mistake{"SourcesEmpty",
                "training: {seq_len: 64, steps: 10}\ndata: {train: []}",
                {},
                "x.yaml:2: data.train: the list is empty; name at least one token file"},
        Mistake{"SourceEmpty",
                "training: {seq_len: 64, steps: 10}\ndata: {train: \"\"}",
                {},
                "x.yaml:2: data.train: needs the path of a token file; make one with prepare"},
        Mistake{"SourceIsAMap",
                "training: {seq_len: 64, steps: 10}\ndata: {train: {path: a}}",
                {},
                "x.yaml:2: data.train: is a map, but must be a path, or a list of {path, weight}"},
        Mistake{"SourceEntries",
                "training: {seq_len: 64, steps: 10}\ndata:\n  train:\n    - {path: a, weight: 0}\n    - {weight: 1}\n"
                "    - {path: a, wait: 1}\n    - {path: a, path: b}\n    - [c]\n    - {path: [d]}\n",
                {},
                "x.yaml:4: data.train: weight 0 is out of range; it must be a number in (0, 1000000000]\n"
                "x.yaml:5: data.train: an entry needs a path\n"
                "x.yaml:6: data.train: an entry has the keys path and weight, not wait\n"
                "x.yaml:7: data.train: path is given twice in one entry\n"
                "x.yaml:8: data.train: is a list, but must be text\n"
                "x.yaml:9: data.train: path is a list, but must be text"},
        Mistake{"LengthsScalar",
                with("evaluation", "context_lengths: 64"),
                {},
                "x.yaml:7: evaluation.context_lengths: is the text \"64\", but must be a list of lengths in tokens"},
        Mistake{"LengthsDescend",
                with("evaluation", "context_lengths:\n    - 64\n    - 64"),
                {},
                "x.yaml:9: evaluation.context_lengths: lengths must ascend, but 64 follows 64"},
        Mistake{"LengthsZero",
                with("evaluation", "context_lengths: [0, 64]"),
                {},
                "x.yaml:7: evaluation.context_lengths: 0 is out of range; it must be an integer from 1 to 1073741824"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Together, ConfigMistake,
    ::testing::Values(
        Mistake{"HeadsDivideWidth",
                with("model", "hidden_size: 250"),
                {},
                "x.yaml:7: model.hidden_size: 250 does not divide by model.num_attention_heads = 4; the nearest that "
                "do are 248 "
                "and 252, or set model.head_dim"},
        Mistake{"GroupsDivideHeads",
                with("model", "num_key_value_heads: 3"),
                {},
                "x.yaml:7: model.num_key_value_heads: model.num_attention_heads = 4 is not a multiple of it (3); every "
                "key/value head serves the same number of query heads"},
        Mistake{"MoreGroupsThanHeads",
                with("model", "num_key_value_heads: 8"),
                {},
                "x.yaml:7: model.num_key_value_heads: model.num_attention_heads = 4 is not a multiple of it (8); every "
                "key/value head serves the same number of query heads"},
        Mistake{"BatchOnMesh",
                with("training", "global_batch_size: 10\n  micro_batch_size: 2"),
                {"mesh.data=4"},
                "x.yaml:4: training.global_batch_size: 10 does not divide by mesh.data * training.micro_batch_size = 4 "
                "* 2 = 8; "
                "the nearest that fits: 8 and 16"},
        Mistake{"BatchSmallerThanMesh",
                base,
                {"mesh.data=3"},
                "x.yaml: training.global_batch_size: 1 does not divide by mesh.data * training.micro_batch_size = 3 * "
                "1 = 3; "
                "the nearest that fits: 3"},
        Mistake{"TooManyTokens",
                base,
                {"training.seq_len=1073741824", "training.steps=1000000000", "training.global_batch_size=1048576"},
                "--set training.steps=1000000000: training.steps * training.global_batch_size * training.seq_len = "
                "1000000000 "
                "* 1048576 * 1073741824 tokens are more than can be counted (4e18)"},
        Mistake{"FactorWithoutType",
                with("model", "rope_scaling: {factor: 2}"),
                {},
                "x.yaml:7: model.rope_scaling.factor: 2 has no effect with model.rope_scaling.type none; choose "
                "linear, ntk, yarn, llama3 or longrope, or leave it out"},
        Mistake{"FactorBelowOne",
                with("model", "rope_scaling: {type: linear, factor: 0.5}"),
                {},
                "x.yaml:7: model.rope_scaling.factor: 0.5 would shorten the length that was trained; it must be at "
                "least 1"},
        Mistake{"LinearNeedsAFactor",
                with("model", "rope_scaling: {type: linear}"),
                {},
                "x.yaml: model.rope_scaling.factor: linear needs the new length / the trained length"},
        Mistake{"FactorFromLengthsThatShrink",
                with("model",
                     "rope_scaling: {type: yarn, original_max_position_embeddings: 64}\n"
                     "  max_position_embeddings: 32"),
                {},
                "x.yaml: model.rope_scaling.factor: yarn takes it from model.max_position_embeddings / "
                "model.rope_scaling.original_max_position_embeddings = 32 / 64, which must be at least 1; give the "
                "factor, or the length that the model is meant for"},
        Mistake{"KeyOfAnotherType",
                with("model", "rope_scaling: {type: linear, factor: 2, beta_fast: 31, truncate: false}"),
                {},
                "x.yaml:7: model.rope_scaling.beta_fast: 31 has no effect with model.rope_scaling.type linear; choose "
                "yarn, or leave it out\n"
                "x.yaml:7: model.rope_scaling.truncate: false has no effect with model.rope_scaling.type linear; "
                "choose yarn, or leave it out"},
        Mistake{"Llama3NeedsOriginal",
                with("model", "rope_scaling: {type: llama3, factor: 8}"),
                {},
                "x.yaml: model.rope_scaling.original_max_position_embeddings: llama3 needs the length that the weights "
                "were trained at"},
        Mistake{"Llama3FactorsAscend",
                with("model",
                     "rope_scaling: {type: llama3, factor: 8, original_max_position_embeddings: 64, "
                     "low_freq_factor: 4}"),
                {},
                "x.yaml: model.rope_scaling.high_freq_factor: 4 must be above model.rope_scaling.low_freq_factor = 4"},
        Mistake{"LongRopeListsHaveAHeadsPairs",
                with("model",
                     "head_dim: 4\n  rope_scaling: {type: longrope, factor: 2, short_factor: [1], "
                     "long_factor: [1, 2], original_max_position_embeddings: 1}"),
                {},
                "x.yaml:8: model.rope_scaling.original_max_position_embeddings: longrope takes the logarithm of this "
                "length, which must be 2 or more\n"
                "x.yaml:8: model.rope_scaling.short_factor: has 1 numbers, but longrope needs one for each of the "
                "model.head_dim / 2 = 2 pairs"},
        Mistake{"FactorsAreAList",
                with("model", "rope_scaling: {short_factor: 1, long_factor: [1, x]}"),
                {},
                "x.yaml:7: model.rope_scaling.short_factor: is the text \"1\", but must be a list of numbers\n"
                "x.yaml:7: model.rope_scaling.long_factor: is the text \"x\", but must be a number in (0, 1000000000]"},
        Mistake{"OriginalWithoutType",
                with("model", "rope_scaling: {original_max_position_embeddings: 2}"),
                {},
                "x.yaml:7: model.rope_scaling.original_max_position_embeddings: 2 has no effect with "
                "model.rope_scaling.type none; choose linear, ntk, yarn, llama3 or longrope, or leave it out"},
        Mistake{
            "YarnNeedsOriginal",
            with("model", "rope_scaling: {type: yarn, factor: 2}"),
            {},
            "x.yaml: model.rope_scaling.original_max_position_embeddings: yarn needs the length that the weights were "
            "trained at"},
        Mistake{"EvaluationNeedsLengths",
                with("evaluation", "interval: 5"),
                {},
                "x.yaml: evaluation.context_lengths: evaluation.interval = 5 needs at least one length; or set "
                "evaluation.interval to 0"},
        Mistake{"TargetsNeedContext",
                with("evaluation", "{interval: 5, context_lengths: [100, 200], target_tokens: 51}"),
                {},
                "x.yaml:7: evaluation.target_tokens: 51 is more than half of the shortest of "
                "evaluation.context_lengths, 100; "
                "make it at most 50, so that every target has context"},
        Mistake{"DecayTurnsWeights",
                with("optimizer", "{lr: 2, weight_decay: 0.5}"),
                {},
                "x.yaml:7: optimizer.weight_decay: optimizer.lr * optimizer.weight_decay = 2 * 0.5 is 1 or more: a "
                "step would "
                "turn weights round"},
        Mistake{"NcclOnACpu",
                base,
                {"mesh.backend=nccl"},
                "--set mesh.backend=nccl: nccl carries GPU memory; with training.device cpu use threads or mpi (or "
                "auto)"},
        Mistake{"NothingToOffload",
                with("training", "offload: activations"),
                {},
                "x.yaml:4: training.offload: what is offloaded leaves a GPU; with training.device cpu use none"}),
    name_of_case);

#if RINGTRAIN_CUDA
INSTANTIATE_TEST_SUITE_P(CudaBuilds, ConfigMistake,
                         ::testing::Values(Mistake{
                             "DoubleOnAGpu",
                             with("training", "device: cuda\n  dtype: float64"),
                             {},
                             "x.yaml:5: training.dtype: float64 is for training.device cpu; with cuda use bfloat16 or "
                             "float32"}),
                         name_of_case);
#else
INSTANTIATE_TEST_SUITE_P(
    BuildsWithoutCuda, ConfigMistake,
    ::testing::Values(Mistake{
        "CudaIsNotHere",
        with("training", "device: cuda"),
        {},
        "x.yaml:4: training.device: cuda is not in this build; use cpu, or build with cmake --preset cuda"}),
    name_of_case);
#endif

#if !RINGTRAIN_MPI
INSTANTIATE_TEST_SUITE_P(
    BuiltWithoutMpi, ConfigMistake,
    ::testing::Values(Mistake{
        "MpiIsNotHere",
        base,
        {"mesh.backend=mpi"},
        "--set mesh.backend=mpi: mpi is not in this build, for which no MPI library was found; use threads (or auto), "
        "or install libopenmpi-dev and build again"}),
    name_of_case);
#endif

INSTANTIATE_TEST_SUITE_P(
    Syntax, ConfigMistake,
    ::testing::Values(
        Mistake{"BrokenMap",
                "training:\n  seq_len: 64\n steps: 4\n",
                {},
                "x.yaml:3: not valid YAML: end of map not found (column 2)"},
        Mistake{"OpenQuote",
                "training: {seq_len: 64}\ndata: \"a\n",
                {},
                "x.yaml:2: not valid YAML: illegal EOF in scalar (column 9)"},
        Mistake{"Anchor",
                "training: {seq_len: 64}\ndata: &d {train: a}\n",
                {},
                "x.yaml:2: an anchor (&name) is not supported; write the value where it is used"},
        Mistake{"Alias",
                "data: &d {train: a}\nmodel: *d\n",
                {},
                "x.yaml:1: an anchor (&name) is not supported; write the value where it is used"},
        Mistake{"Tag",
                base + "mesh: {data: !!int 2}\n",
                {},
                "x.yaml:3: the tag tag:yaml.org,2002:int is not supported; leave it out"},
        Mistake{"TwoDocuments",
                base + "---\nmesh: {data: 1}\n",
                {},
                "x.yaml:4: not valid YAML: the document ends before this line, which does not belong to it"},
        Mistake{"KeyIsAList", base + "? [a, b]\n: c\n", {}, "x.yaml:3: a key must be a name"},
        Mistake{"Control",
                base + "mesh: {data: 1}\n\x04\n",
                {},
                "x.yaml:4: the control character 0x04 cannot stand in a config"},
        Mistake{"NotText", base + "# caf\xe9\n", {}, "x.yaml:3: the byte 0xE9 is not UTF-8 text"},
        Mistake{"Overlong", "# \xc0\xaf\n", {}, "x.yaml:1: the byte 0xC0 is not UTF-8 text"},
        Mistake{"DeepList", "a: " + std::string(5000, '['), {}, "x.yaml:1: is nested deeper than 32 levels"}),
    name_of_case);

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
