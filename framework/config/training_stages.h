// Stages of a run: from given steps on, sequences have other lengths, steps have other numbers of sequences, or rotary
// positions have another scaling. Stage 0 is what the config says outside training.stages; each entry there begins
// another stage. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ringtrain {

struct Config;
struct ConfigKey;
struct TrainingConfig;
struct TrainingStage;
struct YamlValue;

/// Returns the number of stages: 1 without training.stages.
int stage_count(const TrainingConfig& training);
/// Returns the stage, from 0, of a step (from 1). Step 0, before the first, belongs to stage 0.
int stage_of_step(const TrainingConfig& training, std::int64_t step);
/// Returns a stage's first step.
std::int64_t first_step_of(const TrainingConfig& training, int stage);
/// Returns a stage's last step: the one before the next stage, or the run's last.
std::int64_t last_step_of(const TrainingConfig& training, int stage);

/// Returns the config of a stage, with an empty training.stages. If the model gives the length it is meant for, the
/// result gives at least the longest length of the stages up to this one.
Config config_of_stage(const Config& config, int stage);
/// Returns the config of a step.
Config config_of_step(const Config& config, std::int64_t step);
/// The same for all stages, in order.
std::vector<Config> configs_of_stages(const Config& config);
/// Returns the first stage that has the longest sequences.
int longest_stage(const TrainingConfig& training);

/// Returns how many sequences of `seq_len` tokens (0: of any length) the first `steps` steps take.
std::int64_t sequences_done(const TrainingConfig& training, std::int64_t steps, std::int64_t seq_len = 0);
/// Returns the number of tokens in the first `steps` steps.
std::int64_t tokens_done(const TrainingConfig& training, std::int64_t steps);

/// Returns a description of a stage: "16384 tokens, 2 sequences a step, yarn x 2".
std::string stage_text(const Config& config_of_stage);

/// Reads the key training.stages. keys: those of a config; a stage's values are read by the rules of the keys that they
/// replace. complain: receives each problem, with its line.
void read_stages(const YamlValue& value, std::vector<TrainingStage>& out, std::span<const ConfigKey> keys,
                 const std::function<void(int line, const std::string& what)>& complain);
/// Returns it as one line of YAML.
std::string write_stages(const std::vector<TrainingStage>& stages, std::span<const ConfigKey> keys);

}  // namespace ringtrain
