#include "train/step/nonfinite.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace ringtrain {

namespace {

/// Returns a number as text; a NaN has no sign.
std::string number_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

std::string samples_text(const std::vector<std::int64_t>& samples) {
  constexpr std::size_t most = 8;
  const std::size_t shown = std::min(most, samples.size());
  std::string text =
      fmt::format("{} {}", samples.size() == 1 ? "sample" : "samples",
                  fmt::join(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < samples.size()) {
    text += fmt::format(" and {} more (metrics.jsonl has those of every step before)", samples.size() - shown);
  }
  return text;
}

/// Returns what to do if the weights are finite.
std::string advice(const NonfiniteStep& known) {
  const std::string samples = samples_text(known.samples);
  if (known.updates > 0) return "lower optimizer.lr, or look at " + samples;
  if (known.checkpoint.empty()) return "no update was made yet: look at model.initializer_range, or at " + samples;
  return fmt::format("no update was made yet: look at the weights of {}, or at {}", known.checkpoint, samples);
}

/// Returns whose fault it is that the weights are no numbers, and what to do.
std::string advice_on_weights(const NonfiniteStep& known) {
  if (known.updates > 0) return "an update before has overflowed: lower optimizer.lr";
  if (!known.checkpoint.empty()) return fmt::format("they are those of {}: begin with others", known.checkpoint);
  return "they are the initial ones: lower model.initializer_range";
}

}  // namespace

std::string nonfinite_numbers(std::int64_t step, double loss, double norm) {
  return fmt::format("step {}: the loss is {} and the gradient's norm {}", step, number_text(loss), number_text(norm));
}

std::string nonfinite_sentence(const NonfiniteStep& known) {
  std::string text = nonfinite_numbers(known.step, known.loss, known.norm);
  if (known.limit) {
    text += fmt::format(", the {}. in a row (training.max_skipped_steps is {})", known.in_a_row, *known.limit);
  }
  if (!known.bad_weights.empty()) {
    return fmt::format("{}; {} holds a value that is not finite, and {}; {}", text, known.bad_weights,
                       advice_on_weights(known), known.saved);
  }
  return fmt::format("{}; the weights are still those of step {}, {}; {}", text, known.step - known.in_a_row,
                     known.saved, advice(known));
}

}  // namespace ringtrain
