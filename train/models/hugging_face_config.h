// config.json of a Hugging Face folder: read strictly into a ModelConfig, and written so that transformers 4 and 5 read
// it. A key takes effect, or is known to change nothing that is computed here, or is refused by name: none is passed
// over unseen. Absent keys have the default of the model's class in transformers, as there. Classes: LlamaForCausalLM,
// MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, GPT2LMHeadModel. docs/hugging-face.md lists the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/config/config.h"

namespace ringtrain {

struct HuggingFaceConfig {
  ModelConfig model;                         // resolved, and one that the layers compute
  std::optional<std::int64_t> bos_token_id;  // any whole number: nothing here knows whether it is a token
  std::vector<std::int64_t> eos_token_ids;   // the same; a model may end its text in several ways
  std::vector<std::string> logs;             // what a person should know of it, a sentence each
};

/// Returns whether a folder has a config.json, and so is to be read as a Hugging Face folder.
bool is_hugging_face_folder(const std::string& folder);

/// Returns what FOLDER/config.json says. Throws Error(checkpoint), one sentence that names the file and the key, if it
/// is missing or no such file, or asks for what no layer here computes.
HuggingFaceConfig read_hugging_face_config(const std::string& folder);
/// The same, from text; `path` only names it in messages.
HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& path);

/// Returns the name of the class of transformers that computes an architecture, null if there is none.
const char* hugging_face_class(Architecture architecture);

/// What a config.json says beside the model.
struct HuggingFaceConfigExtras {
  std::string dtype = "float32";    // of the tensors beside it: float32, bfloat16, float16, float64
  std::int64_t context_length = 0;  // max_position_embeddings, where the model does not say
  std::optional<std::int32_t> bos_token_id;
  std::vector<std::int32_t> eos_token_ids;
};

/// Returns the text of a config.json for a resolved model: rope_parameters (transformers 5) and rope_theta and
/// rope_scaling (4), dtype and torch_dtype. ntk, which transformers lacks, is written as the theta that it amounts to;
/// a Llama with a sliding window as a Mistral, which it is. Throws Error(usage) for what no class of transformers is: a
/// sliding window with GPT-2, say.
std::string write_hugging_face_config(const ModelConfig& model, const HuggingFaceConfigExtras& extras);

}  // namespace ringtrain
