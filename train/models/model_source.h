// A model from any supported source, recognized by what is at its path: a run's folder (its newest checkpoint), a
// checkpoint, a Hugging Face folder (config.json and safetensors), or a PEFT folder of adapters. A program that takes a
// checkpoint takes all of these. Reading holds one slice of a tensor at a time, never a whole model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/config/model_config.h"
#include "framework/config/read_config.h"
#include "layers/model/model_definition.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/models/hugging_face_config.h"
#include "train/models/placed_weights.h"

namespace ringtrain {

struct ModelSource {
  std::string path;                         // of the checkpoint, folder, or file
  std::string name;                         // of a base, as its adapters name it; "": as its path
  ModelConfig model;                        // resolved
  std::int64_t context_length = 0;          // for which it was trained: its own, or its run's if that is longer
  std::string identity;                     // equal if two processes see the same model: for require_agreement
  EndIds ends;                              // of a text, if the source names tokens of the model
  std::vector<std::string> unknown_ends;    // one message for each id in its files that is not a token
  std::string tokenizer;                    // a folder that may hold one; "": no tokenizer
  std::vector<std::string> logs;            // what a person should know about it, one message each
  std::optional<Checkpoint> checkpoint;     // empty for a model from elsewhere
  std::shared_ptr<const ModelSource> base;  // of adapters (model.lora): the model that they adapt
  std::set<std::string> own_parameters;     // of adapters: the parameters that are not the base's
  /// Returns the folder, next to a run's checkpoints, where the files of its tokenizer are kept.
  static std::string tokenizer_folder(const std::string& run_folder) { return run_folder + "/tokenizer"; }
  /// Returns a separate reader for each rank that calls it, from any thread.
  std::function<WeightReader()> open_weights;
  /// Returns a hash of the content of all weight files. Reads them whole, except a checkpoint's.
  std::function<std::string()> hash_weights;
  std::int64_t weight_bytes = 0;  // of all weight files

  /// Allows a run to delete the checkpoint again: the caller has read all of it.
  void release() const {
    if (checkpoint) checkpoint->release();
    if (base) base->release();
  }
};

/// Returns the length for which a run's model is trained after a stage (from 0): that of the longest stage so far, or
/// that for which the model's rotary positions are meant, if it is longer: tuning on short texts does not reduce it.
std::int64_t context_length(const Config& config, int stage);

/// Returns the config for using a model without training: its run's, or, for a model from elsewhere, the defaults.
Config config_of(const ModelSource& source);

/// Returns a warning if a length, given by `what`, exceeds that of a model with rotary positions: there, the model
/// begins to fail unless they are scaled.
std::optional<std::string> beyond_context(const ModelSource& source, std::int64_t length, const char* what);

/// Opens the model at path: reads its config and where each tensor is; also verifies every file of a checkpoint. Throws
/// Error(checkpoint), which names file and tensor, if there is no model, if it is damaged or hostile, if a tensor is
/// missing, has another shape, or is unknown to the model, or if the model requests something that no layer here
/// computes. definition: of a program's own model, which can be read only from its checkpoints.
ModelSource open_model(const std::string& path, const ModelDefinition& definition = transformer_definition());

/// Does the same for the base of adapters; error messages name the adapters by `adapters_path`. Adapters cannot be a
/// base: they are refused before their own base is looked up, so no base leads back to itself.
ModelSource open_base_model(const std::string& path, const std::string& adapters_path);

/// Returns whether path is a Hugging Face folder with a config.json but without weights, which gives only sizes.
bool has_only_sizes(const std::string& path);

/// Returns read_config's reader of a config's model.from, whose logs go to log: open_model(), except for a folder that
/// has only sizes.
ModelReader model_reader(const Log& log);

/// Returns the source of a model whose path and config are set, with the table's parameters in these files. Throws
/// Error(checkpoint) like check_placed_model().
ModelSource with_weights(ModelSource source, PlacedModel placed, const ParameterTable& table);

/// Returns the model of an open checkpoint.
ModelSource model_of(Checkpoint checkpoint);

}  // namespace ringtrain
