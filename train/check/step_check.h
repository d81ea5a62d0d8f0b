// A dumped step held against the reference, tensor by tensor.
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

/// The first element of a tensor that is further from the reference than its bound; or, where none is, the mean of all.
struct CheckDifference {
  std::string location;  // "sequence 3, position 17, column 5", or "element [2, 0]"; "" of a number of the whole step
  int rank = -1;         // that wrote it; -1: all
  double run = 0, reference = 0;
  bool of_mean = false;  // then run is how many times the reference the run is, and reference is 1
};

struct CheckedTensor {
  std::string name;
  double bound = 0;    // of |run - reference|
  double largest = 0;  // |run - reference|
  double size = 0;     // the largest |reference|
  /// The mean of the errors along the reference, sum of (run - reference) reference / sum of reference^2, and its
  /// bound: nothing where there is none, as of inputs. It finds what changes all elements by less than each one's
  /// rounding.
  std::optional<double> mean, mean_bound = std::nullopt;
  std::optional<CheckDifference> difference;
  bool untested = false;  // a gradient that is zero, and need not be: a fault before it would leave it zero, too
};

/// Returns all that is compared, in the order of the step: inputs, activations, nll, the loss, gradients, their norm,
/// the learning rate, weights after the step. result: what the step told. told: called with the number of sequences
/// done. Throws Error(data) if the dump is not whole.
std::vector<CheckedTensor> check_step(const Run& run, const DumpReader& dump, const StepResult& result,
                                      const std::function<void(std::int64_t done)>& progress = {});

}  // namespace ringtrain
