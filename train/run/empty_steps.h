// Steps that can teach nothing: no sequence of their batch has a target, since each weight is 0 or each token ends its
// document. Such a step is skipped when it comes. Which ones they are follows from the data and the order of samples
// alone, so a run knows before it starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/sampler.h"
#include "framework/config/config.h"

namespace ringtrain {

/// The windows of a corpus that have no target.
class EmptyWindows {
 public:
  /// Reads the weights of all windows once, each up to its first target. Throws Error(data) if no window has one, or a
  /// file is not what it was.
  EmptyWindows(const Corpus& corpus, const Sampler& sampler, const Config& config);
  /// Returns whether a window, counted through all files, has no target.
  bool contains(std::int64_t global_index) const { return count_ > 0 && empty_[global_index]; }
  std::int64_t count() const { return count_; }

 private:
  std::vector<bool> empty_;  // [windows]; nothing if there is none
  std::int64_t count_ = 0;
};

/// Where a run's steps begin among the samples.
struct StepOrigin {
  std::int64_t step = 0, samples = 0;  // done before
};

/// Returns whether no sequence of a step after `origin` has a target. Pure.
bool is_empty_step(const EmptyWindows& windows, const Sampler& sampler, const TrainingConfig& training,
                   const StepOrigin& origin, std::int64_t step);

/// What a look ahead finds.
struct EmptySteps {
  static constexpr std::int64_t max_samples = 10'000'000;  // that the look ahead draws: a few seconds
  static constexpr std::size_t max_named = 8;

  std::int64_t windows = 0;          // of the corpus
  std::int64_t empty_windows = 0;    // of them
  std::int64_t first = 0, last = 0;  // steps looked at, both included; all that are left but for max_samples
  std::int64_t end = 0;              // training.steps
  std::int64_t count = 0;            // of them: empty
  std::vector<std::int64_t> named;   // the first of these
};

/// Looks ahead over the steps after `origin`, to the schedule's end. Pure.
EmptySteps find_empty_steps(const EmptyWindows& windows, const Sampler& sampler, const TrainingConfig& training,
                            const StepOrigin& origin);

/// Returns a sentence with the counts; "" if every window has a target.
std::string empty_steps_text(const EmptySteps& steps);

}  // namespace ringtrain
