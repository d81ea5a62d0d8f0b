// Documents that are longer than a window (data.longer), in whole runs: the resulting windows, the first lines and the
// config.yaml, what counts as work, and the rule with which a run continues.
#include <fstream>
#include <numeric>
#include <regex>

#include "data/token_file_writer.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class LongDocumentRuns : public TrainTest {
 protected:
  /// Writes a token file of documents with this many tokens. Returns its path.
  std::string write_documents(const std::string& name, const std::vector<std::int64_t>& lengths, bool weights) const {
    TokenFilePlan plan;
    plan.vocab_size = 23;
    plan.tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    plan.documents = plan.first_validation_document = std::ssize(lengths);
    plan.weights = weights;
    TokenFileWriter writer(at(name), plan);
    for (const std::int64_t length : lengths) {
      std::vector<std::int32_t> text(static_cast<std::size_t>(length - 1));
      for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(i * 7 % 22);
      writer.append(text, std::vector<float>(weights ? text.size() : 0, 1.0F));
      writer.end_document();
    }
    writer.finish();
    return at(name);
  }
  /// Returns a config of windows of 64 tokens, all of which form one step.
  Config config(const std::string& path, int windows, const std::vector<std::string>& more = {}) const {
    return tiny(path, joined({"data.packing=whole", "training.seq_len=64", "training.steps=2", "metrics.peak_flops=1e9",
                              fmt::format("training.global_batch_size={}", windows)},
                             more));
  }
  /// Removes a pattern from a text file, as if a version that did not know it had written the file.
  static void remove_from(const std::string& path, const std::string& pattern) {
    const std::string text = content_of(path), without = std::regex_replace(text, std::regex(pattern), "");
    ASSERT_NE(text, without);
    std::ofstream(path, std::ios::binary) << without;
  }
  /// Makes a run, stopped after a step, look as if a version without the key had made it.
  void make_old(const std::string& output, std::int64_t step) const {
    const std::string line = "  longer: [^\n]*\n", saved = checkpoint(output, step);
    remove_from(at(output) + "/config.yaml", line);
    remove_from(saved + "/config.yaml", line);
    seal_checkpoint(saved);
  }
};

// A conversation of 148 tokens and one of 25, in windows of 64: 64 + 64 + 20 tokens of the first, followed by the
// second. n tokens of a document have n (n + 1) / 2 pairs. Padding does not count as work.
TEST_F(LongDocumentRuns, LeaveTheWindowsAndTheWorkOfTheirRule) {
  struct Rule {
    std::string name, logged;
    int windows;
    double tokens, pairs;
  };
  for (const Rule& rule : {Rule{"cut",
                                "3 windows of 64 tokens, 90.1% full; documents of more than 64 tokens: 1 of 2, each "
                                "cut into several windows (data.longer: cut)",
                                3, 173, 2080 + 2080 + 210 + 325},
                           Rule{"truncate",
                                "2 windows of 64 tokens, 69.5% full; documents of more than 64 tokens: 1 of 2, 84 "
                                "tokens left out (data.longer: truncate)",
                                2, 89, 2080 + 325},
                           Rule{"drop",
                                "1 window of 64 tokens, 39.1% full; documents of more than 64 tokens: 1 of 2, 148 "
                                "tokens left out (data.longer: drop)",
                                1, 25, 325}}) {
    SCOPED_TRACE(rule.name);
    const std::string path = write_documents(rule.name + ".h5", {148, 25}, true);
    for (const bool ring : {false, true}) {
      const std::string output = rule.name + (ring ? "-ring" : "");
      const Outcome outcome =
          run(config(path, rule.windows, joined({"data.longer=" + rule.name}, mesh_of(1, ring ? 3 : 1))), output);
      EXPECT_EQ(outcome.logged(" of 64 tokens"), path + ": " + rule.logged);
      for (const nlohmann::json& line : metrics(output)) {
        EXPECT_EQ(line.at("visible_pairs").get<double>(), rule.pairs);
        const double parameters = 2 * (768 + 1152 + 2 * 16) + 16 + 23 * 16;
        const double flops = 6 * parameters * rule.tokens + 12 * 2 * 16 * rule.pairs;
        const double mfu = flops / line.at("seconds").get<double>() / (1e9 * (ring ? 3 : 1));
        EXPECT_NEAR(line.at("mfu").get<double>(), mfu, 1e-3 * mfu);
        EXPECT_EQ(line.at("tokens").get<std::int64_t>(), line.at("step").get<std::int64_t>() * rule.windows * 64);
      }
    }
  }
  const std::string fits = write_documents("fits.h5", {64, 20, 25}, true);
  EXPECT_EQ(run(config(fits, 2), "fits").logged("windows of"),
            fits + ": 2 windows of 64 tokens with whole documents, 85.2% full");
  expect_error_holding(ExitCode::data, {"long.h5", "more than training.seq_len = 64 tokens", "data.longer truncate"},
                       [&] {
                         run(config(write_documents("long.h5", {65, 148}, false), 1, {"data.longer=drop"}), "none");
                       });
}

TEST_F(LongDocumentRuns, AreTruncatedByDefaultWhereAFileHasWeights) {
  const std::string plain = write_documents("plain.h5", {148, 25}, false),
                    weighted = write_documents("weighted.h5", {148, 25}, true);
  const auto rule_of = [&](const std::string& name, const Config& config) {
    EXPECT_EQ(run(config, name).code, ExitCode::done);
    std::smatch found;
    const std::string text = content_of(at(name) + "/config.yaml");
    return std::regex_search(text, found, std::regex("longer: ([a-z]+)")) ? found[1].str() : "none";
  };
  EXPECT_EQ(rule_of("plain", config(plain, 3)), "cut");
  EXPECT_EQ(rule_of("weighted", config(weighted, 2)), "truncate");
  EXPECT_EQ(rule_of("both", config(plain, 2, {fmt::format("data.train=[{}, {}]", plain, weighted)})), "truncate");
  EXPECT_EQ(rule_of("given", config(weighted, 3, {"data.longer=cut"})), "cut");
  EXPECT_EQ(rule_of("documents", config(weighted, 2, {"data.packing=documents"})), "cut");
  expect_error_holding(ExitCode::usage, {"data.longer=drop: needs data.packing whole"}, [&] {
    config(weighted, 2, {"data.packing=documents", "data.longer=drop"});
  });
}

// A rule is chosen once: with any version, a run continues with its original rule.
TEST_F(LongDocumentRuns, GoOnByTheRuleOfTheRun) {
  const std::string path = write_documents("chats.h5", {148, 25, 70, 20, 33, 90}, true);
  for (const bool old : {false, true}) {
    SCOPED_TRACE(old);
    const std::string rule = old ? "cut" : "truncate", name = "run-" + rule;
    const Config asked = config(path, 2, {"training.steps=4"});
    const Config whole = config(path, 2, {"training.steps=4", "data.longer=" + rule});
    run(whole, name + "-whole");
    run(whole, name, {}, 2);
    if (old) make_old(name, 2);
    fs::copy(at(name), at(name + "-copy"), fs::copy_options::recursive);
    expect_error_holding(ExitCode::checkpoint, {"data.longer was " + rule + " and is now drop; restore"}, [&] {
      run(config(path, 2, {"training.steps=4", "data.longer=drop"}), name, resumed());
    });
    run(asked, name, resumed());
    expect_same_bits(name, name + "-whole");
    for (const std::string& from : {name + "-copy", name + "-copy/checkpoints/step-00000002"}) {
      const std::string to = name + (from.ends_with("copy") ? "-1" : "-2");
      run(asked, to, resumed(at(from)));
      EXPECT_EQ(state(checkpoint(to, 4)), state(checkpoint(name + "-whole", 4))) << to;
    }
    // The data's hash includes the rule, except cut: both kinds of runs know the data on which they trained.
    EXPECT_EQ(evaluate_on_threads(evaluation_of(name, path, {{16, 32}, 8, 4})).targets.request.trained_on, true);
  }
  // A run that saved nothing is restarted by the same command.
  const Config asked = config(path, 2, {"training.steps=4", "checkpoint.interval=0"});
  run(asked, "again", {}, 2);
  fs::remove_all(checkpoint("again", 2));
  std::ofstream(at("again/checkpoints/nothing-saved-yet")).close();
  run(asked, "again");
  expect_same_bits("again", "run-truncate-whole");
}

}  // namespace
}  // namespace ringtrain::testing
