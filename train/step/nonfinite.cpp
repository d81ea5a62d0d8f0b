#include "train/step/nonfinite.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "framework/counted.h"
#include "parallel/shared_error.h"
#include "train/checkpoint/checkpoint.h"
#include "train/engine/rank_state.h"
#include "train/models/model_source.h"
#include "train/run/run.h"

namespace ringtrain {

namespace {

/// Returns a number as text; a NaN has no sign.
std::string number_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

std::string samples_text(const std::vector<std::int64_t>& samples) {
  const auto shown = std::span(samples).first(std::min<std::size_t>(8, samples.size()));
  const std::size_t extra = samples.size() - shown.size();
  return fmt::format("{} {}{}", samples.size() == 1 ? "sample" : "samples", fmt::join(shown, ", "),
                     extra > 0 ? fmt::format(" and {} more (metrics.jsonl lists earlier steps' samples)", extra) : "");
}

/// Returns "step 5: the loss is nan and the gradient's norm 3.5".
std::string numbers_text(const StepResult& result) {
  return fmt::format("step {}: the loss is {} and the gradient's norm {}", result.step, number_text(result.loss),
                     number_text(result.grad_norm));
}

/// Returns what to do if the weights are finite. checkpoint: whose weights the run started with; "": its own initial
/// ones.
std::string advice(const std::string& samples, std::int64_t updates, const std::string& checkpoint) {
  if (updates > 0) return "lower optimizer.lr, or look at " + samples;
  if (checkpoint.empty()) return "no update was made yet: look at model.initializer_range, or at " + samples;
  return fmt::format("no update was made yet: look at the weights of {}, or at {}", checkpoint, samples);
}

/// Returns why the weights are NaN or infinite, and what to do.
std::string advice_on_weights(std::int64_t updates, const std::string& checkpoint) {
  if (updates > 0) return "an earlier update overflowed: lower optimizer.lr";
  if (!checkpoint.empty()) return fmt::format("the weights are those of {}: start with other ones", checkpoint);
  return "the weights are the initial ones: lower model.initializer_range";
}

}  // namespace

std::string skipped_text(const StepResult& result, std::int64_t sequences, std::int64_t skipped) {
  std::string why = numbers_text(result);
  if (result.empty) {
    why = fmt::format(
        "step {}: {} a token to learn from (weights of 0, or documents of one token)", result.step,
        sequences == 1 ? "its sequence does not have" : fmt::format("none of its {} sequences has", sequences));
  }
  return fmt::format("warning: {}; skipped: weights and moments are unchanged ({} so far)", why,
                     counted(skipped, "skipped step"));
}

std::string nonfinite_sentence(const Run& run, RankState& state, const StepResult& result, std::int64_t updates,
                               const std::string& saved) {
  const std::string problem = nonfinite_weights(state), checkpoint = run.start.source ? run.start.source->path : "";
  const auto bad =
      shared_error(*state.world, problem.empty() ? std::nullopt : std::optional(Error(ExitCode::numeric, problem)),
                   {"weights that are not numbers"});
  std::string text = numbers_text(result);
  if (run.config.training.on_nonfinite == OnNonfinite::skip) {
    text += fmt::format(" ({} in a row; training.max_skipped_steps is {})", result.nonfinite,
                        run.config.training.max_skipped_steps);
  }
  if (bad) {
    return fmt::format("{}; {} holds a value that is not finite, and {}; {}", text, bad->what(),
                       advice_on_weights(updates, checkpoint), saved);
  }
  return fmt::format("{}; the weights are still those of step {}, {}; {}", text, result.step - result.nonfinite, saved,
                     advice(samples_text(run.sample_indices(result.step)), updates, checkpoint));
}

}  // namespace ringtrain
