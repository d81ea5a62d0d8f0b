#include "train/run/empty_steps.h"

#include <fmt/ranges.h>

#include <utility>

#include "data/loader.h"
#include "framework/config/config.h"
#include "framework/config/training_stages.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

/// Returns the length and the number of a step's sequences.
std::pair<std::int64_t, std::int64_t> sequences_of(const TrainingConfig& training, std::int64_t step) {
  const std::int64_t count = sequences_done(training, step) - sequences_done(training, step - 1);
  return {(tokens_done(training, step) - tokens_done(training, step - 1)) / count, count};
}

/// Returns how many sequences of a step stand before the first that has a target; all of them: the step is empty.
std::int64_t leading_empty(const EmptyWindows& windows, const SampleOrder& order, const TrainingConfig& training,
                           std::int64_t step) {
  const auto [seq_len, count] = sequences_of(training, step);
  std::int64_t i = 0;
  while (i < count && windows.contains(seq_len, order.sample(step, i).global_index)) ++i;
  return i;
}

}  // namespace

EmptyWindows::EmptyWindows(const Corpus& corpus, const SampleOrder& order, const Config& config) {
  for (const std::int64_t seq_len : order.lengths()) {
    const std::int64_t all = order.of_length(seq_len).windows();
    std::vector<bool> empty;
    empty.reserve(static_cast<std::size_t>(all));
    std::int64_t count = 0;
    for (std::size_t file = 0; file < corpus.files.size(); ++file) {
      const std::int64_t windows = corpus.window_count(file, seq_len, nullptr);
      for (std::int64_t window = 0; window < windows; ++window) {
        empty.push_back(
            !window_has_target(*corpus.files[file], corpus.window(file, window, seq_len), config.data.packing));
        count += empty.back();
      }
    }
    if (count == all) {
      fail(ExitCode::data,
           "data.train: none of its {} windows of {} tokens has a token to learn from: every weight is 0, or every "
           "token ends a document; give the token file weights above 0",
           count, seq_len);
    }
    empty_[seq_len] = count > 0 ? std::move(empty) : std::vector<bool>{};
    windows_ += all;
    count_ += count;
  }
}

bool is_empty_step(const EmptyWindows& windows, const SampleOrder& order, const TrainingConfig& training,
                   std::int64_t step) {
  return leading_empty(windows, order, training, step) == sequences_of(training, step).second;
}

EmptySteps find_empty_steps(const EmptyWindows& windows, const SampleOrder& order, const TrainingConfig& training,
                            std::int64_t done) {
  EmptySteps result;
  result.windows = windows.windows();
  result.empty_windows = windows.count();
  result.first = done + 1;
  result.end = training.steps;
  result.last = done;
  if (windows.count() == 0) {
    result.last = training.steps;
    return result;
  }
  std::int64_t drawn = 0;
  for (std::int64_t step = result.first; step <= training.steps && drawn < EmptySteps::max_samples; ++step) {
    result.last = step;
    const std::int64_t empty = leading_empty(windows, order, training, step);
    drawn += empty + 1;
    if (empty < sequences_of(training, step).second) continue;
    ++result.count;
    if (result.named.size() < EmptySteps::max_named) result.named.push_back(step);
  }
  return result;
}

std::string empty_steps_text(const EmptySteps& steps) {
  if (steps.empty_windows == 0) return "";
  std::string text =
      fmt::format("{} of {} windows have no token to learn from (weights of 0, or documents of one token)",
                  steps.empty_windows, steps.windows);
  if (steps.last < steps.first) return text;
  const std::string range = fmt::format("steps {} to {}", steps.first, steps.last);
  if (steps.count == 0) {
    text += fmt::format("; each of the {} has others, too", range);
  } else {
    text += fmt::format("; {} of the {} have no other, and are skipped: {}{}", steps.count, range,
                        fmt::join(steps.named, ", "), steps.count > std::ssize(steps.named) ? ", ..." : "");
  }
  if (steps.last < steps.end) text += fmt::format(" (the steps from {} on were not looked at)", steps.last + 1);
  return text;
}

}  // namespace ringtrain
