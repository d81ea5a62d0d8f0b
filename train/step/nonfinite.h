// What a run says when loss or gradient are no numbers: the numbers, and advice that fits what is known. A learning
// rate that was never used is not at fault, and weights that are no numbers cannot be trained on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ringtrain {

/// What is known of a step whose loss or gradient norm is not finite.
struct NonfiniteStep {
  std::int64_t step = 0;
  double loss = 0, norm = 0;
  std::int64_t in_a_row = 1;          // such steps
  std::optional<std::int64_t> limit;  // of them; none: the first one ends the run
  std::int64_t updates = 0;           // that the weights have had, those before a resume among them
  std::string checkpoint;             // whose weights the run began with; "": its own initial ones
  std::string bad_weights;            // the first tensor of the weights with a value that is not finite; "": none
  std::vector<std::int64_t> samples;  // of the step, in order
  std::string saved;                  // what the run has saved, as a clause
};

/// Returns "step 5: the loss is nan and the gradient's norm 3.5".
std::string nonfinite_numbers(std::int64_t step, double loss, double norm);
/// Returns the sentence that a run ends with.
std::string nonfinite_sentence(const NonfiniteStep& known);

}  // namespace ringtrain
