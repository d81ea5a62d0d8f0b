// Reads a config with the table of keys (config_schema.h): first the file's tree, then each setting, then the
// conditions between keys (config_check.h). Problems are collected in ConfigProblems and end in one Error.
#include "framework/config/read_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "framework/config/config.h"
#include "framework/config/config_problems.h"
#include "framework/config/config_schema.h"
#include "framework/config/config_values.h"
#include "framework/config/model_keys.h"
#include "framework/config/training_stages.h"
#include "framework/config/yaml_tree.h"
#include "framework/storage/files.h"
#include "framework/text/foreign_keys.h"
#include "framework/text/nearest_name.h"

namespace ringtrain {

namespace {

constexpr std::int64_t largest_file = 1 << 20;
/// A longer key is not a misspelling of a known one, and comparing it letter by letter takes too long.
constexpr std::size_t longest_slip = 100;
/// Keys of several sections, or that would mean something else in another one.
constexpr std::string_view means_by_section[]{"type",     "name",   "interval", "steps",     "data",
                                              "sequence", "factor", "rows",     "on_failure"};

std::string_view last_part(std::string_view path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 is 0
}

/// The paths of keys, and of the sections above them.
struct Paths {
  std::map<std::string, const ConfigKey*> keys;
  std::set<std::string> sections;

  Paths() {
    for (const ConfigKey& key : config_keys()) {
      keys[key.path] = &key;
      for (std::size_t dot = key.path.find('.'); dot != std::string::npos; dot = key.path.find('.', dot + 1)) {
        sections.insert(key.path.substr(0, dot));
      }
    }
  }

  /// Returns the known key or section nearest to path, "" if none is near. It compares the whole path, and the last
  /// part with those of other sections.
  std::string nearest(const std::string& path) const {
    std::string best;
    if (path.size() > longest_slip) return best;
    if (const ForeignKey* const known = foreign_key(path)) return std::string(known->key);
    std::size_t best_distance = std::string::npos;
    const auto consider = [&](const std::string& candidate) {
      const std::string_view last = last_part(path), known = last_part(candidate);
      // Another section costs one edit: a misspelling in the right section is likelier than the same word in another,
      // where it may mean something else.
      const std::size_t whole = edit_distance(path, candidate);
      const std::size_t tail = std::ranges::count(means_by_section, known) > 0 ? whole : edit_distance(last, known) + 1;
      const std::size_t allowed = std::max<std::size_t>(2, last.size() / 3);
      const std::size_t distance = std::min(whole, tail);
      if (distance <= allowed && distance < std::max<std::size_t>(known.size(), 2) && distance < best_distance) {
        best = candidate;
        best_distance = distance;
      }
    };
    for (const auto& [candidate, key] : keys) consider(candidate);
    for (const std::string& candidate : sections) consider(candidate);
    return best;
  }
};

/// Returns what a function of a lookup, which may be empty, finds for a key whose value depends on other files; returns
/// a default value after a problem.
template <class Value, class... Parameters, class... Arguments>
Value looked_up(ConfigProblems& problems, const std::string& key, const std::function<Value(Parameters...)>& function,
                const Arguments&... arguments) {
  try {
    if (function) return function(arguments...);
    problems.add(key, "depends on files that this program does not read; give {} instead",
                 key == "model.from" ? "the keys of model" : "training.steps");
  } catch (const Error& error) {
    problems.add(key, error.what());
  }
  return {};
}

class Reader {
 public:
  Reader(Config& config, ConfigProblems& problems) : config_(config), problems_(problems) {}

  void file(const YamlValue& root) {
    if (root.kind == YamlValue::Kind::null) {
      problems_.add(Origin{}, "", "the file holds no keys");
    } else if (root.kind != YamlValue::Kind::map) {
      problems_.add(Origin{root.line, -1}, "", "holds " + described(root) + ", but a config is a map of sections");
    } else {
      section("", root, Origin{1, -1});
    }
  }

  void setting(const std::string& text, int index) {
    const Origin origin{0, index};
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return problems_.add(origin, "", "must be key.path=value");
    }
    // Lists, maps, and quoted text are YAML; anything else is a scalar without further interpretation.
    const std::string value = text.substr(equals + 1);
    YamlValue tree;
    try {
      if (!value.empty() && std::string_view("[{\"'").find(value[0]) != std::string_view::npos) {
        tree = parse_yaml(value);
      } else {
        check_yaml_text(text);
        tree.kind = YamlValue::Kind::scalar;
        tree.text = value;
      }
    } catch (const YamlError& error) {
      return problems_.add(origin, "", error.what());
    }
    // A setting repeats a key of the file or of an earlier setting: the last one counts.
    seen_.clear();
    entry(text.substr(0, equals), tree, origin);
  }

  /// Returns the keys that the file or a setting gives.
  const std::set<std::string>& given() const { return given_; }

  /// Resolves values that depend on several keys: epochs become steps, and a share of the steps becomes their number,
  /// rounded up as in transformers.
  void finish(const ConfigLookup& lookup) {
    if (epochs_ && problems_.count() == 0) {
      config_.training.steps = looked_up(problems_, std::string(epochs), lookup.steps, config_, *epochs_);
    }
    if (!warmup_ratio_) return;
    config_.lr_scheduler.warmup_steps = static_cast<std::int64_t>(std::ceil(*warmup_ratio_ * config_.training.steps));
  }

  void require() {
    for (const auto& [path, key] : paths_.keys) {
      if (key->required && !given_.contains(path)) {
        problems_.add(Origin{}, path, "is required but missing (" + key->doc + ")");
      }
    }
    if (!given_.contains("lora.rank") && (given_.contains("lora.alpha") || given_.contains("lora.targets"))) {
      problems_.add(Origin{}, "lora.rank", "is missing, so there would be no adapters; give it, e.g. rank: 8");
    }
  }

 private:
  void section(const std::string& prefix, const YamlValue& map, Origin origin) {
    if (map.kind == YamlValue::Kind::null) return;  // an empty section
    if (map.kind != YamlValue::Kind::map) {
      return problems_.add(origin, prefix, "is a section of keys, but holds " + described(map));
    }
    for (const YamlEntry& child : map.entries) {
      const Origin at = origin.setting >= 0 ? origin : Origin{child.line, -1};
      if (child.key.find('.') != std::string::npos) {
        problems_.add(at, prefix.empty() ? child.key : prefix + "." + child.key,
                      "a key in a file must not contain dots: write one section inside the other");
        continue;
      }
      entry(prefix.empty() ? child.key : prefix + "." + child.key, child.value, at);
    }
  }

  void entry(const std::string& given_path, const YamlValue& value, Origin origin) {
    const std::string path(own_path_of(given_path));
    const auto [first, fresh] = seen_.emplace(path, origin.line);
    if (!fresh) {
      problems_.add(origin, path,
                    origin.line > 0 ? fmt::format("is given twice; the first is on line {}", first->second)
                                    : std::string("is given twice"));
    }
    const ReportProblem of_value = [&](int, const std::string& what) { problems_.add(origin, given_path, what); };
    if (path == own_path_of(warmup_ratio)) warmup_ratio_.reset();  // the last one counts
    if (path == own_path_of(epochs)) epochs_.reset();
    if (given_path == warmup_ratio) {
      read_real(value, {0, 1}, warmup_ratio_.emplace(), of_value);
    } else if (given_path == epochs) {
      problems_.given(given_path, origin);
      given_.insert(path);
      read_real(value, {0, 1e6, true}, epochs_.emplace(), of_value);
    } else if (const auto key = paths_.keys.find(path); key != paths_.keys.end()) {
      problems_.given(path, origin);
      given_.insert(path);
      key->second->read(config_, value, [&](int line, const std::string& what) {
        // The key's own line, except for a part of a list or map below it.
        const bool part = origin.setting < 0 && line > origin.line && value.kind != YamlValue::Kind::scalar;
        problems_.add(part ? Origin{line, -1} : origin, path, what);
      });
    } else if (paths_.sections.contains(path)) {
      section(path, value, origin);
    } else {
      unknown(path, value, origin);
    }
  }

  void unknown(const std::string& path, const YamlValue& value, Origin origin) {
    const ForeignKey* const foreign = foreign_key(path);
    const std::string nearest = problems_.fill_a_page() ? "" : paths_.nearest(path);
    problems_.add(
        origin, path,
        "unknown key" +
            (nearest.empty() ? "" : fmt::format("; did you mean {}?{}", nearest, foreign ? foreign->note : "")));
    if (nearest.empty()) return;
    // Continue as if the nearest key had been given, so that a misspelled key is not also reported as missing.
    if (paths_.sections.contains(nearest)) {
      if (value.kind == YamlValue::Kind::map && !seen_.contains(nearest)) section(nearest, value, origin);
    } else {
      given_.insert(std::string(own_path_of(nearest)));
    }
  }

  Config& config_;
  ConfigProblems& problems_;
  Paths paths_;
  std::map<std::string, int> seen_;  // line of each path of the file, or of the current setting
  std::set<std::string> given_;
  std::optional<double> warmup_ratio_, epochs_;
};

std::string read_text_file(const std::string& path) {
  if (is_directory(path)) fail(ExitCode::usage, "{}: is a folder, not a config file", path);
  const File file = File::open(path, ExitCode::usage);
  if (file.size() > largest_file) fail(ExitCode::usage, "{}: is larger than 1 MiB, so it is not a config", path);
  return file.content(largest_file);
}

/// Reads a file's tree and the settings after it.
void read_all(Reader& reader, const YamlValue& root, const std::vector<std::string>& settings) {
  reader.file(root);
  for (std::size_t i = 0; i < settings.size(); ++i) reader.setting(settings[i], static_cast<int>(i));
  reader.require();
}

/// Returns the model that the keys of the section model modify. given: these keys. config: as far as it has been read.
ModelConfig model_below(const Config& config, const std::set<std::string>& given, const ConfigLookup& lookup,
                        ConfigProblems& problems) {
  ModelConfig model;
  const bool described = std::ranges::any_of(given, [](const std::string& key) { return key.starts_with("model."); });
  const std::string& from = described ? config.model.from : lookup.model_otherwise;
  if (!from.empty()) {
    model = looked_up(problems, "model.from", lookup.model, from);
    model.from = from;
    if (given.contains("model.rope_scaling.type")) model.rope_scaling = {};
  } else if (lookup.vocabulary && !given.contains("model.vocab_size") && problems.count() == 0) {
    model.vocab_size = looked_up(problems, "data.train", lookup.vocabulary, config);
  }
  return model;
}

/// Adds a problem for each given key that would change the weights of model.from.
void check_agreement(const Config& config, const ModelConfig& below, const std::set<std::string>& given,
                     ConfigProblems& problems) {
  if (config.model.from.empty()) return;
  Config expected;
  expected.model = below;
  for (const ConfigKey& key : config_keys()) {
    if (!key.path.starts_with("model.") || !given.contains(key.path) || is_free_with_weights(key.path)) continue;
    const std::string value = key.write(config), other = key.write(expected);
    if (value == other || !problems.clean({key.path.c_str()})) continue;
    problems.add(key.path, "is {}, but the model of model.from has {}; leave it out", value, other);
  }
}

void finish(Config& config, ConfigUse use, const ConfigRule& rule, ConfigProblems& problems) {
  const std::size_t before = problems.count();
  resolve_and_check(config, use, problems);
  if (rule) rule(config, problems);
  if (problems.count() > before) return;  // it affects every stage
  // Each stage has its own config, of which a run keeps several copies.
  constexpr std::size_t most_bytes = std::size_t{1} << 26;
  const std::size_t bytes = to_yaml(config_of_stage(config, 0)).size() * config.training.stages.size();
  if (bytes > most_bytes) {
    return problems.add(
        "training.stages",
        "makes {} bytes of configs, but at most {} are allowed; give fewer stages, or shorter lists in the other keys",
        bytes, most_bytes);
  }
  for (int stage = 1; stage < stage_count(config.training); ++stage) {
    TrainingStage& training_stage = config.training.stages[static_cast<std::size_t>(stage - 1)];
    problems.within("training.stages", fmt::format("the stage from step {}", training_stage.from_step));
    Config of_stage = config_of_stage(config, stage);
    of_stage.evaluation.interval = 0;  // evaluations are the same in all stages
    if (training_stage.from_step > config.training.steps) {
      problems.add("from_step", "is after the last step, training.steps = {}; leave this stage out, or train longer",
                   config.training.steps);
    }
    resolve_and_check(of_stage, use, problems);
    if (rule) rule(of_stage, problems);
    if (training_stage.rope_scaling) training_stage.rope_scaling = of_stage.model.rope_scaling;
    problems.within("");
  }
}

}  // namespace

Config parse_config(const std::string& text, const std::string& path, const std::vector<std::string>& settings,
                    ConfigUse use, const ConfigRule& rule, const ConfigLookup& lookup) {
  Config first;
  ConfigProblems problems(path, settings);
  YamlValue root;
  try {
    root = parse_yaml(text);
  } catch (const YamlError& error) {
    throw Error(ExitCode::usage, error.in_file(path));
  }
  Reader reader(first, problems);
  read_all(reader, root, settings);
  const std::size_t before = problems.count();
  const ModelConfig below = model_below(first, reader.given(), lookup, problems);
  if (problems.count() > before) problems.throw_if_any();
  // Read again, based on the named model: the first reading has found its name and the keys that are given next to it.
  Config config;
  config.name = std::filesystem::path(path).stem().string();
  config.model = below;
  ConfigProblems all(path, settings);
  Reader again(config, all);
  read_all(again, root, settings);
  again.finish(lookup);
  finish(config, use, rule, all);
  check_agreement(config, below, reader.given(), all);
  all.throw_if_any();
  return config;
}

Config read_config(const std::string& path, const std::vector<std::string>& settings, ConfigUse use,
                   const ConfigRule& rule, const ConfigLookup& lookup) {
  return parse_config(read_text_file(path), path, settings, use, rule, lookup);
}

Config checked_config(const Config& config, ConfigUse use, const ConfigRule& rule) {
  Config checked = config;
  const std::vector<std::string> no_settings;
  ConfigProblems problems("the config", no_settings);
  check_values(checked, "", problems);
  problems.throw_if_any();
  finish(checked, use, rule, problems);
  problems.throw_if_any();
  return checked;
}

std::string to_yaml(const Config& config) {
  std::string text;
  std::string open;  // the section whose keys are being written
  for (const ConfigKey& key : config_keys()) {
    if (key.is_source) continue;
    const std::size_t dot = key.path.rfind('.');
    const std::string section = key.path.substr(0, dot);
    const auto depth = [](const std::string& path) { return std::count(path.begin(), path.end(), '.'); };
    if (section != open && !open.starts_with(section + ".")) {
      text += std::string(static_cast<std::size_t>(2 * depth(section)), ' ');
      text += std::string(last_part(section)) + ":\n";
    }
    open = section;
    text += std::string(static_cast<std::size_t>(2 * depth(key.path)), ' ');
    text += fmt::format("{}: {}  # {}\n", last_part(key.path), key.write(config), key.doc);
  }
  return text;
}

std::vector<ConfigDifference> differences(const Config& before, const Config& after) {
  std::vector<ConfigDifference> result;
  for (const ConfigKey& key : config_keys()) {
    std::string old_value = key.write(before), new_value = key.write(after);
    if (old_value != new_value) result.push_back({key.path, std::move(old_value), std::move(new_value)});
  }
  return result;
}

}  // namespace ringtrain
