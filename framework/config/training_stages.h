// Stages of a run: from some steps on sequences are longer, steps have other sequences, rotary positions turn
// otherwise. Stage 0 is what the config says outside training.stages; each entry there begins one more. Pure.
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
/// Returns the stage, from 0, that a step (from 1) belongs to. Step 0, before the first, belongs to stage 0.
int stage_of_step(const TrainingConfig& training, std::int64_t step);
/// Returns a stage's first step.
std::int64_t first_step_of(const TrainingConfig& training, int stage);
/// Returns a stage's last step: that before the next stage, or of the run.
std::int64_t last_step_of(const TrainingConfig& training, int stage);

/// Returns the config as it holds in a stage, with an empty training.stages. A model that says for what length it is
/// meant says at least the longest of the stages up to this one.
Config config_of_stage(const Config& config, int stage);
/// Returns the config as it holds in a step.
Config config_of_step(const Config& config, std::int64_t step);
/// The same of all stages, in order.
std::vector<Config> configs_of_stages(const Config& config);
/// Returns the first stage that has the longest sequences.
int longest_stage(const TrainingConfig& training);

/// Returns how many sequences of `seq_len` tokens (0: of any length) the first `steps` steps take.
std::int64_t sequences_done(const TrainingConfig& training, std::int64_t steps, std::int64_t seq_len = 0);
/// Returns the tokens of the first `steps` steps.
std::int64_t tokens_done(const TrainingConfig& training, std::int64_t steps);

/// Returns what a stage is, for people: "16384 tokens, 2 sequences a step, yarn x 2".
std::string stage_text(const Config& config_of_stage);

/// Reads the key training.stages. keys: of a config; values are read by the rules of those that they stand for.
/// complain: told what is wrong, with its line.
void read_stages(const YamlValue& value, std::vector<TrainingStage>& out, std::span<const ConfigKey> keys,
                 const std::function<void(int line, const std::string& what)>& complain);
/// Returns it as YAML on one line.
std::string write_stages(const std::vector<TrainingStage>& stages, std::span<const ConfigKey> keys);

}  // namespace ringtrain
