// What a run's config leaves to the files that it names, found for the config's reader.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/config/read_config.h"

namespace ringtrain {

/// Returns the lookup of programs that read the config of a run: model.from by model_reader(), whose logs go to log,
/// vocabulary_of(), and steps_of_epochs(). init_from: what --init-from names, "" if it is not given.
ConfigLookup config_lookup(const std::function<void(const std::string&)>& log, const std::string& init_from = "");

/// Returns the tokens of the tokenizer behind data.train, the most that a file's manifest says. A file without a
/// readable manifest counts as one of bytes (257): opening it says what is wrong.
std::int64_t vocabulary_of(const Config& config);

/// Returns the steps that see each window of data.train `epochs` times, rounded up, at least 1. Opens and verifies the
/// files. Throws Error(usage) with training.stages, whose places are steps, and Error(data) as open_training_corpus().
std::int64_t steps_of_epochs(const Config& config, double epochs);

}  // namespace ringtrain
