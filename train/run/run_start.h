// How a run begins: afresh, with the weights of a checkpoint, or where a checkpoint left off. Decides what may differ
// between a checkpoint's config and this one, and says what does.
#pragma once

#include <cstdint>
#include <functional>
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

/// What the command line says about the beginning.
struct StartRequest {
  bool resume = false;
  std::string resume_path = {};  // a checkpoint, or a run's folder; "": the newest intact one of this run's folder
  std::string init_from = {};    // a path for open_model(); "": the weights of model.from
  std::int64_t layers = 0;       // of the model at init_from, the first that are taken; 0: all
};

struct RunStart {
  std::shared_ptr<const ModelSource> source;  // of the weights, of a resume a checkpoint; null: they are random
  bool weights_only = false;                  // --init-from
  std::int64_t step = 0;                      // done before this run begins
  std::int64_t tokens = 0;                    // of these steps
  std::int64_t skipped_steps = 0;             // of the steps done: without an update
  std::optional<BaseModel> base = {};         // with lora: whose weights stay as they are, and in their own files
  std::string run = {};    // which run this is, for its checkpoints; choose_start: that of the one to go on from, ""
                           // for a new run, or if it does not say
  std::string found = {};  // FolderContent::mark() when it was decided how to begin
  bool evaluates_first = false;  // a signal broke off the evaluation of the step that the run goes on from
};

/// Throws Error(usage) if the request cannot be what its author meant for a folder with this content: a run stands
/// there and this is no resume. One that never saved anything may begin again, by the same command. Throws
/// Error(checkpoint) if there are metrics of steps, and the checkpoints are gone.
void check_folder(const StartRequest& request, const RunFolder& folder, const FolderContent& content,
                  const Config& config);

/// Returns data.longer of the run that may go on, if it was not given: what began by one rule goes on by it.
LongDocuments longer_so_far(const StartRequest& request, const FolderContent& content, const DataConfig& data);

/// Returns how to begin, after check_folder(); log() gets what a person should know (a damaged checkpoint passed over,
/// changed keys, a fresh start). use: a plan needs no more of a model than its sizes. Throws Error(usage) if the
/// checkpoint belongs to another run than the folder, Error(checkpoint) if it is missing, damaged or unlike this config
/// (every differing key with both values).
RunStart choose_start(const StartRequest& request, const RunFolder& folder, const FolderContent& content,
                      const Config& config, ConfigUse use, const std::string& data_hash, const Log& log,
                      const ModelDefinition& model);

/// Returns whether rotary positions turn otherwise in one model than in the other.
bool rescales(const ModelConfig& before, const ModelConfig& after);

}  // namespace ringtrain
