// How long a run needs from a signal to its end: what a spot machine's grace time has to cover. Pure.
#pragma once

#include <algorithm>
#include <string>

namespace ringtrain {

class GraceTime {
 public:
  /// background: a signal may find a save under way, which is finished before the last one begins.
  explicit GraceTime(bool background) : saves_(background ? 2 : 1) {}
  /// A stretch of work in which signals wait: a step, or a sequence of an evaluation.
  void add_step(double seconds) { step_ = std::max(step_, seconds); }
  void add_save(double seconds) { save_ = std::max(save_, seconds); }
  /// Returns the seconds that the longest of each need; 0 before the first save.
  double seconds() const { return save_ > 0 ? step_ + saves_ * save_ : 0; }
  /// Returns a line for people; "" before the first save.
  std::string line() const;
  /// Returns how long finishing a step and saving takes, as the end of a sentence: ", up to 3m05s"; "" before the first
  /// step.
  std::string bound() const;

 private:
  int saves_;
  double step_ = 0, save_ = 0;  // the longest
};

}  // namespace ringtrain
