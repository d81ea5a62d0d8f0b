// Multiprocessors that attention leaves free on a GPU for concurrent work. Kernels whose grid would otherwise fill
// every multiprocessor check it at their launch.
#pragma once

#include <utility>

namespace ringtrain {

/// While this object lives, kernels that this thread launches leave this many multiprocessors free, but use at least
/// half of all. It does not change any bits.
class KeptFree {
 public:
  explicit KeptFree(int multiprocessors) : before_(std::exchange(kept_, multiprocessors)) {}
  ~KeptFree() { kept_ = before_; }
  KeptFree(const KeptFree&) = delete;
  KeptFree& operator=(const KeptFree&) = delete;

  /// Returns the current number.
  static int now() { return kept_; }

 private:
  static inline thread_local int kept_ = 0;
  const int before_;
};

}  // namespace ringtrain
