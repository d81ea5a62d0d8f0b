#include "train/run_start.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "framework/config/read_config.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

/// Keys, or sections of keys, that a resume must keep: they change what the weights, the moments or the data's order
/// mean.
constexpr std::array<std::string_view, 6> kept_on_resume{
    "model", "training.seq_len", "training.global_batch_size", "training.seed", "training.dtype", "data.packing"};

/// Model keys that change how weights are used, but not which weights there are.
constexpr std::array<std::string_view, 6> free_with_weights{"model.rope_scaling",      "model.rope_theta",
                                                            "model.sliding_window",    "model.rms_norm_eps",
                                                            "model.initializer_range", "model.max_position_embeddings"};

bool is_or_below(std::string_view key, std::string_view section) {
  return key == section || (key.starts_with(section) && key[section.size()] == '.');
}

template <std::size_t n>
bool any_above(std::string_view key, const std::array<std::string_view, n>& sections) {
  return std::any_of(sections.begin(), sections.end(), [&](std::string_view s) { return is_or_below(key, s); });
}

std::string change(const ConfigDifference& difference) {
  return fmt::format("{} was {}, is {}", difference.key, difference.before, difference.after);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

RunStart resumed(const std::string& path, const Config& config, const std::string& data_hash, const Note& note) {
  RunStart start;
  start.checkpoint = open_checkpoint(path);
  check_resumable(*start.checkpoint, config, data_hash, note);
  const CheckpointManifest& manifest = start.checkpoint->manifest;
  start.step = manifest.step;
  start.samples = manifest.samples;
  start.tokens = manifest.tokens;
  start.skipped_steps = manifest.skipped_steps;
  note(fmt::format("resuming from {}: {} steps, {} tokens done", start.checkpoint->path, start.step, start.tokens));
  return start;
}

}  // namespace

void check_resumable(const Checkpoint& checkpoint, const Config& config, const std::string& data_hash,
                     const Note& note) {
  std::vector<std::string> refused;
  for (const ConfigDifference& difference : differences(checkpoint.config, config)) {
    if (any_above(difference.key, kept_on_resume)) {
      refused.push_back(change(difference));
    } else {
      note("changed since the checkpoint: " + change(difference));
    }
  }
  if (checkpoint.manifest.data_hash != data_hash) {
    refused.push_back(
        fmt::format("the hash of data.train's tokens was {}, is {}", checkpoint.manifest.data_hash, data_hash));
  }
  if (!refused.empty()) {
    fail(ExitCode::checkpoint,
         "{}: is unlike this config: {}; put these back, or start a new run with --init-from (weights only)",
         checkpoint.path, joined(refused));
  }
}

void check_weights_fit(const Checkpoint& checkpoint, const Config& config, const Note& note) {
  std::vector<std::string> refused;
  for (const ConfigDifference& difference : differences(checkpoint.config, config)) {
    if (!is_or_below(difference.key, "model")) {
      if (difference.key == "training.seq_len") note("not that of the weights: " + change(difference));
    } else if (any_above(difference.key, free_with_weights)) {
      note("not that of the weights: " + change(difference));
    } else {
      refused.push_back(change(difference));
    }
  }
  if (!refused.empty()) {
    fail(ExitCode::checkpoint, "{}: holds the weights of another model: {}", checkpoint.path, joined(refused));
  }
}

RunStart choose_start(const StartRequest& request, const RunFolder& folder, const Config& config,
                      const std::string& data_hash, const Note& note) {
  if (folder.holds_run() && !request.resume) {
    fail(ExitCode::usage, "{}: already holds a run; continue it with --resume, or choose another --output",
         folder.path());
  }
  if (!request.resume_path.empty()) {
    if (!request.init_from.empty()) fail(ExitCode::usage, "--resume PATH and --init-from exclude each other");
    return resumed(request.resume_path, config, data_hash, note);
  }
  if (request.resume) {
    const std::string newest = CheckpointFolder(folder.checkpoints_path()).newest_intact(note);
    if (!newest.empty()) return resumed(newest, config, data_hash, note);
    note(fmt::format("{}: there is no checkpoint to resume from; starting afresh", folder.path()));
  }
  RunStart start;
  if (!request.init_from.empty()) {
    start.checkpoint = open_checkpoint(request.init_from);
    start.weights_only = true;
    check_weights_fit(*start.checkpoint, config, note);
    note(fmt::format("starting with the weights of {}", start.checkpoint->path));
  }
  return start;
}

}  // namespace ringtrain
