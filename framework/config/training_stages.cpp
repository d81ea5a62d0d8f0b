#include "framework/config/training_stages.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "framework/config/config.h"
#include "framework/config/config_values.h"
#include "framework/counted.h"

namespace ringtrain {

namespace {

constexpr std::int64_t most_entries = 1000;
constexpr std::string_view scaling_section = "model.rope_scaling.";

/// The keys of an entry, and the config key whose rules apply to each.
struct EntryKey {
  const char* name;
  const char* key;
};
constexpr EntryKey entry_keys[] = {{"from_step", "training.steps"},
                                   {"seq_len", "training.seq_len"},
                                   {"global_batch_size", "training.global_batch_size"},
                                   {"rope_theta", "model.rope_theta"}};

const ConfigKey* find_key(std::span<const ConfigKey> keys, const std::string& path) {
  const auto found = std::ranges::find(keys, path, &ConfigKey::path);
  return found == keys.end() ? nullptr : &*found;
}

/// Reads one entry into `read`, a config with only this entry's values.
class EntryReader {
 public:
  EntryReader(std::span<const ConfigKey> keys, const ReportProblem& report) : keys_(keys), report_(report) {}

  void read(const YamlValue& value) {
    if (value.kind != YamlValue::Kind::map) {
      return report_(value.line,
                     fmt::format("has an entry that is {}, but a stage is a map: {{from_step: 100, seq_len: 16K}}",
                                 described(value)));
    }
    for (const YamlEntry& entry : value.entries) {
      if (!seen_.insert(entry.key).second) {
        report_(entry.line, fmt::format("gives {} twice in one stage", entry.key));
      } else if (entry.key == "rope_scaling") {
        scaling(entry);
      } else if (const auto known = std::ranges::find(entry_keys, entry.key, &EntryKey::name);
                 known == std::end(entry_keys)) {
        report_(
            entry.line,
            fmt::format(
                "has an unknown key {}; a stage has from_step, seq_len, global_batch_size, rope_theta and rope_scaling",
                entry.key));
      } else {
        of_key(known->key, entry);
      }
    }
    if (!seen_.contains("from_step")) report_(value.line, "has a stage without from_step, its first step");
  }

  TrainingStage stage() const {
    TrainingStage stage;
    stage.from_step = config_.training.steps;
    if (seen_.contains("seq_len")) stage.seq_len = config_.training.seq_len;
    if (seen_.contains("global_batch_size")) stage.global_batch_size = config_.training.global_batch_size;
    if (seen_.contains("rope_theta")) stage.rope_theta = config_.model.rope_theta;
    if (seen_.contains("rope_scaling")) stage.rope_scaling = config_.model.rope_scaling;
    return stage;
  }

 private:
  void scaling(const YamlEntry& entry) {
    if (entry.value.kind != YamlValue::Kind::map) {
      return report_(entry.line, fmt::format("has a rope_scaling that is {}, but it must be a map: {{type: yarn, "
                                             "factor: 2, original_max_position_embeddings: 8K}}",
                                             described(entry.value)));
    }
    std::set<std::string> seen;
    for (const YamlEntry& part : entry.value.entries) {
      const std::string path = std::string(scaling_section) + part.key;
      if (!seen.insert(part.key).second) {
        report_(part.line, fmt::format("gives rope_scaling.{} twice in one stage", part.key));
      } else if (find_key(keys_, path) == nullptr) {
        report_(part.line,
                fmt::format("has an unknown key rope_scaling.{}; its keys are those of model.rope_scaling", part.key));
      } else {
        of_key(path, part);
      }
    }
    if (!seen.contains("type")) report_(entry.line, "has a rope_scaling without a type; type: none turns scaling off");
  }

  void of_key(const std::string& path, const YamlEntry& entry) {
    find_key(keys_, path)->read(config_, entry.value, [&](int line, const std::string& what) {
      report_(line, fmt::format("has a stage whose {} {}", entry.key, what));
    });
  }

  std::span<const ConfigKey> keys_;
  const ReportProblem& report_;
  Config config_;
  std::set<std::string> seen_;
};

/// Returns the values of a section rope_scaling that are not defaults, on one line.
std::string scaling_text(const RopeScalingConfig& scaling, std::span<const ConfigKey> keys) {
  Config given, defaults;
  given.model.rope_scaling = scaling;
  std::string text = fmt::format("type: {}", name_of(scaling.type));
  for (const ConfigKey& key : keys) {
    if (!key.path.starts_with(scaling_section) || key.path == "model.rope_scaling.type") continue;
    const std::string value = key.write(given);
    if (scaling.type == RopeType::none && key.path == "model.rope_scaling.factor") continue;  // resolved: 1
    if (value != key.write(defaults)) text += fmt::format(", {}: {}", key.path.substr(scaling_section.size()), value);
  }
  return "{" + text + "}";
}

/// Calls take(seq_len, global_batch_size, steps) for each stage that has some of the first `steps` steps.
template <class Take>
void each_stage(const TrainingConfig& training, std::int64_t steps, const Take& take) {
  std::int64_t length = training.seq_len, sequences = training.global_batch_size;
  for (int stage = 0; stage < stage_count(training); ++stage) {
    if (stage > 0) {
      const TrainingStage& next = training.stages[static_cast<std::size_t>(stage - 1)];
      length = next.seq_len.value_or(length);
      sequences = next.global_batch_size.value_or(sequences);
    }
    const bool is_last = stage + 1 == stage_count(training);
    const std::int64_t end = is_last ? steps : std::min(steps, last_step_of(training, stage));
    const std::int64_t count = end - first_step_of(training, stage) + 1;
    if (count > 0) take(length, sequences, count);
  }
}

/// Changes the config of a stage into that of the next one.
void go_on(Config& config, const TrainingStage& next) {
  if (next.seq_len) config.training.seq_len = *next.seq_len;
  if (next.global_batch_size) config.training.global_batch_size = *next.global_batch_size;
  if (next.rope_theta) config.model.rope_theta = *next.rope_theta;
  if (next.rope_scaling) config.model.rope_scaling = *next.rope_scaling;
  std::int64_t& meant = config.model.max_position_embeddings;
  const bool table = config.model.architecture == Architecture::gpt2;  // the size of its table is fixed
  if (meant > 0 && !table) meant = std::max(meant, config.training.seq_len);
}

}  // namespace

int stage_count(const TrainingConfig& training) {
  return static_cast<int>(std::ssize(training.stages)) + 1;
}

int stage_of_step(const TrainingConfig& training, std::int64_t step) {
  return static_cast<int>(
      std::ranges::count_if(training.stages, [&](const TrainingStage& stage) { return stage.from_step <= step; }));
}

std::int64_t first_step_of(const TrainingConfig& training, int stage) {
  return stage == 0 ? 1 : training.stages[static_cast<std::size_t>(stage - 1)].from_step;
}

std::int64_t last_step_of(const TrainingConfig& training, int stage) {
  return stage + 1 == stage_count(training) ? training.steps : first_step_of(training, stage + 1) - 1;
}

Config config_of_stage(const Config& config, int stage) {
  Config result = config;
  result.training.stages = std::vector<TrainingStage>();  // releases its memory, which many copies would duplicate
  for (int i = 0; i < stage; ++i) go_on(result, config.training.stages[static_cast<std::size_t>(i)]);
  return result;
}

Config config_of_step(const Config& config, std::int64_t step) {
  return config_of_stage(config, stage_of_step(config.training, step));
}

std::vector<Config> configs_of_stages(const Config& config) {
  std::vector<Config> stages{config_of_stage(config, 0)};
  for (const TrainingStage& next : config.training.stages) go_on(stages.emplace_back(Config(stages.back())), next);
  return stages;
}

int longest_stage(const TrainingConfig& training) {
  std::int64_t length = training.seq_len, longest = length;
  int found = 0;
  for (int stage = 1; stage < stage_count(training); ++stage) {
    length = training.stages[static_cast<std::size_t>(stage - 1)].seq_len.value_or(length);
    if (length <= longest) continue;
    longest = length;
    found = stage;
  }
  return found;
}

std::int64_t sequences_done(const TrainingConfig& training, std::int64_t steps, std::int64_t seq_len) {
  std::int64_t sum = 0;
  each_stage(training, steps, [&](std::int64_t length, std::int64_t sequences, std::int64_t count) {
    if (seq_len == 0 || length == seq_len) sum += sequences * count;
  });
  return sum;
}

std::int64_t tokens_done(const TrainingConfig& training, std::int64_t steps) {
  std::int64_t sum = 0;
  each_stage(training, steps, [&](std::int64_t length, std::int64_t sequences, std::int64_t count) {
    sum += length * sequences * count;
  });
  return sum;
}

std::string stage_text(const Config& stage) {
  const RopeScalingConfig& scaling = stage.model.rope_scaling;
  std::string text = fmt::format("{} tokens, {} per step", stage.training.seq_len,
                                 counted(stage.training.global_batch_size, "sequence"));
  if (stage.model.architecture == Architecture::gpt2) return text;
  text += fmt::format(", theta {:g}", stage.model.rope_theta);
  return scaling.type == RopeType::none ? text
                                        : text + fmt::format(", {} x {:g}", name_of(scaling.type), scaling.factor);
}

void read_stages(const YamlValue& value, std::vector<TrainingStage>& out, std::span<const ConfigKey> keys,
                 const ReportProblem& report) {
  if (value.kind != YamlValue::Kind::list) {
    return report(value.line, fmt::format("is {}, but must be a list of stages: [{{from_step: 100, seq_len: 16K}}]",
                                          described(value)));
  }
  if (std::ssize(value.items) > most_entries) {
    return report(value.line, fmt::format("has {} stages, but at most {} are allowed; let one stage take more steps",
                                          value.items.size(), most_entries));
  }
  std::vector<TrainingStage> stages;
  bool fits = true;
  const ReportProblem mark = [&](int line, const std::string& what) {
    fits = false;
    report(line, what);
  };
  for (const YamlValue& item : value.items) {
    EntryReader reader(keys, mark);
    reader.read(item);
    if (!fits) continue;
    const TrainingStage stage = reader.stage();
    if (stage.from_step < 2) {
      mark(item.line,
           "has a stage from step 1 on, but training.seq_len and the other keys define the first stage; begin it at "
           "step 2 or later");
    } else if (!stages.empty() && stage.from_step <= stages.back().from_step) {
      mark(item.line,
           fmt::format("must ascend, but from_step {} follows {}", stage.from_step, stages.back().from_step));
    }
    stages.push_back(stage);
  }
  if (fits) out = std::move(stages);
}

std::string write_stages(const std::vector<TrainingStage>& stages, std::span<const ConfigKey> keys) {
  std::string list;
  for (const TrainingStage& stage : stages) {
    std::string text = fmt::format("from_step: {}", stage.from_step);
    if (stage.seq_len) text += fmt::format(", seq_len: {}", *stage.seq_len);
    if (stage.global_batch_size) text += fmt::format(", global_batch_size: {}", *stage.global_batch_size);
    if (stage.rope_theta) text += fmt::format(", rope_theta: {}", *stage.rope_theta);
    if (stage.rope_scaling) text += ", rope_scaling: " + scaling_text(*stage.rope_scaling, keys);
    list += (list.empty() ? "{" : ", {") + text + "}";
  }
  return "[" + list + "]";
}

}  // namespace ringtrain
