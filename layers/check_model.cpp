#include "layers/check_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "framework/config/config.h"
#include "framework/config/config_check.h"
#include "framework/error.h"
#include "layers/model_parameters.h"
#include "layers/model_spec.h"

namespace ringtrain {

namespace {

/// Checks that every adapter's target is a matrix of a layer.
void check_lora(const ModelConfig& model, ConfigProblems& problems) {
  if (!model.lora.on() || !problems.clean({"lora.targets"}) || problems.count() > 0) return;
  if (model.lora.targets.empty()) problems.add("lora.targets", "is empty, but lora.rank asks for adapters");
  const ModelSpec spec = model_spec(model);
  std::set<std::string> known, seen;
  for (const std::string& module : adaptable_modules(spec)) known.merge(ends_of(module));
  const std::string projections = fmt::format("{}", fmt::join(projections_of(spec), ", "));
  for (const std::string& target : model.lora.targets) {
    if (!seen.insert(target).second) return problems.add("lora.targets", "names {} twice", target);
    if (known.contains(target)) continue;
    problems.add("lora.targets", "{} is not one of the projections of this model's layers: {}", target, projections);
  }
}

/// A pattern that matches nothing would train a different set of parameters than the user thinks.
void check_trainable(const Config& config, ConfigProblems& problems,
                     const std::function<ParameterTable()>& make_table) {
  const std::vector<std::string>& patterns = config.training.trainable;
  if (patterns.empty() || !problems.clean({"training.trainable"}) || problems.count() > 0) return;
  const ParameterTable table = make_table();
  for (const std::string& pattern : patterns) {
    const auto means_it = [&](const Parameter& parameter) { return matches(pattern, parameter.name); };
    if (std::ranges::any_of(table.all(), means_it)) continue;
    problems.add("training.trainable", "\"{}\" matches no parameter; examples of names are {} and {}", pattern,
                 table[0].name, table[1].name);
  }
}

}  // namespace

void check_model(const Config& config, ConfigProblems& problems) {
  check_model_with(config, problems, [&] { return make_parameter_table(config.model); });
}

void check_model_with(const Config& config, ConfigProblems& problems, const std::function<ParameterTable()>& table) {
  check_model_keys(config, problems);
  check_lora(config.model, problems);
  check_trainable(config, problems, table);
}

void check_model_of_file(ModelConfig& model, const std::string& path) {
  Config config;
  config.model = model;
  const std::vector<std::string> no_settings;
  ConfigProblems problems(path, no_settings);
  check_values(config, "model.", problems);
  try {
    problems.throw_if_any();
    resolve_and_check(config, ConfigUse::know, problems);
    check_model(config, problems);
    problems.throw_if_any();
  } catch (const Error& error) {
    fail(ExitCode::checkpoint, "{}", error.what());
  }
  model = config.model;
}

}  // namespace ringtrain
