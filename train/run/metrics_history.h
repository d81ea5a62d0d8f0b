// What metrics.jsonl holds before a run goes on behind it: which lines are this program's, whole and understood, and
// which a run that goes on from a step will write again. Only these are ever cut.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/run/step_report.h"

namespace ringtrain {

class MetricsHistory {
 public:
  /// Reads the whole file; a missing one is empty. Throws Error(usage) if it cannot be read to its end.
  static MetricsHistory read(const std::string& path);

  std::int64_t bytes() const { return bytes_; }
  /// Returns whether it has content, and none of it is a metrics file's.
  bool is_foreign() const;
  /// Returns the first and the last step that lines speak of, 0 if none does.
  std::int64_t first_step() const;
  std::int64_t last_step() const;
  /// Returns whether it has the evaluation after `step` steps.
  bool holds_evaluation(std::int64_t step) const;

  /// Returns the loss and the gradient norm of the last steps up to `step`, in their order; NaN where the line has no
  /// number. Of steps with two finite numbers there are `count`, or fewer if the file has fewer.
  std::vector<StepReport> numbers_up_to(std::int64_t step, std::size_t count) const;

  struct Cut {
    std::int64_t bytes = 0;                       // removed
    std::int64_t damaged = 0, first_damaged = 0;  // lines that are kept, and the number of the first before the cut
  };
  /// Removes from the file, which must be as it was read, lines of steps later than `step`, which a run that goes on
  /// from there writes again, and one that a run was writing when it ended. All others stay, those that are no lines of
  /// this program among them; the file then ends with a line's end. After a crash it is as before or done. Throws
  /// Error(usage).
  Cut cut(std::int64_t step) const;

 private:
  enum class Kind { train, evaluation, torn, damaged };  // torn: the beginning of a line of ours, without its end
  struct Line {
    std::int64_t begin = 0, end = 0;  // bytes of the file, its '\n' included
    std::int64_t step = 0;            // 0: it does not say
    Kind kind = Kind::damaged;
    StepReport numbers;  // of a step: its loss and gradient norm
  };
  static Line understand(const std::string& text, bool ended);

  std::string path_;
  std::int64_t bytes_ = 0;
  bool ends_with_line_ = true;
  std::vector<Line> lines_;
};

}  // namespace ringtrain
