// A run with metrics.tensorboard: its event file holds every number of metrics.jsonl, also after a kill and a resume
// that made steps again, by our reader and by TensorBoard's own; MFU is what the formula says.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "data/token_file.h"
#include "tests/support/paths.h"
#include "tests/support/wait_until.h"
#include "tests/train/child_process.h"
#include "tests/train/event_reader.h"
#include "tests/train/faulty_disk.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

class TensorBoardRun : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    ran("prepare", {"--synthetic", "recall", "--documents", "40", "--length", "400", "--output", "corpus.h5"});
  }
  /// Returns the arguments of a run with these settings.
  static std::vector<std::string> train_arguments(const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{"--config", source_folder() + "/configs/tiny.yaml", "--output", "run"};
    for (const std::string& one : settings) arguments.insert(arguments.end(), {"--set", one});
    return joined(arguments, {"--set", "metrics.tensorboard=true"});
  }
  /// Returns what a program that ends well says.
  std::string ran(const std::string& program, const std::vector<std::string>& arguments) const {
    const ChildResult result = run_child(program, arguments, folder);
    expect_end(result, 0);
    return result.err;
  }
  Scalars events() const {
    double time = 0;
    return read_events(content_of(at("run/events.out.tfevents.0.ringtrain")), &time);
  }
  /// Returns how many pairs of windows of `length` tokens are of one document, the key not after the query: each is
  /// looked at.
  double visible_pairs(const std::vector<std::int64_t>& windows, std::int64_t length) const {
    const auto file = TokenFile::open(at("corpus.h5"));
    const auto offsets = file->document_offsets();
    const auto document = [&](std::int64_t token) {
      std::int64_t index = 0;
      while (offsets[index + 1] <= token) ++index;
      return index;
    };
    double pairs = 0;
    for (const std::int64_t window : windows) {
      for (std::int64_t query = window * length; query < (window + 1) * length; ++query) {
        for (std::int64_t key = window * length; key <= query; ++key) pairs += document(query) == document(key) ? 1 : 0;
      }
    }
    return pairs;
  }
  void expect_equal(std::size_t steps) const {
    const Scalars scalars = events();
    std::size_t found = 0, trained = 0;
    for (const json& line : metrics("run")) {
      ++trained;
      for (const auto& [key, value] : line.items()) {
        if (key == "step" || !value.is_number()) continue;
        ++found;
        EXPECT_EQ(scalars.at({"train/" + key, line.at("step").get<std::uint64_t>()}), value.get<float>()) << key;
      }
    }
    EXPECT_EQ(trained, steps);
    EXPECT_EQ(scalars.size(), found);
  }
};

TEST_F(TensorBoardRun, HoldsWhatTheMetricsHoldAlsoAfterAResume) {
  const auto arguments = train_arguments({"metrics.peak_flops=2e9", "training.steps=30", "mesh.sequence=2"});
  const std::string told = ran("train", joined(arguments, {"--stop-after", "24"}));
  expect_equal(24);
  EXPECT_TRUE(metrics("run")[22].contains("loss_z"));  // after the 20th step
  EXPECT_FALSE(metrics("run")[10].contains("loss_z"));
  EXPECT_TRUE(metrics("run")[22].contains("grad_norm_z"));
  // As if the process had been killed after step 24, before its last save: steps 21 to 24 are made again.
  std::filesystem::remove_all(at("run/checkpoints/step-00000024"));
  ran("train", joined(arguments, {"--resume"}));
  expect_equal(30);
  const json last = metrics("run").back();
  const double pairs = visible_pairs(last.at("samples"), 64);
  EXPECT_LT(pairs, 24 * 64 * 65 / 2);  // some windows have the end of a document within
  EXPECT_EQ(last.at("visible_pairs").get<double>(), pairs);
  const double parameters = 26816, flops = 6 * parameters * 24 * 64 + 12 * 2 * 32 * pairs;
  EXPECT_NEAR(last.at("mfu").get<double>(), flops / last.at("seconds").get<double>() / (2 * 2e9), 1e-4);
  EXPECT_TRUE(holds(told, "mfu: 6 N FLOPs a token and 12 L C a visible pair"));
}

TEST_F(TensorBoardRun, MfuOfWhatIsFrozenIsThePlans) {
  const std::string told =
      ran("train",
          train_arguments({"metrics.peak_flops=2e9", "training.steps=3", "training.trainable=[model.layers.1.*]"}));
  const json last = metrics("run").back();
  const double pairs = last.at("visible_pairs").get<double>();
  const double of_a_token = 2 * (26816 + (9280 + 32 + 257 * 32) + 9280);
  const double flops = of_a_token * 24 * 64 + 4 * (2 + 2 * 1) * 32 * pairs;
  EXPECT_NEAR(last.at("mfu").get<double>(), flops / last.at("seconds").get<double>() / 2e9, 1e-4);
  EXPECT_TRUE(holds_all(told, {"mfu: 2 (N + N_b + N_t) FLOPs a token and 4 (L + 2 L_b) C a visible pair",
                               "N = 26816, N_b = 17536, N_t = 9280, L_b = 1"}));
}

TEST_F(TensorBoardRun, HoldsAllAfterADiskThatWasFullForAWhile) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  const auto arguments = train_arguments({"training.steps=6", "checkpoint.on_failure=warn", "checkpoint.interval=0"});
  std::string told;
  for (const char* call : {"3", "5", "8"}) {  // the file is opened, and begun; then a call for each step
    std::filesystem::remove_all(at("run"));
    const FaultyDisk full({{"PATH", "run/events.out"}, {"AT", call}, {"ERROR", "28"}});
    told += ran("train", arguments);
    expect_equal(6);
  }
  EXPECT_TRUE(holds(told, "the lines that waited are written"));
}

/// Returns a Python that has TensorBoard; "" if there is none.
std::string python_with_tensorboard() {
  const char* const named = std::getenv("RINGTRAIN_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  return std::system(("'" + python + "' -c 'import tensorboard' >/dev/null 2>&1").c_str()) == 0 ? python : "";
}

TEST_F(TensorBoardRun, TensorBoardReadsTheMetricsAlsoAfterAKill) {
  const std::string python = python_with_tensorboard();
  if (python.empty()) GTEST_SKIP() << "no Python with tensorboard: name one in RINGTRAIN_PYTHON";
  const auto arguments = train_arguments({"training.steps=100000", "mesh.sequence=2", "checkpoint.interval=10",
                                          "evaluation.interval=7", "evaluation.target_blocks=2"});
  Child child("train", arguments, folder);
  const auto written = [&] {
    const std::string text = content_of(at("run/metrics.jsonl"));
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_TRUE(wait_until([&] { return written() >= 28; }));
  ::kill(child.id(), SIGKILL);
  child.wait();
  const auto killed = written();
  ASSERT_GE(killed, 28);
  ran("train", joined(arguments, {"--resume", "--stop-after", std::to_string(killed + 5)}));

  const std::string command = "'" + python + "' '" + source_folder() + "/tests/train/event_accumulator.py' '" +
                              at("run") + "' >'" + at("events.json") + "'";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const json events = json::parse(content_of(at("events.json")));
  std::map<std::string, std::map<std::int64_t, double>> expected;
  std::ifstream lines(at("run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    for (const auto& [tag, value] : scalars_of(line).values) {
      expected[tag][json::parse(line).at("step")] = static_cast<double>(static_cast<float>(value));
    }
  }
  EXPECT_EQ(expected.at("train/loss").rbegin()->first, killed + 5);
  EXPECT_EQ(events.size(), expected.size());
  for (const auto& [tag, values] : expected) {
    const json& found = events.at(tag);
    EXPECT_EQ(found.size(), values.size()) << tag;  // each step once, though some were made twice
    for (const json& event : found) EXPECT_EQ(event.at(1).get<double>(), values.at(event.at(0))) << tag;
  }
  for (const char* tag : {"train/loss", "train/grad_norm", "train/lr", "train/seconds"}) {
    EXPECT_EQ(expected.at(tag).size(), static_cast<std::size_t>(killed + 5)) << tag;
  }
  EXPECT_TRUE(expected.contains("evaluation/nll/16"));
}

}  // namespace
}  // namespace ringtrain::testing
