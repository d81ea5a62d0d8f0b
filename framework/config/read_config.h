// The strict reader of configs. Every key of a file must be known, appear once, have its type, and be in its range. All
// problems are reported at once, with file and line, before anything starts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/config/config_check.h"
#include "framework/config/model_config.h"

namespace ringtrain {

class ConfigProblems;

/// A check of a higher floor between keys: it adds a problem for each key that does not fit.
using ConfigRule = std::function<void(const Config&, ConfigProblems&)>;

/// Returns the resolved model that model.from names; throws an Error with the reason if it cannot be read. Higher
/// floors know where models can be read from: programs pass a reader of train/models.
using ModelReader = std::function<ModelConfig(const std::string& from)>;

/// What a config leaves to the files that it names; the reader calls only the functions that it needs. Each may throw
/// an Error, which becomes a problem of the config. Programs pass config_lookup() of train/run. A key that needs an
/// empty function is a problem.
struct ConfigLookup {
  ModelReader model = {};
  /// model.from of a config that gives no key of the section model: the value of --init-from.
  std::string model_otherwise = {};
  /// Returns the number of tokens of the data's tokenizer, for a config without model.from and model.vocab_size. If
  /// empty, the default remains.
  std::function<std::int64_t(const Config& config)> vocabulary = {};
  /// Returns the number of steps that see the data `epochs` times, rounded up.
  std::function<std::int64_t(const Config& config, double epochs)> steps = {};
};

/// Reads a file's config, applies the settings ("key.path=value", as of --set; the last of several for one key counts),
/// resolves defaults, and checks everything: types, ranges, and what must fit together (heads, mesh and batch,
/// lengths). Relative data paths are relative to the working directory. Throws one Error(usage) whose text lists every
/// problem, one per line: "file:line: key: what, and what to do" (or "--set key=...: ..."), with the nearest known name
/// for an unknown key. rule: runs after this floor's own checks; programs pass layers' check_model.
///
/// With model.from, all keys of the section model have the values of that model. A key that is given next to it
/// overrides its value if the weights still fit (is_free_with_weights); model.rope_scaling.type replaces the whole
/// section. Any other key that is given must agree with the model.
Config read_config(const std::string& path, const std::vector<std::string>& settings, ConfigUse use = ConfigUse::run,
                   const ConfigRule& rule = {}, const ConfigLookup& lookup = {});
/// The same, from text; `path` is only used in messages.
Config parse_config(const std::string& text, const std::string& path, const std::vector<std::string>& settings,
                    ConfigUse use = ConfigUse::run, const ConfigRule& rule = {}, const ConfigLookup& lookup = {});
/// Returns a config that a program has made or changed, checked and resolved like one that is read, by the same rules
/// for each value and for what must fit together. Throws Error(usage) with one line for each problem. Every function
/// that takes a config from a program calls this.
Config checked_config(const Config& config, ConfigUse use, const ConfigRule& rule = {});
/// Returns the resolved config as YAML that read_config reads back to the same values (doubles round-trip).
std::string to_yaml(const Config& config);

/// A key's path and both values as text: "training.seq_len", "4096", "8192".
struct ConfigDifference {
  std::string key, before, after;
};
/// Returns every key whose value differs.
std::vector<ConfigDifference> differences(const Config& before, const Config& after);

}  // namespace ringtrain
