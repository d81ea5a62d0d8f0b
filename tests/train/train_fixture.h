// What the train tests share: token files of seeded text, a tiny config in YAML, whole runs inside this process, and
// their outputs: metrics and state.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "framework/dump/dump_comparison.h"
#include "framework/dump/dump_reader.h"
#include "framework/error.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"
#include "tests/support/wait_until.h"
#include "train/checkpoint/checkpoint_manifest.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/generation/checkpoint_generation.h"
#include "train/trainer.h"

namespace ringtrain::testing {

/// The properties of a test's token file.
struct TextPlan {
  std::int64_t vocab_size = 23;
  std::int64_t documents = 60;
  std::int64_t shortest = 30, longest = 120;  // tokens of a document, including its end
  std::int64_t validation_documents = 0;
  bool weights = false;  // if true, about half of the tokens have a weight of 0
  std::uint64_t seed = 1;
};

/// A text with a validation part: half of its 60 documents, of up to 200 tokens.
inline const TextPlan split_text{.longest = 200, .validation_documents = 30};

/// Returns the content of a file.
std::string content_of(const std::string& path);
/// Changes a bit of a byte of a file; a negative byte counts from its end.
void flip_bit(const std::string& path, std::int64_t byte, int bit = 0);
/// Writes a manifest that fits the files of a checkpoint's folder, after the change.
void seal_checkpoint(
    const std::string& path, const std::function<void(CheckpointManifest&)>& change = [](CheckpointManifest&) {});

class TrainTest : public FolderTest {
 protected:
  /// Writes a token file of text, two bytes per token, in which a token mostly follows from the previous one. Returns
  /// its path.
  std::string write_tokens(const std::string& name, const TextPlan& plan) const;
  /// Writes a token file of one document, whose last token is its end. Returns its path.
  std::string write_document(const std::string& name, std::int64_t vocab_size,
                             const std::vector<std::int32_t>& tokens) const;
  /// Returns the tiny config (double, llama, 24 sequences of 37 tokens per step, 30 steps, clipped at nearly every one)
  /// after the settings.
  Config tiny(const std::string& data, const std::vector<std::string>& settings = {}) const;

  /// Returns when a Child of this folder has written the words to its stderr.
  void wait_for_words(const std::string& words) const {
    ASSERT_TRUE(wait_until([&] { return content_of(at("stderr.txt")).find(words) != std::string::npos; })) << words;
  }

  struct Outcome {
    ExitCode code = ExitCode::done;
    std::vector<std::string> logs;
    std::string logged(const std::string& part) const;  // the first log that contains part, "" if none does
  };
  /// Returns the request of --init-from PATH and --resume [PATH].
  static StartRequest from(const std::string& path) { return {.init_from = path}; }
  static StartRequest resumed(const std::string& path = "") { return {.resume = true, .resume_path = path}; }
  /// Runs a training into the folder with this name.
  Outcome run(const Config& config, const std::string& output, const StartRequest& start = {},
              std::int64_t stop_after = 0) const;
  /// Runs a training in which every rank calls `before_forward` in each step.
  using Hook = std::function<void(RankState& state, std::int64_t step)>;
  Outcome run_with(const TrainOptions& options, const Hook& before_forward = {}) const;
  /// Runs a training into NAME and dumps one step into NAME.dump. Returns the dump's path.
  std::string run_dumped(const Config& config, const std::string& name, std::int64_t step,
                         const Hook& before_forward = {}) const;
  /// Returns the options for an evaluation of the newest checkpoint of a run.
  EvaluationOptions evaluation_of(const std::string& output, const std::string& data,
                                  const EvaluationRequest& request) const {
    EvaluationOptions options;
    options.checkpoint = at(output);
    options.data = data;
    options.request = request;
    return options;
  }
  /// Writes a config file for the programs.
  void write_config(const Config& config, const std::string& name = "run.yaml") const;
  /// Returns the objects of this kind in a run's metrics.jsonl.
  std::vector<nlohmann::json> metrics(const std::string& output, const std::string& kind = "train") const;
  std::vector<double> losses(const std::string& output) const { return numbers(output, "loss"); }
  /// Returns a field of every step, and its samples.
  std::vector<double> numbers(const std::string& output, const std::string& field) const;
  std::vector<std::vector<std::int64_t>> samples(const std::string& output) const;
  /// Returns all tensors of a checkpoint's state, flattened and joined from all its files, as double.
  std::map<std::string, std::vector<double>> state(const std::string& checkpoint) const;
  std::string checkpoint(const std::string& output, std::int64_t step) const;
  std::int64_t last_step(const std::string& output) const;   // of its metrics
  std::int64_t saved_step(const std::string& output) const;  // of its newest checkpoint, which must be complete
  std::vector<std::int64_t> saved_steps(const std::string& output) const;
  /// Returns the lines of a run's evaluations, without their times.
  std::vector<nlohmann::json> evaluations(const std::string& output) const;
  /// Expects two runs to have the same losses, and the same state after the last step: the same bits (and samples), or
  /// the same numbers to rounding.
  void expect_same_bits(const std::string& found, const std::string& reference) const;
  void expect_same_numbers(const std::string& found, const std::string& reference, double tolerance = 1e-9) const;
  /// Expects a run that stops after each of these steps and is resumed ("parts") to equal the uninterrupted one
  /// ("whole").
  void expect_resumes(const Config& config, const std::vector<std::int64_t>& stops,
                      const std::string& prefix = "") const;
  /// Expects the peaks by tag that a run measured to equal those of its plan, to the byte.
  void expect_planned_peaks(const std::string& output, const Config& config) const;
  /// Returns the path of a rank's file of a checkpoint.
  static std::string state_file(const std::string& checkpoint, int rank = 0, int ranks = 1);
};

/// A test with a token file, text.h5.
class TextTest : public TrainTest {
 protected:
  explicit TextTest(const TextPlan& plan = {}) : plan_(plan) {}
  void SetUp() override {
    TrainTest::SetUp();
    data = write_tokens("text.h5", plan_);
  }
  std::string data;

 private:
  TextPlan plan_;
};
/// A test whose text.h5 has a validation part.
class SplitTextTest : public TextTest {
 protected:
  SplitTextTest() : TextTest(split_text) {}
};

/// A log that discards its lines.
inline void quiet(const std::string& /*line*/) {}
/// Negates row 5 of the second layer's query projection on this rank, or does nothing: a fault that no dump can notice,
/// as if that product were computed incorrectly. Communicates: all ranks make this call.
void negate_query_row(RankState& state, bool here);
/// Returns the settings or arguments of the first list, followed by those of the other.
std::vector<std::string> joined(std::vector<std::string> one, const std::vector<std::string>& other);
/// Returns the settings of a mesh.
std::vector<std::string> mesh_of(std::int64_t data, std::int64_t sequence);

/// evaluate_checkpoint(), and the text of generate_from_checkpoint(), with ranks that are threads.
EvaluationSummary evaluate_on_threads(const EvaluationOptions& options);
std::string generated_text(const GenerationOptions& options, GenerationSummary* summary = nullptr);

/// Expects two dumps to agree, to the tolerance of their types unless another one is given. Returns the comparison.
DumpComparison expect_dumps_agree(const std::string& found, const std::string& reference,
                                  std::optional<Tolerance> tolerance = {});
/// Expects each number to equal the reference's to tolerance * |reference|.
void expect_close(const std::vector<double>& found, const std::vector<double>& reference, double tolerance);
/// Returns max |a - b| / max |b|.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b);
/// Expects all tensors whose name starts with prefix to agree to tolerance * max |reference| each; prints the actual
/// differences.
void expect_same_state(const std::map<std::string, std::vector<double>>& found,
                       const std::map<std::string, std::vector<double>>& reference, const std::string& prefix,
                       double tolerance);

}  // namespace ringtrain::testing
