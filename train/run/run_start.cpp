#include "train/run/run_start.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "framework/config/config_schema.h"
#include "framework/config/model_keys.h"
#include "framework/config/read_config.h"
#include "framework/config/training_stages.h"
#include "framework/counted.h"
#include "framework/error.h"
#include "parallel/shared_error.h"
#include "train/models/adapters/adapted_model.h"
#include "train/models/model_source.h"
#include "train/run/run_folder.h"

namespace ringtrain {

namespace {

/// Keys, or sections of keys, that a resume must keep: they change the meaning of the weights, the moments, or the
/// data's order.
constexpr std::array<std::string_view, 10> kept_on_resume{
    "model",       "training.seq_len", "training.global_batch_size", "training.seed", "training.dtype", "data.packing",
    "data.longer", "optimizer.name",   "training.trainable",         "lora"};

std::string change(const ConfigDifference& difference) {
  return fmt::format("{} was {} and is now {}", difference.key, difference.before, difference.after);
}

/// Returns whether two paths lead to the same existing folder.
bool same_folder(const std::string& path, const std::string& other) {
  std::error_code error;
  return std::filesystem::equivalent(path, other, error);
}

/// Returns the end of a message, which says how a run's config differs from this one; "" if it does not.
std::string differing(const FolderContent& content, const Config& config) {
  if (!content.config) return "it cannot be read";
  std::vector<std::string> changes;
  for (const ConfigDifference& difference : differences(*content.config, config)) changes.push_back(change(difference));
  return fmt::format("{}", fmt::join(changes, "; "));
}

/// Returns the checkpoint that --resume names.
Checkpoint open_named(const std::string& path, const Log& log, const ModelDefinition& model) {
  if (!is_run_folder(path)) return open_checkpoint(path, model);
  std::optional<Checkpoint> newest = CheckpointFolder(path + "/checkpoints").newest_intact(log, model);
  if (!newest) fail(ExitCode::checkpoint, "{}: this run has no checkpoint yet; wait for its first save", path);
  return *std::move(newest);
}

/// Throws unless the folder belongs to the checkpoint's own run, or has nothing that would be mixed with this run.
void check_same_run(const Checkpoint& checkpoint, const RunFolder& folder, const FolderContent& content,
                    const Config& config) {
  if (same_folder(parent_directory(checkpoint.path), folder.checkpoints_path()) || content.empty()) return;
  const bool begun_by_this = content.checkpoints.empty() && content.says_nothing_saved &&
                             content.metrics.first_step() > checkpoint.manifest.step &&
                             differing(content, config).empty();
  if (begun_by_this) return;
  fail(ExitCode::usage,
       "{}: contains another run than {}; continue that run with --resume without a path, or choose another --output",
       folder.path(), checkpoint.path);
}

/// Makes the model of --init-from the base of a run's adapters, which may have moved. Throws Error(checkpoint) unless
/// it is that base. A run without adapters no longer needs it.
void name_base(Checkpoint& checkpoint, const std::string& init_from, const Log& log) {
  if (init_from.empty()) return;
  if (!checkpoint.manifest.base) {
    return log(
        fmt::format("--init-from {} is ignored: the run continues with the weights of {}", init_from, checkpoint.path));
  }
  BaseModel& base = *checkpoint.manifest.base;
  const BaseModel named = base_of(open_model(init_from));
  if (named.hash != base.hash) {
    fail(ExitCode::checkpoint,
         "{}: the base of its adapters has the hash {}, but --init-from {} has {}; name that base, or leave the flag "
         "out",
         checkpoint.path, base.hash, init_from, named.hash);
  }
  base.path = named.path;
  base.name = named.name;
}

/// Returns the stages that have begun by a step, as far as a checkpoint of that step depends on them.
std::string stages_begun(const Config& config, std::int64_t step) {
  const std::vector<Config> stages = configs_of_stages(config);
  std::vector<TrainingStage> begun;
  for (int stage = 1; stage <= stage_of_step(config.training, step); ++stage) {
    const Config& stage_config = stages[static_cast<std::size_t>(stage)];
    begun.push_back({.from_step = first_step_of(config.training, stage),
                     .seq_len = stage_config.training.seq_len,
                     .global_batch_size = stage_config.training.global_batch_size,
                     .rope_theta = stage_config.model.rope_theta,
                     .rope_scaling = stage_config.model.rope_scaling});
  }
  return begun.empty() ? "none" : write_stages(begun, config_keys());
}

/// Throws Error(checkpoint) if a key differs that a resume must keep; logs each other key that differs.
void check_resumable(const Checkpoint& checkpoint, const Config& config, const std::string& data_hash, const Log& log) {
  std::vector<std::string> refused;
  const std::int64_t step = checkpoint.manifest.step;
  const std::string was = stages_begun(checkpoint.config, step), is = stages_begun(config, step);
  for (const ConfigDifference& difference : differences(checkpoint.config, config)) {
    if (std::ranges::any_of(kept_on_resume, [&](auto key) { return is_or_below(difference.key, key); })) {
      refused.push_back(change(difference));
    } else if (difference.key == "training.stages" && was != is) {
      refused.push_back(fmt::format(
          "training.stages: up to step {} they were {} and are now {}; only later stages may change", step, was, is));
    } else {  // future stages, mesh, chunks, rates, intervals, metrics
      log("changed since the checkpoint: " + change(difference));
    }
  }
  const bool one_rule = checkpoint.config.data.longer == config.data.longer;  // otherwise the hashes differ anyway
  if (one_rule && checkpoint.manifest.data_hash != data_hash) {
    refused.push_back(
        fmt::format("the hash of data.train's tokens was {} and is now {}", checkpoint.manifest.data_hash, data_hash));
  }
  if (!refused.empty()) {
    fail(ExitCode::checkpoint,
         "{}: does not match this config: {}; restore these values, or start a new run with --init-from (weights only)",
         checkpoint.path, fmt::join(refused, "; "));
  }
}

RunStart resumed(Checkpoint checkpoint, const Config& config, const std::string& data_hash, const Log& log) {
  RunStart start;
  check_resumable(checkpoint, config, data_hash, log);
  const CheckpointManifest manifest = checkpoint.manifest;
  start.source = std::make_shared<const ModelSource>(model_of(std::move(checkpoint)));
  start.step = manifest.step;
  start.skipped_steps = manifest.skipped_steps;
  start.base = manifest.base;
  start.initial_weights = manifest.initial_weights;
  start.run = manifest.run;
  log(fmt::format("resuming from {}: {}, {} tokens done", start.source->path, counted(start.step, "step"),
                  manifest.tokens));
  return start;
}

/// Throws Error(checkpoint) if the weights belong to another model. Rope scaling and theta, window, and everything
/// outside model may differ, except the adapters if both have them.
void check_weights_fit(const ModelSource& source, const Config& config, const Log& log, const ModelDefinition& model) {
  Config theirs = source.checkpoint ? source.checkpoint->config : config;
  theirs.model = source.model;
  theirs.training.seq_len = source.context_length;
  Config ours = config;
  for (Config* const either : {&theirs, &ours}) std::ranges::sort(either->model.lora.targets);  // order is free
  std::vector<std::string> refused;
  for (const ConfigDifference& difference : differences(theirs, ours)) {
    const bool of_adapters = source.model.lora.on() && config.model.lora.on() && is_or_below(difference.key, "lora");
    const bool is_free = is_free_with_weights(difference.key);
    if (of_adapters || (is_or_below(difference.key, "model") && !is_free)) {
      refused.push_back(change(difference));
    } else if (is_free || difference.key == "training.seq_len") {
      log("the weights were trained with other settings: " + change(difference));
    }
  }
  const ParameterTable table = model.table(config);
  for (const Parameter& parameter : table.all()) {  // would be in no file: neither the base's nor saved
    if (parameter.saved || !source.own_parameters.contains(parameter.name)) continue;
    refused.push_back(parameter.name +
                      " was trained in addition to the adapters, and training.trainable leaves it out");
    break;
  }
  if (!refused.empty()) {
    fail(ExitCode::checkpoint, "{}: holds the weights of another model: {}", source.path, fmt::join(refused, "; "));
  }
  for (const Config& stage : configs_of_stages(config)) {
    if (rescales(source.model, stage.model)) continue;
    const auto remark = beyond_context(source, stage.training.seq_len, "training.seq_len");
    if (!remark) continue;
    log(*remark);
    break;
  }
}

/// Returns the path of the model whose weights a new run starts with: --init-from, or the config's model.from unless
/// that gives only sizes; "": random weights. Throws Error(usage) if these two name different models.
std::string weights_of_new_run(const StartRequest& request, const ModelConfig& model) {
  const std::string from = model.from_scratch ? "" : model.from;
  if (request.init_from.empty() || from.empty() || same_folder(request.init_from, from)) {
    return request.init_from.empty() ? from : request.init_from;
  }
  fail(ExitCode::usage,
       "model.from is {}, but --init-from is {}, another model; leave one of them out, or set "
       "model.from_scratch: true to take the sizes of the first and the weights of the second",
       from, request.init_from);
}

}  // namespace

bool rescales(const ModelConfig& before, const ModelConfig& after) {
  Config old_config, new_config;
  old_config.model = before;
  new_config.model = after;
  return std::ranges::any_of(differences(old_config, new_config), [](const ConfigDifference& difference) {
    return difference.key == "model.rope_theta" || difference.key == "model.sliding_rope_theta" ||
           is_or_below(difference.key, "model.rope_scaling");
  });
}

void check_folder(const StartRequest& request, const RunFolder& folder, const FolderContent& content,
                  const Config& config) {
  const bool of_another = !request.resume_path.empty() && !same_folder(request.resume_path, folder.path());
  if (content.empty() || of_another) return;
  if (content.checkpoints.empty() && !content.says_nothing_saved) {
    fail(ExitCode::checkpoint,
         "{} has metrics up to step {}, but {} has no checkpoint: is a volume not mounted, or was it moved? Restore "
         "it, or choose another --output",
         folder.metrics_path(), content.metrics.last_step(), folder.checkpoints_path());
  }
  if (request.resume) return;
  if (!content.checkpoints.empty()) {
    fail(ExitCode::usage, "{}: already holds a run; continue it with --resume, or choose another --output",
         folder.path());
  }
  if (const std::string changed = differing(content, config); !changed.empty()) {
    fail(ExitCode::usage,
         "{}: already holds a run that ended after {} without saving, and its config differs ({}); restart that run "
         "with --resume, or choose another --output",
         folder.path(), counted(content.metrics.last_step(), "step"), changed);
  }
}

LongDocuments longer_so_far(const StartRequest& request, const FolderContent& content, const DataConfig& data) {
  std::optional<Config> before = content.config;
  if (!request.resume_path.empty()) {  // if it cannot be read, opening the checkpoint will report that
    caught([&] { before = read_config(request.resume_path + "/config.yaml", {}, ConfigUse::know); });
  }
  const bool goes_on = before && before->data.packing == data.packing;
  return goes_on && data.longer == LongDocuments::automatic ? before->data.longer : data.longer;
}

RunStart choose_start(const StartRequest& request, const RunFolder& folder, const FolderContent& content,
                      const Config& config, ConfigUse use, const std::string& data_hash, const Log& log,
                      const ModelDefinition& model) {
  if (!request.resume_path.empty() && !request.init_from.empty()) {
    fail(ExitCode::usage, "give either --resume PATH or --init-from, not both");
  }
  if (!request.resume_path.empty() && !same_folder(request.resume_path, folder.path())) {
    Checkpoint checkpoint = open_named(request.resume_path, log, model);
    check_same_run(checkpoint, folder, content, config);
    return resumed(std::move(checkpoint), config, data_hash, log);
  }
  if (request.resume) {
    std::optional<Checkpoint> newest = folder.checkpoints().newest_intact(log, model);
    if (newest) {
      name_base(*newest, request.init_from, log);
      return resumed(*std::move(newest), config, data_hash, log);
    }
    log(fmt::format("{}: there is no checkpoint to resume from; starting afresh", folder.path()));
  } else if (!content.empty()) {
    log(fmt::format("{}: the earlier run here saved nothing; it starts again", folder.path()));
  }
  if (const std::int64_t first = content.metrics.first_step(); first > 1) {
    fail(ExitCode::usage,
         "{}: its metrics begin at step {}: that run continued another run's checkpoint, and saved nothing; name that "
         "checkpoint with --resume PATH, or choose another --output",
         folder.path(), first);
  }
  RunStart start;
  const std::string weights = weights_of_new_run(request, config.model);
  if (use == ConfigUse::plan && !weights.empty() && has_only_sizes(weights)) {
    log(fmt::format("{} has no weights, which the run will need", weights));
  } else if (!weights.empty()) {
    ModelSource source = open_model(weights, model);
    if (config.model.from.empty()) {  // otherwise its reader has logged them
      for (const std::string& line : source.logs) log(line);
    }
    std::int64_t& layers = source.model.num_hidden_layers;
    if (request.layers > 0) layers = std::min(layers, request.layers);
    check_weights_fit(source, config, log, model);
    if (config.model.lora.on()) {
      start.base = base_of(source);
    } else if (source.model.lora.on()) {
      source = merged(std::move(source));
    }
    start.source = std::make_shared<const ModelSource>(std::move(source));
    start.initial_weights = start.source->path;
    log(fmt::format("starting with the weights of {}", start.source->path));
  } else if (config.model.lora.on()) {
    fail(ExitCode::usage, "lora.rank is {}: adapters need a base model; name it with model.from or --init-from",
         config.model.lora.rank);
  } else if (config.model.from_scratch) {
    log(fmt::format("model.from_scratch: the sizes are those of {}, and the weights are random", config.model.from));
  }
  return start;
}

}  // namespace ringtrain
