// Values that a run's config leaves to the files that it names, looked up for the config's reader.
#pragma once

#include <string>

#include "framework/config/read_config.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain {

/// Returns the lookup for programs that read a run's config: model.from by model_reader(), whose logs go to log, the
/// vocabulary of data.train's tokenizer, and the number of steps in epochs. init_from: the argument of --init-from, ""
/// if it is not given.
ConfigLookup config_lookup(const Log& log, const std::string& init_from = "");

}  // namespace ringtrain
