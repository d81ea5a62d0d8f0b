// What holds of a right run at its own length, told by runs of one step alone: each changes one thing (a token, the
// layout, the ring, a rank's targets), and what that must not change is compared. No reference is needed.
#pragma once

#include <string>
#include <vector>

#include "train/check/check.h"

namespace ringtrain {

struct Property {
  std::string name;  // a sentence
  bool holds = true;
  std::string found;  // numbers of it; what it was that does not hold
};

/// Runs the steps that show them. Collective over the processes of the launcher; the answer is process 0's, and empty
/// elsewhere. Throws what train() throws.
std::vector<Property> check_properties(const CheckOptions& options, const Log& log, Launcher& launcher);

}  // namespace ringtrain
