// A model that lies somewhere, recognized by what stands at its path: a run's folder (its newest checkpoint), a
// checkpoint, a Hugging Face folder (config.json beside safetensors), or a PEFT folder of adapters. Wherever a program
// takes a checkpoint it takes each of them. Reading holds a slice of a tensor at a time, never a whole model.
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
  std::string path;                         // of the checkpoint, folder or file
  std::string name;                         // of a base, as its adapters name it; "": as its path
  ModelConfig model;                        // resolved
  std::int64_t context_length = 0;          // that it was trained for: its own, or that of its run if that is longer
  std::string identity;                     // equal where two processes see the same model: for require_agreement
  EndIds ends;                              // of a text, where the source names tokens of the model
  std::vector<std::string> unknown_ends;    // a sentence for each id that it names and that is none
  std::string tokenizer;                    // a folder that may hold one; "": there is none
  std::vector<std::string> logs;            // what a person should know of it, a sentence each
  std::optional<Checkpoint> checkpoint;     // none of a model from elsewhere
  std::shared_ptr<const ModelSource> base;  // of adapters (model.lora): the model beside whose weights they stand
  std::set<std::string> own;                // of adapters: the parameters that are not the base's
  /// Returns the folder beside a run's checkpoints where the files of its tokenizer are kept.
  static std::string tokenizer_folder(const std::string& run_folder) { return run_folder + "/tokenizer"; }
  /// Returns a reader of its own for each rank that calls, from any thread.
  std::function<WeightReader()> open_weights;
  /// Returns a hash of the content of all files of weights. Reads them whole, but for a checkpoint's.
  std::function<std::string()> hash_weights;
  std::int64_t weight_bytes = 0;  // of all files of weights

  /// Lets a run delete the checkpoint again: all of it has been read.
  void release() const {
    if (checkpoint) checkpoint->release();
    if (base) base->release();
  }
};

/// Returns the config under which a model is only asked: that of its run, or of a model from elsewhere the defaults.
Config config_of(const ModelSource& source);

/// Returns a warning if a length, given by `what`, is beyond that of a model with rotary positions: it begins to
/// fail there, unless these are scaled.
std::optional<std::string> beyond_context(const ModelSource& source, std::int64_t length, const char* what);

/// Opens what stands at path: reads its config, and where each tensor lies; of a checkpoint also verifies every file.
/// Throws Error(checkpoint) that names file and tensor: there is none, it is damaged or hostile, it lacks a tensor, has
/// one of another shape or one that its model does not know, or asks for what no layer here computes. definition: of a
/// model of a program's own, which is read from its checkpoints alone.
ModelSource open_model(const std::string& path, const ModelDefinition& definition = transformer_definition());

/// The same of the base of adapters, which `of` names in the sentence of an error. Adapters are no base: they are
/// refused before their own base is looked for, so no base leads back to itself.
ModelSource open_base_model(const std::string& path, const std::string& of);

/// Returns whether path is a Hugging Face folder with a config.json but without weights, which gives sizes alone.
bool has_only_sizes(const std::string& path);

/// Returns the reader of a config's model.from, for read_config, whose logs go to log: open_model(), but for a folder
/// that has sizes alone.
ModelReader model_reader(const Log& log);

/// Returns the source of a model whose path and config are set, with the parameters of the table in these files. Throws
/// Error(checkpoint) as check_placed_model() does.
ModelSource with_weights(ModelSource source, PlacedModel placed, const ParameterTable& table);

/// Returns the model of a checkpoint that is open.
ModelSource model_of(Checkpoint checkpoint);

}  // namespace ringtrain
