#include "train/run/empty_steps.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "data/loader.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

/// Returns which windows of this many tokens, counted through all files, have no target.
std::vector<bool> windows_without_target(const Corpus& corpus, const RunSteps& run, std::int64_t seq_len) {
  std::vector<bool> empty;
  for (std::size_t file = 0; file < corpus.files.size(); ++file) {
    const std::int64_t windows = corpus.window_count(file, seq_len, nullptr);
    for (std::int64_t window = 0; window < windows; ++window) {
      empty.push_back(
          !window_has_target(*corpus.files[file], corpus.window(file, window, seq_len), run.config.data.packing));
    }
  }
  if (std::ranges::count(empty, true) == std::ssize(empty)) {
    fail(ExitCode::data,
         "data.train: no window of {} tokens has a token to learn from (weights of 0, or documents of one token)",
         seq_len);
  }
  return empty;
}

}  // namespace

EmptySteps find_empty_steps(const Corpus& corpus, const RunSteps& run, std::int64_t done) {
  EmptySteps result{.first = done + 1, .last = done, .end = run.config.training.steps};
  std::map<std::int64_t, std::vector<bool>> windows;  // by seq_len: which have no target
  for (const auto& [seq_len, sampler] : run.samplers) {
    const std::vector<bool>& empty = windows[seq_len] = windows_without_target(corpus, run, seq_len);
    result.windows += std::ssize(empty);
    result.empty_windows += std::ranges::count(empty, true);
  }
  if (result.empty_windows == 0) return result;
  std::int64_t drawn = 0;
  const auto is_empty = [&](std::int64_t step) {
    const TrainingConfig& training = run.at(step).training;
    const std::vector<bool>& empty = windows.at(training.seq_len);
    std::int64_t i = 0;
    while (i < training.global_batch_size && empty[run.sample(step, i).global_index]) ++i;
    drawn += i + 1;
    return i == training.global_batch_size;
  };
  if (!run.dump.folder.empty() && is_empty(run.dump.step)) {
    fail(ExitCode::usage, "--dump-step {}: the step has no token to learn from and is skipped; dump another step",
         run.dump.step);
  }
  for (std::int64_t step = result.first; step <= result.end && drawn < EmptySteps::max_samples; ++step) {
    result.last = step;
    if (!is_empty(step)) continue;
    ++result.count;
    if (result.named.size() < EmptySteps::max_named) result.named.push_back(step);
  }
  return result;
}

std::string empty_steps_text(const EmptySteps& steps) {
  if (steps.empty_windows == 0) return "";
  std::string text = fmt::format("no token to learn from in {} of {} windows (weights of 0, or documents of one token)",
                                 steps.empty_windows, steps.windows);
  if (steps.last < steps.first) return text;
  const std::string range = fmt::format("steps {} to {}", steps.first, steps.last);
  if (steps.count == 0) {
    text += fmt::format("; each of {} also has other windows", range);
  } else {
    text += fmt::format("; steps with no other window are skipped, {} of {}: {}{}", steps.count, range,
                        fmt::join(steps.named, ", "), steps.count > std::ssize(steps.named) ? ", ..." : "");
  }
  if (steps.last < steps.end) text += fmt::format(" (the steps from {} on were not checked)", steps.last + 1);
  return text;
}

}  // namespace ringtrain
