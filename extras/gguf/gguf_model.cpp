#include "extras/gguf/gguf_model.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "extras/gguf/gguf_weights.h"
#include "framework/error.h"
#include "framework/storage/plain_text.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"

namespace ringtrain {

namespace {

const std::string key_prefix = "llama.";

/// Keys of the architecture that are read here, or that say nothing about what is computed.
constexpr std::array<std::string_view, 17> known_keys{"block_count",
                                                      "context_length",
                                                      "embedding_length",
                                                      "feed_forward_length",
                                                      "attention.head_count",
                                                      "attention.head_count_kv",
                                                      "attention.layer_norm_rms_epsilon",
                                                      "attention.key_length",
                                                      "attention.value_length",
                                                      "rope.freq_base",
                                                      "rope.dimension_count",
                                                      "rope.scaling.type",
                                                      "rope.scaling.factor",
                                                      "rope.scaling.original_context_length",
                                                      "rope.scaling.finetuned",
                                                      "tensor_data_layout",
                                                      "vocab_size"};

constexpr std::int64_t most_tokens = std::int64_t{16} << 20;  // as in a config

/// Reads the keys of one file's architecture.
class Keys {
 public:
  explicit Keys(const GgufFile& file) : file_(file) {}

  std::int64_t count(const std::string& key) const {
    const auto* const value = file_.find<std::int64_t>(key_prefix + key);
    if (value == nullptr) file_.refuse("has no key {}{}", key_prefix, key);
    return checked(key, *value);
  }
  std::int64_t count(const std::string& key, std::int64_t other) const {
    return checked(key, file_.get(key_prefix + key, other));
  }
  double real(const std::string& key, double other) const {
    const double value = file_.get(key_prefix + key, other);
    if (!(value > 0 && value < 1e12)) refuse(key, fmt::format("{}: must be a number above 0", value));
    return value;
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    file_.refuse("key {}{} is {}", key_prefix, key, what);
  }

 private:
  std::int64_t checked(const std::string& key, std::int64_t value) const {
    constexpr std::int64_t most = std::int64_t{1} << 30;
    if (value < 1 || value > most) refuse(key, fmt::format("{}: must be from 1 to {}", value, most));
    return value;
  }
  const GgufFile& file_;
};

void refuse_unknown(const GgufFile& file) {
  const std::string architecture = file.get<std::string>("general.architecture", "");
  if (architecture + "." != key_prefix) {
    file.refuse("is of architecture \"{}\"; of GGUF files llama is read; use the model's Hugging Face folder",
                plain_text(architecture));
  }
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with(key_prefix) &&
        std::ranges::find(known_keys, std::string_view(key).substr(key_prefix.size())) == known_keys.end()) {
      file.refuse("has the key {}, which asks for what is not known here", plain_text(key));
    }
  }
  if (file.tensors().contains("rope_freqs.weight")) {
    file.refuse(
        "has rope_freqs.weight, scaled rotary frequencies, which are not read from GGUF files; use the model's Hugging "
        "Face folder");
  }
}

RopeScalingConfig read_scaling(const GgufFile& file, const Keys& keys) {
  RopeScalingConfig scaling;
  const std::string type = file.get<std::string>(key_prefix + "rope.scaling.type", "none");
  if (type == "none") return scaling;
  if (type != "linear" && type != "yarn") {
    keys.refuse("rope.scaling.type", fmt::format("\"{}\"; none, linear and yarn are read", plain_text(type)));
  }
  scaling.type = type == "linear" ? RopeType::linear : RopeType::yarn;
  scaling.factor = keys.real("rope.scaling.factor", 1);
  if (scaling.type == RopeType::yarn) {
    scaling.original_max_position_embeddings = keys.count("rope.scaling.original_context_length");
  }
  return scaling;
}

}  // namespace

ModelConfig read_gguf_model(const GgufFile& file) {
  refuse_unknown(file);
  const Keys keys(file);
  ModelConfig model;
  model.architecture = Architecture::llama;
  model.num_hidden_layers = keys.count("block_count");
  model.hidden_size = keys.count("embedding_length");
  model.intermediate_size = keys.count("feed_forward_length");
  model.num_attention_heads = keys.count("attention.head_count");
  model.num_key_value_heads = keys.count("attention.head_count_kv", model.num_attention_heads);
  model.rms_norm_eps = keys.real("attention.layer_norm_rms_epsilon", 1e-5);
  model.rope_theta = keys.real("rope.freq_base", 10000);
  model.rope_scaling = read_scaling(file, keys);
  model.max_position_embeddings = keys.count("context_length");
  if (model.hidden_size % model.num_attention_heads != 0 &&
      file.find<std::int64_t>(key_prefix + "attention.key_length") == nullptr) {
    keys.refuse("attention.head_count", fmt::format("{}, which does not divide embedding_length {}",
                                                    model.num_attention_heads, model.hidden_size));
  }
  model.head_dim =
      keys.count("attention.key_length", std::max<std::int64_t>(1, model.hidden_size / model.num_attention_heads));
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    if (const std::int64_t value = keys.count(key, model.head_dim); value != model.head_dim) {
      keys.refuse(key, fmt::format("{}, but a head has {} elements", value, model.head_dim));
    }
  }
  if (model.head_dim % 2 != 0) keys.refuse("attention.key_length", fmt::format("{}: must be even", model.head_dim));
  if (model.num_attention_heads % model.num_key_value_heads != 0) {
    keys.refuse("attention.head_count_kv", fmt::format("{}, which does not divide the {} heads",
                                                       model.num_key_value_heads, model.num_attention_heads));
  }
  const auto embedding = file.tensors().find("token_embd.weight");
  if (embedding == file.tensors().end() || embedding->second.shape.size() != 2) {
    file.refuse("has no matrix token_embd.weight");
  }
  model.vocab_size = embedding->second.shape[0];
  if (model.vocab_size < 2 || model.vocab_size > most_tokens) {
    file.refuse("token_embd.weight has {} rows, but a vocabulary has 2 to {} tokens", model.vocab_size, most_tokens);
  }
  model.tie_word_embeddings = !file.tensors().contains("output.weight");
  check_model_of_file(model, file.path());
  return model;
}

ModelSource open_gguf_model(const GgufFile& file) {
  ModelSource source;
  source.path = file.path();
  source.model = read_gguf_model(file);
  source.context_length = source.model.max_position_embeddings;
  for (const char* role : {"bos", "eos", "eot", "eom"}) {  // of a turn, of a message: they end a text, too
    const auto* const id = file.find<std::int64_t>(fmt::format("tokenizer.ggml.{}_token_id", role));
    if (id == nullptr) continue;
    const bool begins = std::string_view(role) == "bos";
    add_ends(source, file.path() + ": tokenizer.ggml.", begins ? EndIds{*id, {}} : EndIds{{}, {*id}}, role);
  }
  check_gguf_weights(file, make_parameter_table(source.model));
  source.open_weights = [file, head_dim = source.model.head_dim] { return read_gguf_weights(file, head_dim); };
  return source;
}

}  // namespace ringtrain
