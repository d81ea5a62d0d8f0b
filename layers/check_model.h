// This floor's rule for a config, in the form that read_config takes (framework/config/read_config.h).
#pragma once

#include <functional>
#include <string>

#include "framework/config/config_problems.h"
#include "framework/parameter_table.h"

namespace ringtrain {

struct Config;
struct ModelConfig;

/// Adds a problem for every key that the config's architecture cannot use, and for everything that names no parameter
/// of its model. Skips keys that already have a problem.
void check_model(const Config& config, ConfigProblems& problems);
/// Does the same for a model with these parameters; table is called only for a model without problems.
void check_model_with(const Config& config, ConfigProblems& problems, const std::function<ParameterTable()>& table);

/// Throws Error(checkpoint), with one message that names the file, if the description of a model in a file of any
/// format has a value outside the range of the config's own key, or something that the layers do not compute. Resolves
/// the other values. Call it before making anything from such a description: a layer count can be any number.
void check_model_of_file(ModelConfig& model, const std::string& path);

}  // namespace ringtrain
