// Compares a dumped step with the reference, tensor by tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/dump/dump_reader.h"
#include "train/run/run.h"
#include "train/step/step_result.h"

namespace ringtrain {

/// The first element of a tensor whose difference from the reference exceeds its bound; or, if there is none, the mean
/// of all.
struct CheckDifference {
  std::string location;  // "sequence 3, position 17, column 5", or "element [2, 0]"; "" for a number of the whole step
  int rank = -1;         // the rank that wrote it; -1: all
  double run = 0, reference = 0;
  bool of_mean = false;  // if true, run is the run's multiple of the reference, and reference is 1
};

struct CheckedTensor {
  std::string name;
  double bound = 0;    // of |run - reference|
  double largest = 0;  // |run - reference|
  double size = 0;     // the largest |reference|
  /// The mean of the errors along the reference, sum of (run - reference) reference / sum of reference^2, and its
  /// bound: empty if there is none, as for inputs. It finds what changes all elements by less than each one's rounding.
  std::optional<double> mean, mean_bound = std::nullopt;
  std::optional<CheckDifference> difference;
  bool untested = false;  // a gradient that is zero and need not be: it would be zero after an earlier fault, too
};

/// Returns everything that is compared, in the order of the step: inputs, activations, nll, the loss, gradients, their
/// norm, the learning rate, and the weights after the step. result: what the step reported. progress: called with the
/// number of sequences done. Throws Error(data) if the dump is incomplete.
std::vector<CheckedTensor> check_step(const Run& run, const DumpReader& dump, const StepResult& result,
                                      const std::function<void(std::int64_t done)>& progress = {});

}  // namespace ringtrain
