// Room that attention leaves on a GPU for what runs beside it. Kernels whose grid would else fill every multiprocessor
// ask it at their launch.
#pragma once

#include <utility>

namespace ringtrain {

/// As long as it lives, kernels that this thread launches leave so many multiprocessors free, as far as half of all are
/// left to them. Changes no bit.
class KeptFree {
 public:
  explicit KeptFree(int multiprocessors) : before_(std::exchange(kept_, multiprocessors)) {}
  ~KeptFree() { kept_ = before_; }
  KeptFree(const KeptFree&) = delete;
  KeptFree& operator=(const KeptFree&) = delete;

  /// Returns how many that are now.
  static int now() { return kept_; }

 private:
  static inline thread_local int kept_ = 0;
  const int before_;
};

}  // namespace ringtrain
