// How a run begins: from scratch, with the weights of a model, or where a checkpoint left off. Decides what may differ
// between a checkpoint's config and this one, and logs what does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "framework/config/choices.h"
#include "framework/config/config_check.h"
#include "layers/model/model_definition.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain {

struct DataConfig;  // framework/config/data_config.h
struct FolderContent;
struct ModelSource;  // train/models/model_source.h
class RunFolder;     // train/run/run_folder.h

/// The command line's settings about the beginning.
struct StartRequest {
  bool resume = false;
  std::string resume_path = {};  // a checkpoint, or a run's folder; "": the newest intact one of this run's folder
  std::string init_from = {};    // a path for open_model(); "": the weights of model.from
  std::int64_t layers = 0;       // how many of the first layers of init_from to use; 0: all
};

struct RunStart {
  std::shared_ptr<const ModelSource> source;        // of the weights; for a resume, a checkpoint; null: random weights
  std::int64_t step = 0;                            // done before this run begins
  std::int64_t skipped_steps = 0;                   // of these steps: those without an update
  std::optional<BaseModel> base = {};               // with lora: its weights are frozen, and stay in their own files
  std::optional<std::string> initial_weights = {};  // the path of the model with which step 1 begins, or began
  std::string run = {};    // this run's id, for its checkpoints; from choose_start: that of the resumed run, "" for a
                           // new run or if unknown
  std::string found = {};  // FolderContent::mark() when the start was decided
  bool evaluates_first = false;  // metrics lack the evaluation of the step from which the run continues
};

/// Throws Error(usage) if the request cannot be what its author meant for a folder with these contents: it holds a run,
/// and this is not a resume. A run that never saved anything may start again, with the same command. Throws
/// Error(checkpoint) if there are metrics of steps, but the checkpoints are gone.
void check_folder(const StartRequest& request, const RunFolder& folder, const FolderContent& content,
                  const Config& config);

/// Returns data.longer of the run to continue, if it was not given: a run keeps the rule with which it began.
LongDocuments longer_so_far(const StartRequest& request, const FolderContent& content, const DataConfig& data);

/// Returns how to begin, after check_folder(). log() receives what a person should know (a damaged checkpoint that was
/// skipped, changed keys, a new start). use: a plan needs only a model's sizes. Throws Error(usage) if the checkpoint
/// belongs to a run other than the folder's, and Error(checkpoint) if it is missing, damaged, or unlike this config
/// (with every differing key and both values).
RunStart choose_start(const StartRequest& request, const RunFolder& folder, const FolderContent& content,
                      const Config& config, ConfigUse use, const std::string& data_hash, const Log& log,
                      const ModelDefinition& model);

/// Returns whether rotary positions differ between the two models.
bool rescales(const ModelConfig& before, const ModelConfig& after);

}  // namespace ringtrain
