// Ranks that are processes each read their own command line, config, and files. Before they start, they compare what
// they have read, so that a difference is reported by name and does not cause a hang or a wrong result.
#pragma once

#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace ringtrain {

/// A value that all ranks must share: a config key and its value, or a file's hash.
struct AgreedValue {
  std::string name, value;
};

/// Collective. Throws Error(usage) on a rank whose facts differ from those of rank 0; names each difference, with both
/// values.
void require_agreement(Communicator& communicator, const std::vector<AgreedValue>& facts);

}  // namespace ringtrain
