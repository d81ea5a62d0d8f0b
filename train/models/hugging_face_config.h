// config.json of a Hugging Face folder: read strictly into a ModelConfig, and written so that transformers 4 and 5 read
// it. A key takes effect, or is known to change nothing that is computed here, or is refused by name: none is passed
// over unseen. Absent keys have the default of the model's class in transformers, as there. The classes are those of
// train/models/hugging_face_families.h. docs/hugging-face.md lists the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/config/model_config.h"

namespace ringtrain {

/// What a file says of a text's ends: any whole numbers, nothing here knows whether they are tokens.
struct EndIds {
  std::optional<std::int64_t> begin;  // bos_token_id
  std::vector<std::int64_t> ends;     // eos_token_id: a model may end its text in several ways

  /// Adds what another file says: its ends, and its begin where there is none yet.
  void add(const EndIds& other);
  bool operator==(const EndIds&) const = default;
};

struct HuggingFaceConfig {
  ModelConfig model;  // resolved, and one that the layers compute
  EndIds ends;
  std::vector<std::string> logs;  // what a person should know of it, a sentence each
};

/// Returns whether a folder has a config.json, and so is to be read as a Hugging Face folder.
bool is_hugging_face_folder(const std::string& folder);

/// Returns what FOLDER/config.json says. Throws Error(checkpoint), one sentence that names the file and the key, if it
/// is missing or no such file, or asks for what no layer here computes.
HuggingFaceConfig read_hugging_face_config(const std::string& folder);
/// The same, from text; `path` only names it in messages.
HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& path);

/// Returns the ids in FOLDER/generation_config.json, none if there is no such file. Throws Error(checkpoint) that names
/// the file and the key if it is no such file.
EndIds read_generation_config(const std::string& folder);
/// Returns the text of a generation_config.json that has these ids besides all that the folder's own says; "" if that
/// has them already. Throws as reading does.
std::string write_generation_config(const std::string& folder, const EndIds& ids);

/// What a config.json says beside the model.
struct HuggingFaceConfigExtras {
  std::string dtype = "float32";    // of the tensors beside it: float32, bfloat16, float16, float64
  std::int64_t context_length = 0;  // max_position_embeddings, where the model does not say
  EndIds ends;
};

/// Returns the text of a config.json for a resolved model: rope_parameters (transformers 5) and rope_theta and
/// rope_scaling (4), dtype and torch_dtype. ntk, which transformers lacks, is written as the theta that it amounts to;
/// a Llama with a sliding window as a Mistral, which it is. The text has been read back: it means this very model.
/// Throws Error(usage) that names the keys which the model's class cannot hold: a sliding window with GPT-2, say.
std::string write_hugging_face_config(const ModelConfig& model, const HuggingFaceConfigExtras& extras);

}  // namespace ringtrain
