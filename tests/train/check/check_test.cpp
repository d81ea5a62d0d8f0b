// `check` on whole runs: correct ones of every kind pass, a fault is reported with its location, an error of four times
// a tensor's bound is found in every tensor, and unsupported requests are refused.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>

#include "framework/config/read_config.h"
#include "framework/storage/hdf5_datasets.h"
#include "layers/model_parameters.h"
#include "tests/train/check/check_fixture.h"
#include "train/check/reference_inputs.h"
#include "train/check/reference_plan.h"
#include "train/check/rounding.h"

namespace ringtrain::testing {
namespace {

class CheckedRun : public CheckTest {
 protected:
  CheckedRun() : CheckTest({.weights = true}) {}
  /// A ring of four, two layers, two sequences.
  Config ring(std::vector<std::string> settings) const {
    settings.insert(settings.begin(), {"mesh.sequence=4", "training.global_batch_size=2"});
    return tiny(data, settings);
  }
  TrainOptions run_of(const Config& config) const {
    std::vector<std::string> cuts;
    return checked_run(options_of(config), cuts);
  }
};

// Those tests that are called IsRight must find the mutations in tests/mutations with a line `check:`.
TEST_F(CheckedRun, OfEachKindIsRight) {
  const std::vector<std::vector<std::string>> kinds{
      {},
      {"model.sliding_window=9", "data.packing=concat", "mesh.layout=striped"},
      {"mesh.sequence=2", "mesh.data=2", "training.global_batch_size=4", "model.architecture=qwen3",
       "mesh.layout=contiguous"},
      {"model.architecture=gemma2", "model.attention_softcap=1", "model.final_softcap=2", "model.attention_sinks=true",
       "model.sliding_window=11", "model.layer_types=[sliding_attention, full_attention]", "mesh.layout=zigzag"},
      {"model.architecture=granite", "model.embedding_multiplier=7", "model.residual_multiplier=0.3",
       "model.logits_scaling=0.2"},
      // Six tokens on four ranks, about half of them without a weight: some ranks have no target.
      {"training.seq_len=6"},
      // Windows end where a document would be cut.
      {"data.packing=whole", "training.seq_len=61", "training.global_batch_size=4"},
      // 2 x 256 tokens per rank: two parts, one sequence each.
      {"mesh.sequence=2", "training.seq_len=512", "training.micro_batch_size=2", "model.num_attention_heads=32",
       "model.num_key_value_heads=32", "model.head_dim=2", "mesh.layout=contiguous"},
      // Sums of gradients are rounded twice more, once after each micro-batch.
      {"training.dtype=float32", "optimizer.gradients=bfloat16"},
      // For tests/mutations/133: a scale of attention that is off by 3 % changes any single element by less than
      // bfloat16's rounding.
      {"training.dtype=bfloat16", "model.initializer_range=0.1", "training.global_batch_size=16"}};
  for (const auto& kind : kinds) EXPECT_EQ(wrong(check(ring(kind))), "") << fmt::format("{}", fmt::join(kind, " "));
}

// A fresh Granite, whose logits are so small that its softmax rounds more than they do. No bound may hide a logsumexp
// error of 4e-7, which is 7 units of float32's rounding.
TEST_F(CheckedRun, OfSmallLogitsIsRight) {
  const std::string words = write_tokens("words.h5", {.vocab_size = 2000});
  const auto bound_of_nll = [&](std::vector<std::string> settings) {
    settings.insert(settings.end(),
                    {"model.vocab_size=2000", "model.architecture=granite", "model.residual_multiplier=0.22",
                     "model.embedding_multiplier=12", "model.query_pre_attn_scalar=4096", "training.dtype=float32",
                     "training.global_batch_size=1", "mesh.sequence=2"});
    const CheckReport report = check(tiny(words, settings));
    EXPECT_EQ(wrong(report), "");
    return std::ranges::find(report.tensors, "nll", &CheckedTensor::name)->bound;
  };
  EXPECT_LT(bound_of_nll({"model.hidden_size=256", "model.num_attention_heads=8", "model.intermediate_size=512",
                          "model.initializer_range=0.006", "model.logits_scaling=16", "training.seq_len=256"}),
            4e-7);
  // Logits of about 1e-6: their own rounding yields a bound of 8e-12.
  EXPECT_GT(bound_of_nll({"model.initializer_range=0.0001", "model.logits_scaling=100"}), 0x1p-24);
  // All exponentials are 1 in float32, so the errors of all tokens are equal to each other, and to that of the loss.
  bound_of_nll({"model.initializer_range=0.000001", "model.logits_scaling=1", "training.seq_len=512"});
}

TEST_F(CheckedRun, OfShortDocumentsIsRight) {  // they end inside tiles whose keys all precede the queries
  const Config config = tiny(write_tokens("short.h5", {.documents = 300, .shortest = 2, .longest = 9}),
                             {"mesh.sequence=4", "mesh.layout=contiguous", "training.global_batch_size=2"});
  EXPECT_EQ(wrong(check(config)), "");
}

TEST_F(CheckedRun, OfALaterStepIsRight) {
  CheckOptions options = options_of(ring({}));
  options.train.dump.step = 3;
  EXPECT_EQ(wrong(check_run(options, quiet)), "");
}

TEST_F(CheckedRun, OfWhichAPartIsFrozenIsRight) {
  for (const std::string trainable : {"*.1.mlp.*", "model.norm.weight", "model.embed_tokens.weight"}) {
    const CheckReport report = check(ring({"training.trainable=[\"" + trainable + "\"]"}));
    EXPECT_EQ(wrong(report), "") << trainable;
    const auto compared = [&](const std::string& name) {
      return std::ranges::find(report.tensors, name, &CheckedTensor::name) != report.tensors.end();
    };
    EXPECT_TRUE(compared("layer.0.output")) << trainable;
    EXPECT_EQ(compared("grad.layer.0.output"), trainable == "model.embed_tokens.weight");
    EXPECT_EQ(compared("grad.model.layers.1.mlp.up_proj.weight"), trainable == "*.1.mlp.*");
    EXPECT_EQ(compared("updated.model.norm.weight"), trainable == "model.norm.weight");
  }
}

TEST_F(CheckedRun, OfAdaptersIsRight) {
  run(ring({"training.steps=1"}), "base");
  CheckOptions options =
      options_of(ring({"lora.rank=3", "lora.alpha=6", "lora.targets=[q_proj, k_proj, v_proj, o_proj, down_proj]",
                       "training.trainable=[\"*norm*\"]", "training.shard=weights", "optimizer.lr=0.02"}));
  options.train.start.init_from = at("base");
  options.train.dump.step = 3;  // B is zero before the first
  const CheckReport report = check_run(options, quiet);
  EXPECT_EQ(wrong(report), "");
  std::size_t adapters = 0;
  for (const CheckedTensor& tensor : report.tensors) {
    if (!tensor.name.starts_with("grad.") || tensor.name.find(".lora_") == std::string::npos) continue;
    ++adapters;
    EXPECT_GT(tensor.size, 0) << tensor.name;
    EXPECT_LT(tensor.bound, 1e-6 * tensor.size) << tensor.name;
  }
  EXPECT_EQ(adapters, 2u * 2 * 5);
}

TEST_F(CheckedRun, IsCutByTokensAndLayers) {
  CheckOptions options = options_of(ring({"model.num_hidden_layers=3"}));
  options.tokens = 11;
  options.layers = 1;
  std::vector<std::string> logs;
  const CheckReport report = check_run(options, [&](const std::string& line) { logs.push_back(line); });
  EXPECT_EQ(wrong(report), "");
  EXPECT_EQ(report.cuts, (std::vector<std::string>{"training.seq_len is 11 instead of 37",
                                                   "model.num_hidden_layers is 1 instead of 3"}));
  for (const std::string& line : logs) EXPECT_FALSE(holds(line, report.cuts[0]));  // the report says it, once
  for (const CheckedTensor& tensor : report.tensors) EXPECT_FALSE(holds(tensor.name, "layer.1"));
  EXPECT_FALSE(std::filesystem::exists(at("dump"))) << "a right run leaves nothing";
  EXPECT_FALSE(std::filesystem::exists(at("run")));
  options.tokens = 38;
  expect_error(ExitCode::usage, "--seq-len 38", [&] { check_run(options, quiet); });
}

/// Calls change(file, dataset) for each nonempty part of a dumped tensor, until it returns true.
template <class Change>
bool change_parts(const std::string& dump, const std::string& name, const Change& change) {
  for (const std::string& file : list_directory(dump, ExitCode::data)) {
    if (!rank_of_dump_part(file)) continue;
    File opened = File::open_for_update(dump + "/" + file, ExitCode::data);
    for (const Hdf5Dataset& dataset : read_dataset_list(opened.path(), ExitCode::data).datasets) {
      const bool is_part = dataset.name.starts_with(name + "/") || dataset.name.starts_with(name + "[");
      if (is_part && dataset.count() > 0 && change(opened, dataset)) return true;
    }
  }
  return false;
}

/// Adds to an element of a dumped tensor, in the file.
void add_to(const std::string& dump, const std::string& name, double by) {
  EXPECT_TRUE(change_parts(dump, name,
                           [&](File& file, const Hdf5Dataset& dataset) {
                             const auto add = [&]<class T>() {
                               T value{};
                               const std::int64_t at =
                                   dataset.offset + dataset.count() / 2 * static_cast<std::int64_t>(sizeof(T));
                               file.read_at(at, &value, sizeof(T));
                               value = static_cast<T>(value + by);
                               file.write_at(at, &value, sizeof(T));
                               return true;
                             };
                             return dataset.type == Hdf5Type::int32 ? add.operator()<std::int32_t>()
                                                                    : add.operator()<double>();
                           }))
      << name << " is in no file";
}

TEST_F(CheckedRun, WithFourTimesTheBoundInAnyOneTensorIsWrong) {
  const TrainOptions options = run_of(ring({"training.seq_len=12"}));
  const ringtrain::Run run = prepare_run(options, quiet);
  Launcher threads;
  const StepResult result = dumped_step(run, quiet, threads);
  const std::vector<CheckedTensor> right = check_step(run, DumpReader(at("dump")), result);
  EXPECT_GT(right.size(), 100U);
  for (const CheckedTensor& tensor : right) {
    ASSERT_FALSE(tensor.difference) << tensor.name;
    const bool whole = tensor.name.starts_with("input.");
    const double by = tensor.bound > 0 ? 4 * tensor.bound : whole ? 1 : 1e-15;
    StepResult changed = result;
    const bool number = tensor.name == "loss" || tensor.name == "gradient norm" || tensor.name == "learning rate";
    if (tensor.name == "loss") changed.loss += by;
    if (tensor.name == "gradient norm") changed.grad_norm += by;
    if (tensor.name == "learning rate") changed.lr += by;
    std::filesystem::remove_all(at("changed"));
    std::filesystem::copy(at("dump"), at("changed"));
    if (!number) add_to(at("changed"), tensor.name, by);
    const std::vector<CheckedTensor> found = check_step(run, DumpReader(at("changed")), changed);
    const auto first = std::ranges::find_if(found, [](const CheckedTensor& t) { return t.difference.has_value(); });
    if (first == found.end()) {
      ADD_FAILURE() << tensor.name << " by " << by;
    } else {
      EXPECT_EQ(first->name, tensor.name);
    }
  }
}

/// Multiplies all elements of a dumped tensor, in the files.
void multiply(const std::string& dump, const std::string& name, double by) {
  change_parts(dump, name, [&](File& file, const Hdf5Dataset& dataset) {
    std::vector<float> values(static_cast<std::size_t>(dataset.count()));
    file.read_at(dataset.offset, values.data(), values.size() * sizeof(float));
    for (float& value : values) value = static_cast<float>(value * by);
    file.write_at(dataset.offset, values.data(), values.size() * sizeof(float));
    return false;
  });
}

// One and a half times the mean's allowed error, in every element alike, is less than bfloat16's rounding of each of
// them.
TEST_F(CheckedRun, OfWhichAllElementsOfATensorAreALittleTooLargeIsWrong) {
  const TrainOptions options =
      run_of(ring({"training.dtype=bfloat16", "model.initializer_range=0.1", "training.global_batch_size=16"}));
  const ringtrain::Run run = prepare_run(options, quiet);
  Launcher threads;
  const StepResult result = dumped_step(run, quiet, threads);
  const std::string gradient = "grad.model.layers.1.mlp.up_proj.weight";
  const auto checked = [&](double by) {
    std::filesystem::remove_all(at("changed"));
    std::filesystem::copy(at("dump"), at("changed"));
    multiply(at("changed"), gradient, by);
    CheckReport report;
    report.tensors = check_step(run, DumpReader(at("changed")), result);
    return report;
  };
  const CheckReport right = checked(1);
  EXPECT_EQ(wrong(right), "");
  const auto found = std::ranges::find(right.tensors, gradient, &CheckedTensor::name);
  ASSERT_TRUE(found->mean_bound);
  EXPECT_LT(*found->mean_bound, 0.03);
  for (const double by : {1 - 1.5 * *found->mean_bound, 1 + 1.5 * *found->mean_bound}) {
    const CheckReport report = checked(by);
    ASSERT_NE(report.first(), nullptr);
    EXPECT_EQ(report.first()->name, gradient);
    EXPECT_TRUE(report.first()->difference->of_mean);
    EXPECT_NEAR(report.first()->difference->run, by, *found->mean_bound);
    EXPECT_LT(report.first()->largest, report.first()->bound);
    EXPECT_TRUE(holds(wrong(report), "up_proj.weight differs first, as a whole"));
  }
}

// A model of zeros gives zeros with any kernels.
TEST_F(CheckedRun, OfZerosIsUntested) {
  const Config config = ring({"model.initializer_range=0", "training.steps=2"});
  const CheckReport report = check(config);
  EXPECT_EQ(report.first(), nullptr);
  EXPECT_FALSE(report.right());
  ASSERT_GT(report.untested().size(), 10u);
  EXPECT_EQ(report.untested().front(), "grad.model.embed_tokens.weight");
  EXPECT_TRUE(holds(check_report(report), "untested: grad.model.embed_tokens.weight and "));
  EXPECT_FALSE(holds(check_report(report), "right:"));
  EXPECT_EQ(check_json(report).at("right"), false);
  std::ofstream(at("zeros.yaml")) << to_yaml(config);
  expect_end(run_child("check", {"--config", "zeros.yaml"}, folder), 5);
  const ChildResult trained = run_child("train", {"--config", "zeros.yaml", "--output", "zeros"}, folder);
  EXPECT_TRUE(holds(trained.err, "warning: step 1: the gradient's norm is 0, so nothing is learned"));
  EXPECT_FALSE(holds(trained.err, "warning: step 2")) << "it is said once";
}

// Gradients that must be zero are not gaps: A with a B of zeros, frozen parameters, and scores if each query has only
// one.
TEST_F(CheckedRun, WithGradientsThatMustBeZeroIsRight) {
  run(ring({"training.steps=1"}), "base");
  CheckOptions options = options_of(ring({"lora.rank=2"}));
  options.train.start.init_from = at("base");
  const CheckReport adapters = check_run(options, quiet);
  EXPECT_TRUE(adapters.right()) << check_report(adapters);
  EXPECT_TRUE(check(ring({"model.sliding_window=1"})).right());
  EXPECT_TRUE(check(ring({"training.trainable=[\"model.norm.weight\"]"})).right());
}

TEST_F(CheckedRun, NamesTheFaultItsRankAndBothValues) {
  // One micro-batch per rank, so that the hook runs once.
  const TrainOptions options = run_of(ring({"training.global_batch_size=1"}));
  ringtrain::Run run = prepare_run(options, quiet);
  run.before_forward = [](RankState& state, std::int64_t) { negate_query_row(state, state.rank == 2); };
  Launcher threads;
  CheckReport report;
  const StepResult result = dumped_step(run, quiet, threads);
  report.tensors = check_step(run, DumpReader(at("dump")), result);
  const CheckedTensor* const first = report.first();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->name, "layer.1.query_projection");
  EXPECT_EQ(first->difference->rank, 2);
  EXPECT_EQ(first->difference->location,
            "sequence 0, position 10, column 5");  // rank 2 of a zigzag ring: 10 to 14, ...
  EXPECT_NEAR(first->difference->run, -first->difference->reference, 1e-14);
  EXPECT_TRUE(holds(wrong(report),
                    "wrong: layer.1.query_projection differs first, at sequence 0, position 10, column 5, computed by "
                    "rank 2\n  the run has "));
}

#if RINGTRAIN_MPI
TEST_F(CheckedRun, OfProcessesIsRight) {
  expect_right_by_processes(ring({"mesh.sequence=2", "mesh.data=2", "training.global_batch_size=4"}));
}
#endif

// Without the reference: how the nll of a step changes when one token of its first sequence is replaced.
TEST_F(CheckedRun, ATokenReachesWhatItMayAndNothingElse) {
  for (const std::string mask : {"data.packing=documents", "model.sliding_window=5"}) {
    SCOPED_TRACE(mask);
    const Config config = ring({"mesh.data=2", "mesh.sequence=2", "training.global_batch_size=4", mask});
    ringtrain::Run run = prepare_run(run_of(config), quiet);
    const auto nll = [&] {
      Launcher threads;
      dumped_step(run, quiet, threads);
      const DumpReader dump(at("dump"));
      return dump.read(*dump.find("nll"));
    };
    const std::vector<double> before = nll();
    const reference::Row row = reference_row(run, 1, 0);
    const std::int64_t S = config.training.seq_len;
    std::int64_t position = S / 2;
    while (row.labels[position] < 0) ++position;
    run.before_forward = [&](RankState& state, std::int64_t) {
      if (state.mesh.data_index(state.rank) != 0) return;
      for (std::int64_t t = 0; t < state.batch.T; ++t) {
        if (position_of(state.batch.segments, t) != position) continue;
        state.batch.tokens().as<std::int32_t>()[t] = (row.tokens[position] + 1) % 23;
      }
    };
    const std::vector<double> after = nll();
    // Each of two layers extends a token's reach by window - 1 tokens.
    const std::int64_t end = config.model.sliding_window == 0 ? S : position + 2 * 4 + 1;
    const auto may_reach = [&](std::int64_t i) {
      return i >= position && i < std::min(S, end) &&
             (row.documents.empty() || row.documents[i] == row.documents[position]);
    };
    for (std::int64_t i = 0; i < std::ssize(before); ++i) {
      if (may_reach(i)) continue;
      EXPECT_EQ(before[i], after[i]) << "token " << i % S << " of sequence " << i / S;
    }
    EXPECT_NE(before[position], after[position]);
  }
}

TEST_F(CheckedRun, IsRefusedWithATokensThatFits) {
  const Config config = ring({"training.seq_len=1000"});
  const ReferencePlan plan = plan_reference(config, make_parameter_table(config.model));
  require_reference_fits(config, plan, plan.bytes(1000));
  expect_error(ExitCode::usage, "--seq-len 600, which fits",
               [&] { require_reference_fits(config, plan, plan.bytes(600)); });
  expect_error(ExitCode::usage, "--layers", [&] { require_reference_fits(config, plan, plan.fixed_bytes); });
}

TEST_F(CheckedRun, RoundingHasItsSizeAndItsBfloat16) {
  reference::Vector x(1000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<double>(i);
  reference::Vector changed = x;
  const Rounding rounding(DType::float32, 1);
  rounding(changed, 100, reference::Summing::in_blocks);
  double largest = 0, mean = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(changed[i] / x[i] - 1));
    mean += (changed[i] / x[i] - 1) / 1000;
  }
  EXPECT_LE(largest, 10 * 0x1p-24 * 1.0001);
  EXPECT_GE(largest, 9.9 * 0x1p-24);
  EXPECT_LE(std::abs(mean), 0.6 * 0x1p-24);
  // A long sum: 128 + 16,384 / 128 terms in blocks, or all 16,384 if each is added to the previous sum, as in
  // attention.
  const auto largest_change = [&](reference::Summing summing) {
    reference::Vector long_sums(1000, 1.0);
    for (std::size_t i = 0; i < long_sums.size(); ++i) long_sums[i] += static_cast<double>(i);
    reference::Vector rounded = long_sums;
    rounding(rounded, 16384, summing);
    double change = 0;
    for (std::size_t i = 0; i < rounded.size(); ++i) change = std::max(change, std::abs(rounded[i] / long_sums[i] - 1));
    return change / 0x1p-24;
  };
  EXPECT_NEAR(largest_change(reference::Summing::in_blocks), 16, 0.2);
  EXPECT_NEAR(largest_change(reference::Summing::one_by_one), 128, 1.6);
  EXPECT_EQ(rounded_to_bfloat16(1 + 0x1p-8), 1);
  EXPECT_EQ(rounded_to_bfloat16(1 + 0x1.8p-7), 1 + 0x1p-6);
  EXPECT_EQ(rounded_to_bfloat16(-3.1415926), -3.140625);
}

TEST_F(CheckedRun, FromTheCommandLine) {
  std::ofstream(at("tiny.yaml")) << "model: {vocab_size: 23, hidden_size: 16, num_hidden_layers: 2, "
                                    "num_attention_heads: 2, intermediate_size: 24}\n"
                                    "data: {train: \"" +
                                        data +
                                        "\"}\n"
                                        "mesh: {threads_per_rank: 1, sequence: 2}\n"
                                        "training: {seq_len: 16, global_batch_size: 2, micro_batch_size: 1, steps: 2}\n"
                                        "optimizer: {name: adamw, lr: 1.0e-2}\n";
  const ChildResult right =
      run_child("check", {"--config", at("tiny.yaml"), "--seq-len", "9", "--output", at("found.json")}, folder);
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_TRUE(holds(right.out, "right: all 125 tensors are within their bounds"));
  EXPECT_TRUE(holds(right.out, "shortened for this check: training.seq_len is 9 instead of 16"));
  const auto json = nlohmann::json::parse(content_of(at("found.json")));
  EXPECT_EQ(json.at("written_by"), "ringtrain check");
  EXPECT_EQ(json.at("right"), true);
  EXPECT_EQ(json.at("tensors").size(), 125U);
  EXPECT_FALSE(std::filesystem::exists(at("tiny.check"))) << "nothing is left but what was asked for";
  const ChildResult kept =
      run_child("check", {"--config", at("tiny.yaml"), "--keep", "--dump", at("kept"), "--steps", "2"}, folder);
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_TRUE(std::filesystem::exists(at("kept/index.json")));
  // An empty folder of the user remains, a killed writer's leftovers are removed, and the current folder is not needed.
  std::filesystem::create_directories(at("mine"));
  std::ofstream(at("mine/index.json.partial-12-0123abcd")) << "{";
  std::ofstream(at("mine/.writable-0123ab")).close();
  std::ofstream(at("tiny.check.run")) << "not a folder of a run";
  const ChildResult mine = run_child("check", {"--config", at("tiny.yaml"), "--dump", at("mine")}, folder);
  EXPECT_EQ(mine.code, 0) << mine.err;
  EXPECT_TRUE(std::filesystem::is_empty(at("mine")));
  const ChildResult former = run_child("check", {"--config", at("tiny.yaml"), "--tokens=17"}, folder);
  EXPECT_EQ(former.code, 2);
  EXPECT_TRUE(former.err.starts_with(
      "check: --tokens is called --seq-len now; the old name works until version 0.3\ncheck: --seq-len 17"))
      << former.err;
  EXPECT_EQ(run_child("check", {"--config", at("tiny.yaml"), "--steps", "3"}, folder).code, 2);
  EXPECT_EQ(run_child("check", {}, folder).code, 2);
}

// The embedding, about 6e37, is finite in float32, but sums of a logit are not: float64 is correct, float32 is wrong.
TEST_F(CheckedRun, OfTheProgramThatIsWrongEndsWith5AndSaysSoInJson) {
  const Config config = ring({"training.steps=1", "training.global_batch_size=1", "optimizer.lr=0"});
  std::ofstream(at("tiny.yaml")) << to_yaml(config);
  TrainOptions options;
  options.config = config;
  options.output = at("base");
  ringtrain::Run run = prepare_run(options, quiet);
  run.before_forward = [](RankState& state, std::int64_t) {
    const WeightsGuard weights(state.parameters, 0);
    const TensorView embedding = state.parameters.weight(0);
    for (std::int64_t i = 0; i < embedding.numel(); ++i) embedding.as<double>()[i] *= 3e39;
  };
  ASSERT_EQ(train(run, quiet), ExitCode::done);
  const std::vector<std::string> arguments{"--config", at("tiny.yaml"), "--init-from", at("base"),
                                           "--dump",   at("kept"),      "--output",    at("found.json")};
  const ChildResult right = run_child("check", arguments, folder);
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_FALSE(std::filesystem::exists(at("kept")));
  std::vector<std::string> in_float32 = arguments;
  in_float32.insert(in_float32.end(), {"--set", "training.dtype=float32"});
  const ChildResult wrong = run_child("check", in_float32, folder);
  EXPECT_EQ(wrong.code, 5) << wrong.out << wrong.err;
  EXPECT_TRUE(std::regex_search(
      wrong.out,
      std::regex("wrong: nll differs first, at sequence 0, position [0-9]+, computed by rank [0-3]\n  the run has ")))
      << wrong.out;
  const auto json = nlohmann::json::parse(content_of(at("found.json")));
  EXPECT_EQ(json.at("right"), false);
  EXPECT_EQ(json.at("first_departure"), "nll");
  EXPECT_EQ(json.at("dump"), at("kept"));
  EXPECT_TRUE(std::filesystem::exists(at("kept/index.json"))) << "the step of a wrong run stays";
  const ChildResult refused =
      run_child("check", {"--config", at("tiny.yaml"), "--set", "training.seq_len=1000000000"}, folder);
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_TRUE(std::regex_search(refused.err, std::regex("this machine has .* left; use --seq-len [0-9]+, which fits")))
      << refused.err;
}

}  // namespace
}  // namespace ringtrain::testing
