// config.json of a Hugging Face folder: read strictly into a ModelConfig, and written so that transformers 4 and 5 can
// read it. Every key takes effect, or is known to change nothing that is computed here, or is refused by name: none is
// silently ignored. Absent keys have the default of the model's class in transformers. The classes are those of
// train/models/hugging_face_families.h. docs/hugging-face.md lists the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/config/model_config.h"

namespace ringtrain {

/// What a file says about a text's ends: any integers; this struct does not check that they are tokens.
struct EndIds {
  std::optional<std::int64_t> begin;  // bos_token_id
  std::vector<std::int64_t> ends;     // eos_token_id: a model may end its text in several ways

  /// Adds what another file says: its ends, and its begin if there is none yet.
  void add(const EndIds& other);
  bool operator==(const EndIds&) const = default;
};

struct HuggingFaceConfig {
  ModelConfig model;  // resolved, and computable by the layers
  EndIds ends;
  std::vector<std::string> logs;  // what a person should know about it, one message each
};

/// Returns whether a folder has a config.json, and so should be read as a Hugging Face folder.
bool is_hugging_face_folder(const std::string& folder);

/// Returns what FOLDER/config.json says. Throws Error(checkpoint), with one message that names the file and the key, if
/// it is missing or not such a file, or requests something that no layer here computes.
HuggingFaceConfig read_hugging_face_config(const std::string& folder);
/// Does the same for text; `path` is used only in messages.
HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& path);

/// Returns the ids in FOLDER/generation_config.json, empty if there is no such file. Throws Error(checkpoint), which
/// names the file and the key, if it is not such a file.
EndIds read_generation_config(const std::string& folder);
/// Returns the text of a generation_config.json that has these ids in addition to everything in the folder's own; "" if
/// that has them already. Throws as reading does.
std::string write_generation_config(const std::string& folder, const EndIds& ids);

/// What a config.json says in addition to the model.
struct HuggingFaceConfigExtras {
  std::string dtype = "float32";    // of the tensors in the folder: float32, bfloat16, float16, float64
  std::int64_t context_length = 0;  // max_position_embeddings, if the model does not have it
  EndIds ends;
};

/// Returns the text of a config.json for a resolved model: rope_parameters (transformers 5) and rope_theta and
/// rope_scaling (4), dtype and torch_dtype. transformers does not have ntk, so it is written as the equivalent theta; a
/// Llama with a sliding window is written as the Mistral that it is. The text has been read back: it means exactly this
/// model. Throws Error(usage), which names the keys that the model's class cannot hold: a sliding window with GPT-2,
/// for example.
std::string write_hugging_face_config(const ModelConfig& model, const HuggingFaceConfigExtras& extras);

}  // namespace ringtrain
