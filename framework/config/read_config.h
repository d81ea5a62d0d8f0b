// The strict reader of configs. Every key of a file is known, appears once, has its type and lies in its range;
// whatever is wrong is reported, all at once, with file and line, before anything starts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/config/config_check.h"
#include "framework/config/model_config.h"

namespace ringtrain {

class ConfigProblems;

/// What a higher floor knows of keys that must fit together: it adds a problem for each that does not.
using ConfigRule = std::function<void(const Config&, ConfigProblems&)>;

/// Returns the model that model.from names, resolved; throws an Error that says why it cannot be had. Higher floors
/// know what a model may be read from: programs pass one of train/models.
using ModelReader = std::function<ModelConfig(const std::string& from)>;

/// What a config leaves to the files that it names; the reader asks only for what it needs. Each may throw an Error,
/// which becomes a problem of the config. Programs pass config_lookup() of train/run. A key that needs an empty
/// function is a problem.
struct ConfigLookup {
  ModelReader model = {};
  /// model.from of a config that gives no key of the section model: what --init-from names.
  std::string model_otherwise = {};
  /// Returns the tokens of the data's tokenizer, for a config without model.from and model.vocab_size. Empty: the
  /// default remains.
  std::function<std::int64_t(const Config& config)> vocabulary = {};
  /// Returns the steps that see the data `epochs` times, rounded up.
  std::function<std::int64_t(const Config& config, double epochs)> steps = {};
};

/// Returns the config of a file after the settings ("key.path=value", as of --set; of several of one key the last
/// counts), with defaults resolved and everything checked: types, ranges, and what must fit together (heads, mesh and
/// batch, lengths). Relative data paths are taken from the working directory. Throws one Error(usage) whose text lists
/// every problem, one a line: "file:line: key: what, and what to do" (or "--set key=...: ..."), with the nearest known
/// name for an unknown key. rule: comes after this floor's own checks; programs pass layers' check_model.
///
/// With model.from, all keys of the section model have the values of that model. What is given next to it goes before
/// them where weights stay as they are (is_free_with_weights); model.rope_scaling.type replaces the whole section. Any
/// other key that is given must agree.
Config read_config(const std::string& path, const std::vector<std::string>& settings, ConfigUse use = ConfigUse::run,
                   const ConfigRule& rule = {}, const ConfigLookup& lookup = {});
/// The same, from text; `path` only names it in messages.
Config parse_config(const std::string& text, const std::string& path, const std::vector<std::string>& settings,
                    ConfigUse use = ConfigUse::run, const ConfigRule& rule = {}, const ConfigLookup& lookup = {});
/// Returns a config that a program has made or changed, checked and resolved as one that is read: by the same rules for
/// each value and for what must fit together. Throws Error(usage) with one line for each problem. What takes a config
/// from a program calls this.
Config checked_config(const Config& config, ConfigUse use, const ConfigRule& rule = {});
/// Returns the resolved config as YAML that read_config takes back to the same values (doubles round-trip).
std::string to_yaml(const Config& config);

/// A key's path and both values as text: "training.seq_len", "4096", "8192".
struct ConfigDifference {
  std::string key, before, after;
};
/// Returns every key whose value differs.
std::vector<ConfigDifference> differences(const Config& before, const Config& after);

}  // namespace ringtrain
