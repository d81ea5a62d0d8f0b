// What a run's config leaves to the files that it names, found for the config's reader.
#pragma once

#include <string>

#include "framework/config/read_config.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain {

/// Returns the lookup of programs that read the config of a run: model.from by model_reader(), whose logs go to log,
/// the vocabulary of data.train's tokenizer, and the steps that epochs are. init_from: what --init-from names, "" if it
/// is not given.
ConfigLookup config_lookup(const Log& log, const std::string& init_from = "");

}  // namespace ringtrain
