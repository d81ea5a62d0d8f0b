// Ranks that are processes have each read their own command line, config and files. Before they start they compare what
// they have read, so that a difference is reported by its name and is not met as a hang or as a wrong result.
#pragma once

#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace ringtrain {

/// Something that all ranks must have alike: a config key and its value, a file's hash.
struct AgreedValue {
  std::string name, value;
};

/// Collective. Throws Error(usage) on a rank whose facts are not those of rank 0: names each that differs, with both
/// values.
void require_agreement(Communicator& communicator, const std::vector<AgreedValue>& facts);

}  // namespace ringtrain
