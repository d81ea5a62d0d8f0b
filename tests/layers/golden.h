// PyTorch's results in double (tests/golden/make_golden.py): config, sequences, loss, nll, and every gradient.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/config/model_config.h"
#include "tests/layers/harness.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {

struct Golden {
  ModelConfig config;
  Sequences sequences;
  double denominator, loss_sum;
  std::vector<double> nll;
  struct Parameter {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<double> gradient;
  };
  std::vector<Parameter> parameters;
};

template <class T>
std::vector<T> flattened(const nlohmann::json& rows) {
  std::vector<T> all;
  for (const auto& row : rows) std::ranges::copy(row.template get<std::vector<T>>(), std::back_inserter(all));
  return all;
}

/// Returns the value with this name in a table of names (framework/config/named.h), which must have it.
template <class Table>
auto value_of(const Table& table, const std::string& name) {
  return std::ranges::find_if(table, [&](const auto& entry) { return entry.name == name; })->value;
}

inline ModelConfig config_from(const nlohmann::json& json) {
  ModelConfig config;
  config.architecture = value_of(architecture_names, json["architecture"]);
  config.vocab_size = json["vocab_size"];
  config.hidden_size = json["hidden_size"];
  config.num_hidden_layers = json["num_hidden_layers"];
  config.num_attention_heads = json["num_attention_heads"];
  config.num_key_value_heads = json["num_key_value_heads"];
  config.head_dim = json["head_dim"];
  config.intermediate_size = json["intermediate_size"];
  config.rope_theta = json["rope_theta"];
  config.max_position_embeddings = json["max_position_embeddings"];
  config.sliding_window = json["sliding_window"];
  config.rms_norm_eps = json["rms_norm_eps"];
  config.tie_word_embeddings = json["tie_word_embeddings"];
  const nlohmann::json& scaling = json["rope_scaling"];
  config.rope_scaling.type = value_of(rope_type_names, scaling["type"]);
  config.rope_scaling.factor = scaling.value("factor", 1.0);
  config.rope_scaling.original_max_position_embeddings = scaling.value("original_max_position_embeddings", 0);
  return config;
}

inline Golden read_golden(const std::string& name) {
  std::ifstream file(source_folder() + "/tests/golden/" + name + ".json");
  const nlohmann::json json = nlohmann::json::parse(file);
  Golden golden;
  golden.config = config_from(json["config"]);
  const nlohmann::json& data = json["data"];
  golden.sequences.B = static_cast<std::int64_t>(data["tokens"].size());
  golden.sequences.S = static_cast<std::int64_t>(data["tokens"][0].size());
  golden.sequences.has_documents = json["documents_present"];
  golden.sequences.tokens = flattened<std::int32_t>(data["tokens"]);
  golden.sequences.labels = flattened<std::int32_t>(data["labels"]);
  golden.sequences.positions = flattened<std::int32_t>(data["positions"]);
  golden.sequences.documents = flattened<std::int32_t>(data["documents"]);
  golden.sequences.weights = flattened<double>(data["weights"]);
  golden.denominator = json["denominator"];
  golden.loss_sum = json["loss_sum"];
  golden.nll = flattened<double>(json["nll"]);
  for (const auto& parameter : json["parameters"])
    golden.parameters.push_back({parameter["name"], parameter["shape"], parameter["gradient"]});
  return golden;
}

/// The names of all files.
inline constexpr const char* golden_models[] = {
    "llama_tied_documents",       "llama_untied_window",   "llama_yarn",           "llama_linear",
    "llama_ntk_window_documents", "mistral_untied_window", "gpt2_tied_documents",  "gpt2_untied",
    "qwen2_tied_documents",       "qwen2_untied_window",   "qwen3_tied_documents", "qwen3_untied_yarn_window"};

}  // namespace ringtrain::testing
