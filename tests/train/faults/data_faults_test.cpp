// Token files that change while a run reads them: whichever rank notices it, all end together with its error, and a
// save in progress is completed.
#include "data/token_manifest.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"

namespace ringtrain::testing {
namespace {

thread_local bool changed_here = false;  // what the rank of this thread notices

/// A token file that some ranks see as changed.
class ChangedFile final : public TokenFile {
 public:
  explicit ChangedFile(std::unique_ptr<TokenFile> file) : file_(std::move(file)) {}
  const std::string& path() const override { return file_->path(); }
  std::int64_t vocab_size() const override { return file_->vocab_size(); }
  std::int32_t end_of_document() const override { return file_->end_of_document(); }
  const std::string& tokenizer_hash() const override { return file_->tokenizer_hash(); }
  double bytes_per_token(std::int64_t document) const override { return file_->bytes_per_token(document); }
  std::int64_t token_count() const override { return file_->token_count(); }
  bool has_weights() const override { return file_->has_weights(); }
  std::span<const std::int64_t> document_offsets() const override { return file_->document_offsets(); }
  std::int64_t first_validation_document() const override { return file_->first_validation_document(); }
  const std::string& hash() const override { return file_->hash(); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    if (changed_here) fail(ExitCode::data, "{} was changed while it was in use", path());
    file_->read(begin, out);
  }
  void read_weights(std::int64_t begin, std::span<float> out) const override { file_->read_weights(begin, out); }

 private:
  std::unique_ptr<TokenFile> file_;
};

class DataFaults : public TextTest, public ::testing::WithParamInterface<int> {
 protected:
  DataFaults() : TextTest({.documents = 90, .longest = 200, .validation_documents = 30}) {}
  Config config(const std::vector<std::string>& more = {}) const {
    return tiny(data, joined({"training.global_batch_size=4", "training.steps=9", "mesh.data=2", "mesh.sequence=2",
                              "checkpoint.keep=20"},
                             more));
  }
  /// Trains; after the batches of `step` are loaded, one rank notices that the file has changed. Returns the error's
  /// message.
  std::string run_until_changed(const Config& settings, const std::string& output, std::int64_t step) const {
    ringtrain::Run prepared = prepare_run({.config = settings, .output = at(output)}, quiet);
    prepared.corpus.files[0] = std::make_unique<ChangedFile>(std::move(prepared.corpus.files[0]));
    prepared.before_forward = [rank = GetParam(), step](RankState& state, std::int64_t now) {
      if (state.rank == rank && now == step) changed_here = true;
    };
    return error_of(ExitCode::data, [&] { train(prepared, quiet); });
  }
};

TEST_P(DataFaults, OfOneRankEndAllTogetherAfterTheSaveUnderWay) {
  run(config(), "whole");
  // The save of step 4 begins at its end, and no later step could wait for it.
  const Config settings = config({"checkpoint.interval=4"});
  EXPECT_TRUE(holds_all(run_until_changed(settings, "run", 4),
                        {"text.h5 was changed while it was in use", "the last checkpoint, of step 4, is intact"}));
  EXPECT_EQ(numbers("run", "step"), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(saved_step("run"), 4);
  run(settings, "run", resumed());
  expect_same_bits("run", "whole");
}

TEST_P(DataFaults, InAnEvaluationDoTheSame) {
  const Config settings =
      config({"checkpoint.interval=2", "evaluation.interval=3", "evaluation.context_lengths=[16,32]",
              "evaluation.target_tokens=8", "evaluation.target_blocks=5"});
  EXPECT_TRUE(holds(run_until_changed(settings, "run", 3),
                    "text.h5 was changed while it was in use; the last checkpoint, of step 2, is intact"));
  EXPECT_EQ(saved_step("run"), 2);
}

TEST_P(DataFaults, BeforeAnySaveSayThatNothingWasSaved) {
  EXPECT_TRUE(holds(run_until_changed(config(), "run", 1), "nothing was saved yet"));
}

INSTANTIATE_TEST_SUITE_P(OfFour, DataFaults, ::testing::Values(0, 3),
                         [](const auto& one) { return "OnRank" + std::to_string(one.param); });

using FileOfARun = TextTest;

TEST_F(FileOfARun, ThatIsOverwrittenInPlaceEndsItWithTheLastCheckpointIntact) {
  const std::int64_t offset = find_dataset(read_manifest(data).datasets, "tokens")->offset;
  const Config config = tiny(data, {"training.global_batch_size=4", "training.steps=9", "mesh.data=2",
                                    "checkpoint.interval=2", "checkpoint.keep=20"});
  const auto overwrite = [&](RankState& state, std::int64_t step) {
    const std::uint16_t beyond_the_vocabulary = 300;
    if (state.rank == 1 && step == 4) {
      File::open_for_update(data, ExitCode::data).write_at(offset, &beyond_the_vocabulary, 2);
    }
  };
  const TrainOptions options{.config = config, .output = at("run")};
  expect_error_holding(ExitCode::data, {"was changed while it was in use", "is intact"},
                       [&] { run_with(options, overwrite); });
  EXPECT_EQ(saved_step("run"), 4);
}

}  // namespace
}  // namespace ringtrain::testing
