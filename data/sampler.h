// The order of samples. A training sample is a window of seq_len tokens of a file's training part (plus the label after
// it). Windows do not overlap. The order is a counter-based permutation per epoch, the same on every mesh. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace ringtrain {

/// One sample of the run: sequence i of all that the run consumes.
struct Sample {
  int file = 0;
  std::int64_t window = 0;        // within the file
  std::int64_t epoch = 0;         // of that file
  std::int64_t global_index = 0;  // index among the windows of all files, in config order; metrics call this a sample
};

/// Finds the i-th window of the run: a pure function of (seed, i, the files' window counts and weights).
class Sampler {
 public:
  /// windows, weights: of each file; weights are above 0.
  Sampler(std::vector<std::int64_t> windows, std::vector<double> weights, std::uint64_t seed);
  /// Returns the i-th sample, from 0.
  Sample sample(std::int64_t i) const;
  /// Returns the windows of all files.
  std::int64_t windows() const { return first_window_.back(); }

 private:
  std::vector<std::int64_t> windows_, first_window_;
  std::vector<int> pattern_;                  // the file from which each slot of a period draws
  std::vector<std::int64_t> before_, slots_;  // [slot] earlier slots of the same file; [file] slots of a period
  std::uint64_t seed_;
};

}  // namespace ringtrain
