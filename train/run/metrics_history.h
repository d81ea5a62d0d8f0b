// The contents of metrics.jsonl before a run continues it: which lines are complete lines of this program, and which
// ones a run that continues from a step will write again. Only the latter are ever cut.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/run/step_report.h"

namespace ringtrain {

struct MetricsLine;  // train/run/metrics_lines.h

class MetricsHistory {
 public:
  /// Reads the whole file; a missing one is empty. Throws Error(usage) if it cannot be read to its end.
  static MetricsHistory read(const std::string& path);

  std::int64_t bytes() const { return bytes_; }
  /// Returns whether it has content, but no line of a metrics file.
  bool is_foreign() const;
  /// Returns the first and the last step in the lines, 0 if there is none.
  std::int64_t first_step() const;
  std::int64_t last_step() const;
  /// Returns whether it has the evaluation after `step` steps.
  bool holds_evaluation(std::int64_t step) const;

  /// Returns the loss and the gradient norm of the last steps up to `step`, in order; NaN if the line has no number.
  /// They include `count` steps with two finite numbers, or fewer if the file has fewer.
  std::vector<StepReport> numbers_up_to(std::int64_t step, std::size_t count) const;

  struct Cut {
    std::int64_t bytes = 0;                       // removed
    std::int64_t damaged = 0, first_damaged = 0;  // lines that are kept, and the number of the first one before the cut
  };
  /// Removes lines from the file, which must be unchanged since it was read: those of steps later than `step`, which a
  /// run that continues from there writes again, and one that a run was writing when it ended. Keeps all others,
  /// including lines that this program did not write; the file then ends with the end of a line. A crash leaves the
  /// file either unchanged or done. Throws Error(usage).
  Cut cut(std::int64_t step) const;

 private:
  enum class Kind { train, evaluation, torn, damaged };  // torn: the beginning of a line of ours, without its end
  struct Line {
    std::int64_t begin = 0, end = 0;  // bytes of the file, including the '\n'
    std::int64_t step = 0;            // 0: unknown
    Kind kind = Kind::damaged;
    StepReport numbers = {};  // of a step: its loss and gradient norm
  };
  static Line understand(const MetricsLine& raw);

  std::string path_;
  std::int64_t bytes_ = 0;
  bool ends_with_line_ = true;
  std::vector<Line> lines_;
};

}  // namespace ringtrain
