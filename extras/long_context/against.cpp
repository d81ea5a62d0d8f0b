// The metric --against: opens the other model, and compares it with the checkpoint.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "extras/long_context/comparison.h"
#include "framework/error.h"
#include "framework/standard_streams.h"
#include "layers/model_parameters.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/models/model_tokenizer.h"
#include "train/run/run_folder.h"

namespace ringtrain {

namespace {

/// Returns a description of how a tokenizer begins a text.
std::string begin_text(const Tokenizer& tokenizer) {
  const std::optional<std::int32_t> begin = tokenizer.begin_of_text();
  return begin ? fmt::format("token {}", *begin) : "no token";
}

/// Throws Error(usage) if the models' tokenizers begin texts differently, and the user does not say how windows begin.
void check_begin_tokens(const ModelSource& other, const EvaluationSubject& subject) {
  if (subject.begin_token_given) return;
  const auto own = load_model_tokenizer(subject.source), another = load_model_tokenizer(other);
  if (!own || !another || own->begin_of_text() == another->begin_of_text()) return;
  fail(ExitCode::usage,
       "--against {}: its tokenizer begins a text with {}, that of {} with {}; set what windows begin with for both: "
       "--begin-token none or --begin-token ID",
       other.path, begin_text(*another), subject.source.path, begin_text(*own));
}

/// Throws Error(usage) unless both models predict the same tokens.
void check_tokens_of(const ModelSource& other, const EvaluationSubject& subject) {
  const ModelSource& own = subject.source;
  if (other.model.vocab_size != subject.config.model.vocab_size) {
    fail(ExitCode::usage,
         "--against {}: its vocabulary has {} tokens, but that of {} has {}, so their predictions cannot be compared",
         other.path, other.model.vocab_size, own.path, subject.config.model.vocab_size);
  }
  check_tokens(other, subject.file);
  const std::string one = tokenizer_identity(own), another = tokenizer_identity(other);
  if (!one.empty() && !another.empty() && one != another) {
    fail(ExitCode::usage, "--against {}: it has another tokenizer than {} (hashes {} and {})", other.path, own.path,
         another, one);
  }
}

/// The other model, under the config of the checkpoint's evaluation.
class PreparedAgainst : public PreparedMetric {
 public:
  PreparedAgainst(const std::string& path, const EvaluationSubject& subject)
      : subject_(subject), other_{open_model(path), subject.config, {}} {
    check_tokens_of(other_.source, subject);
    check_begin_tokens(other_.source, subject);
    other_.config.model = other_.source.model;
    other_.table = make_parameter_table(other_.config.model);
    check_lengths(subject.targets.request, other_.config);
    std::vector<std::string> remarks = other_.source.logs;
    const std::int64_t longest = subject.targets.request.context_lengths.back();
    if (const auto beyond = beyond_context(other_.source, longest, "--context-lengths")) remarks.push_back(*beyond);
    for (const std::string& line : remarks) write_message(stderr, fmt::format("evaluate: --against: {}\n", line));
  }

  std::string identity() const override { return other_.source.identity; }
  std::vector<RankPlan> plans(const RankPurpose& purpose) const override {
    return plan_ranks(other_.config, other_.table, purpose);
  }
  std::unique_ptr<TargetScorer> make_scorer(RankState& state, const RankPurpose& purpose) const override {
    return std::make_unique<Comparison>(other_, purpose, subject_.targets.request, std::ssize(subject_.targets.blocks),
                                        state.stream.pool(), *state.world);
  }
  MetricResult evaluate(RankState& /*state*/, TargetScorer* scorer,
                        const std::function<void(std::int64_t)>& /*progress*/) const override {
    return static_cast<Comparison*>(scorer)->finish(subject_.targets);
  }

 private:
  const EvaluationSubject subject_;
  ComparedModel other_;
};

}  // namespace

EvaluationMetric against_model(const std::string& path) {
  const auto prepare = [path](const EvaluationSubject& subject) {
    if (subject.config.training.device == Device::Kind::cuda) {
      fail(ExitCode::usage, "--against: the logits of two models are compared on the CPU; give --device cpu");
    }
    return std::make_unique<PreparedAgainst>(path, subject);
  };
  return {.name = "against", .prepare = prepare, .inputs = [path] { return files_of_model(path); }};
}

}  // namespace ringtrain
