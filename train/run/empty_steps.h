// Steps that can teach nothing: no sequence of their batch has a target, since each weight is 0 or each token ends its
// document. Such a step is skipped when it comes. Which ones they are follows from the data and the order of samples
// alone, so a run knows before it starts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "train/run/run_steps.h"

namespace ringtrain {

/// The windows of a corpus that have no target.
class EmptyWindows {
 public:
  /// Reads the weights of all windows of each stage's length once, each up to its first target. Throws Error(data) if
  /// no window of a length has one, or a file is not what it was.
  EmptyWindows(const Corpus& corpus, const RunSteps& run);
  /// Returns whether a window of so many tokens, counted through all files, has no target.
  bool contains(std::int64_t seq_len, std::int64_t global_index) const {
    const std::vector<bool>& empty = empty_.at(seq_len);
    return !empty.empty() && empty[static_cast<std::size_t>(global_index)];
  }
  std::int64_t windows() const { return windows_; }  // of all lengths
  std::int64_t count() const { return count_; }      // of them: without a target

 private:
  std::map<std::int64_t, std::vector<bool>> empty_;  // by seq_len: [windows]; nothing if there is none
  std::int64_t windows_ = 0, count_ = 0;
};

/// Returns whether no sequence of a step has a target. Pure.
bool is_empty_step(const EmptyWindows& windows, const RunSteps& run, std::int64_t step);

/// What a look ahead finds.
struct EmptySteps {
  static constexpr std::int64_t max_samples = 10'000'000;  // that the look ahead draws: a few seconds
  static constexpr std::size_t max_named = 8;

  std::int64_t windows = 0;              // of the corpus, of all stages' lengths
  std::int64_t empty_windows = 0;        // of them
  std::int64_t first = 0, last = 0;      // steps looked at, both included; all that are left but for max_samples
  std::int64_t end = 0;                  // training.steps
  std::int64_t count = 0;                // of them: empty
  std::vector<std::int64_t> named = {};  // the first of these
};

/// Looks ahead over the steps after the first `done`, to the schedule's end. Pure.
EmptySteps find_empty_steps(const EmptyWindows& windows, const RunSteps& run, std::int64_t done);

/// Returns a sentence with the counts; "" if every window has a target.
std::string empty_steps_text(const EmptySteps& steps);

}  // namespace ringtrain
