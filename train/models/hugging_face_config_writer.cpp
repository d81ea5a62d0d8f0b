// Writes config.json: the keys that the classes of transformers 4 and 5 read, and no others.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "framework/error.h"
#include "train/models/hugging_face_config.h"
#include "train/models/hugging_face_rope.h"

namespace ringtrain {

namespace {

using nlohmann::json;

/// Returns the architecture whose class computes this model. Throws if none does.
Architecture class_of(const ModelConfig& model) {
  const auto refuse = [&](const std::string& what) {
    fail(ExitCode::usage, "a model of architecture {} cannot be written for transformers: {}",
         name_of(model.architecture), what);
  };
  const bool window = model.sliding_window > 0;
  if (model.architecture == Architecture::llama) {
    if (model.hidden_size % model.num_attention_heads != 0) {
      refuse(fmt::format("model.hidden_size = {} is not a multiple of model.num_attention_heads = {}",
                         model.hidden_size, model.num_attention_heads));
    }
    if (window && (model.attention_bias || model.mlp_bias)) {
      refuse("its Llama has no sliding window (model.sliding_window), and its Mistral no biases");
    }
    if (window) return Architecture::mistral;
  }
  if (model.architecture == Architecture::gpt2) {
    if (window) refuse("its GPT-2 has no sliding window (model.sliding_window)");
    if (model.num_key_value_heads != model.num_attention_heads) {
      refuse("its GPT-2 has as many key/value heads (model.num_key_value_heads) as query heads");
    }
    if (model.head_dim * model.num_attention_heads != model.hidden_size) {
      refuse("its GPT-2 has heads of model.hidden_size / model.num_attention_heads elements (model.head_dim)");
    }
  }
  if (!hugging_face_class(model.architecture)) refuse("it has no class of that name");
  return model.architecture;
}

void write_gpt2(const ModelConfig& model, json& out) {
  out["n_embd"] = model.hidden_size;
  out["n_layer"] = model.num_hidden_layers;
  out["n_head"] = model.num_attention_heads;
  out["n_inner"] = model.intermediate_size;
  out["n_positions"] = model.max_position_embeddings;
  out["n_ctx"] = model.max_position_embeddings;
  out["layer_norm_epsilon"] = model.rms_norm_eps;
  out["activation_function"] = "gelu_new";
  for (const char* const dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) out[dropout] = 0.0;
}

void write_window(const ModelConfig& model, Architecture architecture, json& out) {
  const bool window = model.sliding_window > 0;
  if (architecture == Architecture::mistral) {
    out["sliding_window"] = window ? json(model.sliding_window) : json(nullptr);
  } else if (architecture != Architecture::llama) {  // Qwen
    out["use_sliding_window"] = window;
    out["sliding_window"] = window ? json(model.sliding_window) : json(nullptr);
    out["max_window_layers"] = window ? 0 : model.num_hidden_layers;
    out["layer_types"] = std::vector<const char*>(static_cast<std::size_t>(model.num_hidden_layers),
                                                  window ? "sliding_attention" : "full_attention");
  }
}

void write_llama_family(const ModelConfig& model, Architecture architecture, std::int64_t context_length, json& out) {
  out["hidden_size"] = model.hidden_size;
  out["num_hidden_layers"] = model.num_hidden_layers;
  out["num_attention_heads"] = model.num_attention_heads;
  out["num_key_value_heads"] = model.num_key_value_heads;
  out["head_dim"] = model.head_dim;
  out["intermediate_size"] = model.intermediate_size;
  out["max_position_embeddings"] = model.max_position_embeddings > 0 ? model.max_position_embeddings : context_length;
  out["rms_norm_eps"] = model.rms_norm_eps;
  out["hidden_act"] = "silu";
  out["attention_dropout"] = 0.0;
  if (architecture == Architecture::llama || architecture == Architecture::qwen3) {
    out["attention_bias"] = model.attention_bias;
  }
  if (architecture == Architecture::llama) out["mlp_bias"] = model.mlp_bias;
  write_window(model, architecture, out);
  write_rope(model, out);
}

}  // namespace

std::string write_hugging_face_config(const ModelConfig& model, const HuggingFaceConfigExtras& extras) {
  ensure(model.max_position_embeddings > 0 || extras.context_length > 0,
         "a model's length is known when it is written");
  const Architecture architecture = class_of(model);
  json out;
  out["architectures"] = {hugging_face_class(architecture)};
  out["model_type"] = name_of(architecture);
  out["vocab_size"] = model.vocab_size;
  out["initializer_range"] = model.initializer_range;
  out["tie_word_embeddings"] = model.tie_word_embeddings;
  out["use_cache"] = true;
  out["dtype"] = extras.dtype;
  out["torch_dtype"] = extras.dtype;
  out["bos_token_id"] = extras.bos_token_id ? json(*extras.bos_token_id) : json(nullptr);
  out["eos_token_id"] = nullptr;
  if (extras.eos_token_ids.size() == 1) out["eos_token_id"] = extras.eos_token_ids[0];
  if (extras.eos_token_ids.size() > 1) out["eos_token_id"] = extras.eos_token_ids;
  if (architecture == Architecture::gpt2) {
    write_gpt2(model, out);
  } else {
    write_llama_family(model, architecture, extras.context_length, out);
  }
  return out.dump(2) + "\n";
}

}  // namespace ringtrain
