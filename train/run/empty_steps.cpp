#include "train/run/empty_steps.h"

#include <fmt/ranges.h>

#include "data/loader.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

/// Returns how many sequences of a step stand before the first that has a target; all of them: the step is empty.
std::int64_t leading_empty(const EmptyWindows& windows, const RunSteps& run, std::int64_t step) {
  const TrainingConfig& training = run.at(step).training;
  std::int64_t i = 0;
  while (i < training.global_batch_size && windows.contains(training.seq_len, run.sample(step, i).global_index)) ++i;
  return i;
}

}  // namespace

EmptyWindows::EmptyWindows(const Corpus& corpus, const RunSteps& run) {
  for (const auto& [seq_len, sampler] : run.samplers) {
    const std::int64_t all = sampler.windows();
    std::vector<bool> empty;
    empty.reserve(static_cast<std::size_t>(all));
    std::int64_t count = 0;
    for (std::size_t file = 0; file < corpus.files.size(); ++file) {
      const std::int64_t windows = corpus.window_count(file, seq_len, nullptr);
      for (std::int64_t window = 0; window < windows; ++window) {
        empty.push_back(
            !window_has_target(*corpus.files[file], corpus.window(file, window, seq_len), run.config.data.packing));
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

bool is_empty_step(const EmptyWindows& windows, const RunSteps& run, std::int64_t step) {
  return leading_empty(windows, run, step) == run.at(step).training.global_batch_size;
}

EmptySteps find_empty_steps(const EmptyWindows& windows, const RunSteps& run, std::int64_t done) {
  EmptySteps result{.windows = windows.windows(),
                    .empty_windows = windows.count(),
                    .first = done + 1,
                    .last = done,
                    .end = run.config.training.steps};
  if (windows.count() == 0) return result;
  std::int64_t drawn = 0;
  for (std::int64_t step = result.first; step <= result.end && drawn < EmptySteps::max_samples; ++step) {
    result.last = step;
    const std::int64_t empty = leading_empty(windows, run, step);
    drawn += empty + 1;
    if (empty < run.at(step).training.global_batch_size) continue;
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
