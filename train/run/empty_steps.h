// Steps that can teach nothing: no sequence of their batch has a target, since each weight is 0 or each token ends its
// document. Such a step is skipped when it comes. Which ones they are follows from the data and the order of samples
// alone, so a run knows before it starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/run/run_steps.h"

namespace ringtrain {

/// What a look ahead finds.
struct EmptySteps {
  static constexpr std::int64_t max_samples = 10'000'000;  // that the look ahead draws: a few seconds
  static constexpr std::size_t max_named = 8;

  std::int64_t windows = 0;              // of the corpus, of all stages' lengths
  std::int64_t empty_windows = 0;        // of them: without a target
  std::int64_t first = 0, last = 0;      // steps looked at, both included; all that are left but for max_samples
  std::int64_t end = 0;                  // training.steps
  std::int64_t count = 0;                // of them: empty
  std::vector<std::int64_t> named = {};  // the first of these
};

/// Reads the weights of all windows of each stage's length once, each up to its first target, and looks ahead over the
/// steps after the first `done`, to the schedule's end. Throws Error(data) if no window of a length has a target, or a
/// file is not what it was, and Error(usage) if the step that the run is to dump has none.
EmptySteps find_empty_steps(const Corpus& corpus, const RunSteps& run, std::int64_t done);

/// Returns a sentence with the counts; "" if every window has a target.
std::string empty_steps_text(const EmptySteps& steps);

}  // namespace ringtrain
