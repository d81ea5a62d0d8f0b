// Steps that can teach nothing: no sequence of their batch has a target, because each weight is 0 or each token ends
// its document. Such a step is skipped when it comes. They depend only on the data and the order of samples, so a run
// knows them before it starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/run/run_steps.h"

namespace ringtrain {

/// The results of looking ahead.
struct EmptySteps {
  static constexpr std::int64_t max_samples = 10'000'000;  // the most that it draws: a few seconds
  static constexpr std::size_t max_named = 8;

  std::int64_t windows = 0;              // of the corpus, for all stages' lengths
  std::int64_t empty_windows = 0;        // those without a target
  std::int64_t first = 0, last = 0;      // steps checked, inclusive; all that are left, unless max_samples stops it
  std::int64_t end = 0;                  // training.steps
  std::int64_t count = 0;                // of them: empty
  std::vector<std::int64_t> named = {};  // the first of these
};

/// Reads the weights of all windows of each stage's length once, each up to its first target, and looks ahead over the
/// steps after the first `done`, to the schedule's end. Throws Error(data) if no window of a length has a target, or a
/// file has changed, and Error(usage) if the step that the run should dump has no target.
EmptySteps find_empty_steps(const Corpus& corpus, const RunSteps& run, std::int64_t done);

/// Returns a message with the counts; "" if every window has a target.
std::string empty_steps_text(const EmptySteps& steps);

}  // namespace ringtrain
