// The rule of this floor for a config, as its reader takes it (framework/config/read_config.h).
#pragma once

#include <functional>
#include <string>

#include "framework/config/config_problems.h"
#include "framework/parameter_table.h"

namespace ringtrain {

struct Config;
struct ModelConfig;

/// Adds a problem for every key that the config's architecture cannot use, and for what names no parameter of its
/// model. Keys that already have a problem are left alone.
void check_model(const Config& config, ConfigProblems& problems);
/// The same of a model with these parameters; table is called for a model without problems.
void check_model_with(const Config& config, ConfigProblems& problems, const std::function<ParameterTable()>& table);

/// Throws Error(checkpoint), one sentence that names the file, if a model that a file describes, of whatever form, has
/// a value out of the range of the config's own key, or what the layers do not compute. Resolves the rest. Nothing may
/// be made of such a description before: a count of layers can be any number.
void check_model_of_file(ModelConfig& model, const std::string& path);

}  // namespace ringtrain
