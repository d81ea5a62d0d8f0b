// What the train tests share: token files of seeded text, a tiny config in YAML, whole runs inside
// this process, and what they left: metrics and state.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "framework/error.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"
#include "tests/support/wait_until.h"
#include "train/engine/rank_state.h"
#include "train/trainer.h"

namespace ringtrain::testing {

/// What a test's token file is made of.
struct TextPlan {
  std::int64_t vocab_size = 23;
  std::int64_t documents = 60;
  std::int64_t shortest = 30, longest = 120;  // tokens of a document, its end included
  std::int64_t validation_documents = 0;
  bool weights = false;  // then about half of the tokens have a weight of 0
  std::uint64_t seed = 1;
};

/// Returns everything in a file.
std::string content_of(const std::string& path);

class TrainTest : public FolderTest {
 protected:
  /// Writes a token file of text, two bytes a token, in which a token mostly follows from the one before it. Returns
  /// its path.
  std::string write_tokens(const std::string& name, const TextPlan& plan) const;
  /// Writes text.h5 with a validation part: half of its 60 documents, of up to 200 tokens. Returns its path.
  std::string write_split_tokens() const {
    return write_tokens("text.h5", {.longest = 200, .validation_documents = 30});
  }
  /// Writes a token file of one document, the last of whose tokens is its end. Returns its path.
  std::string write_document(const std::string& name, std::int64_t vocab_size,
                             const std::vector<std::int32_t>& tokens) const;
  /// Returns the tiny config (double, llama, 24 sequences of 37 tokens a step, 30 steps,
  /// clipped at nearly every one) after the settings.
  Config tiny(const std::string& data, const std::vector<std::string>& settings = {}) const;

  /// Returns once a Child of this folder has written the words to its stderr.
  void wait_for_words(const std::string& words) const {
    ASSERT_TRUE(wait_until([&] { return content_of(at("stderr.txt")).find(words) != std::string::npos; })) << words;
  }

  struct Outcome {
    ExitCode code = ExitCode::done;
    std::vector<std::string> logs;
    std::string logged(const std::string& part) const;  // the first log that holds part, "" if none does
  };
  /// Returns what --init-from PATH and --resume ask for.
  static StartRequest from(const std::string& path);
  static StartRequest resumed();
  /// Runs a training into the folder of this name.
  Outcome run(const Config& config, const std::string& output, const StartRequest& start = {},
              std::int64_t stop_after = 0) const;
  /// Returns the objects of a run's metrics.jsonl of this kind.
  std::vector<nlohmann::json> metrics(const std::string& output, const std::string& kind = "train") const;
  std::vector<double> losses(const std::string& output) const { return numbers(output, "loss"); }
  /// Returns a field of every step.
  std::vector<double> numbers(const std::string& output, const std::string& field) const;
  /// Returns all tensors of a checkpoint's state, flattened and put together from all its files, as double.
  std::map<std::string, std::vector<double>> state(const std::string& checkpoint) const;
  std::string checkpoint(const std::string& output, std::int64_t step) const;
  /// Returns the path of a rank's file of a checkpoint.
  static std::string state_file(const std::string& checkpoint, int rank = 0, int ranks = 1);
};

/// Returns max |a - b| / max |b|.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b);
/// Expects all tensors whose name starts with prefix to agree to tolerance * max |reference| each; prints what was
/// reached.
void expect_same_state(const std::map<std::string, std::vector<double>>& found,
                       const std::map<std::string, std::vector<double>>& reference, const std::string& prefix,
                       double tolerance);

}  // namespace ringtrain::testing
