#include "layers/model_parameters.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>

#include "framework/config/model_config.h"
#include "framework/error.h"
#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

/// Appends parameters to the table, named as in a Hugging Face Llama checkpoint.
class TableWriter {
 public:
  TableWriter(const ModelSpec& spec, const std::vector<std::string>& trainable, ParameterTable& table)
      : table_(table),
        trainable_(trainable),
        lora_(spec.lora),
        lora_targets_(spec.lora.targets.begin(), spec.lora.targets.end()),
        norm_bias_(spec.norm.kind == NormKind::layer_norm),
        norm_weight_(spec.norm.unit_offset ? 0.0 : 1.0),
        stddev_(spec.initializer_range) {}

  void begin_bucket(int bucket) { bucket_ = bucket; }

  /// factor: of the standard deviation of the initial values.
  int matrix(const std::string& name, std::int64_t rows, std::int64_t columns, double factor = 1.0) {
    return add({.name = name + ".weight", .shape = {rows, columns}, .decay = true, .init_stddev = stddev_ * factor});
  }
  LinearIds linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias, double factor = 1.0) {
    LinearIds ids;
    ids.weight = matrix(name, out, in, factor);
    if (bias) ids.bias = vector(name + ".bias", out, 0.0);
    if (lora_.on() && is_named(name, lora_targets_)) {
      // A has the variance of PEFT's kaiming_uniform_(a=sqrt(5)), which is uniform; B is zero.
      const double stddev_a = 1.0 / std::sqrt(3.0 * static_cast<double>(in));
      const auto [a, b] = lora_names(name + ".weight");
      ids.lora_a = add_adapter({.name = a, .shape = {lora_.rank, in}, .init_stddev = stddev_a});
      ids.lora_b = add_adapter({.name = b, .shape = {out, lora_.rank}});
    }
    return ids;
  }
  NormIds rms_norm(const std::string& name, std::int64_t width) {
    return {.weight = vector(name + ".weight", width, norm_weight_)};
  }
  NormIds norm(const std::string& name, std::int64_t width) {
    NormIds ids = rms_norm(name, width);
    if (norm_bias_) ids.bias = vector(name + ".bias", width, 0.0);
    return ids;
  }
  /// Adds a parameter of a program's own layer.
  int insert(Parameter parameter) {
    constexpr std::uint64_t first_stream = std::uint64_t{1} << 21;  // after those of adapters
    parameter.stream = first_stream + inserted_++;
    return add_to_bucket(std::move(parameter));
  }
  int vector(const std::string& name, std::int64_t size, double value) {
    return add({.name = name, .shape = {size}, .decay = false, .init_value = value});
  }

 private:
  int add(Parameter parameter) {
    parameter.stream = count_++;
    return add_to_bucket(std::move(parameter));
  }
  void check_name(const Parameter& parameter) const {
    const auto has_name = [&](const Parameter& other) { return other.name == parameter.name; };
    if (parameter.name.empty() || std::ranges::any_of(table_.all(), has_name)) {
      fail(ExitCode::usage, "a custom layer has a parameter \"{}\", {}; give it another name", parameter.name,
           parameter.name.empty() ? "which is not a valid name" : "and the model has one of that name already");
    }
  }
  int add_to_bucket(Parameter parameter) {
    if (inserted_ > 0) check_name(parameter);
    const auto means_it = [&](const std::string& pattern) { return matches(pattern, parameter.name); };
    parameter.bucket = bucket_;
    const bool all = trainable_.empty() && !lora_.on();
    if (!all && std::ranges::none_of(trainable_, means_it)) {
      parameter.part = Part::frozen;
      parameter.saved = !lora_.on();
    }
    return table_.add(std::move(parameter));
  }
  int add_adapter(Parameter parameter) {
    constexpr std::uint64_t first_stream = std::uint64_t{1} << 20;  // more than a base has parameters
    parameter.bucket = bucket_;
    parameter.adapter = true;
    parameter.stream = first_stream + adapters_++;
    return table_.add(std::move(parameter));
  }
  ParameterTable& table_;
  const std::vector<std::string>& trainable_;
  const LoraConfig& lora_;
  std::set<std::string> lora_targets_;
  bool norm_bias_;
  double norm_weight_;  // initial value
  double stddev_;
  int bucket_ = 0;
  std::uint64_t count_ = 0, adapters_ = 0, inserted_ = 0;  // parameters so far: base, adapters, inserted
};

BlockIds describe_block(TableWriter& writer, const ModelSpec& spec, std::int64_t layer) {
  const std::int64_t C = spec.hidden_size, F = spec.intermediate_size, D = spec.head_dim;
  const std::int64_t queries = spec.num_attention_heads * D, keys = spec.num_key_value_heads * D;
  const Biases& biases = spec.biases;
  // GPT-2 (Radford et al., 2019, section 2.3): the initial weights of what adds to the residual stream are divided by
  // the square root of the number of such additions.
  const double residual =
      spec.scaled_residual_init ? 1.0 / std::sqrt(2.0 * static_cast<double>(spec.num_hidden_layers())) : 1.0;
  const std::string prefix = "model.layers." + std::to_string(layer);
  BlockIds ids;
  ids.bucket = static_cast<int>(layer) + 1;
  writer.begin_bucket(ids.bucket);
  const bool before = spec.norm_before, after = spec.norm_after;
  if (before) ids.attention_norm = writer.norm(prefix + ".input_layernorm", C);
  ids.query = writer.linear(prefix + ".self_attn.q_proj", queries, C, biases.query_key_value);
  ids.key = writer.linear(prefix + ".self_attn.k_proj", keys, C, biases.query_key_value);
  ids.value = writer.linear(prefix + ".self_attn.v_proj", keys, C, biases.query_key_value);
  ids.attention_output = writer.linear(prefix + ".self_attn.o_proj", C, queries, biases.attention_output, residual);
  if (spec.query_key_norm != QueryKeyNorm::none) {
    ids.query_norm = writer.rms_norm(prefix + ".self_attn.q_norm", spec.query_key_norm_width(spec.num_attention_heads));
    ids.key_norm = writer.rms_norm(prefix + ".self_attn.k_norm", spec.query_key_norm_width(spec.num_key_value_heads));
  }
  if (spec.attention_sinks) ids.sinks = writer.vector(prefix + ".self_attn.sinks", spec.num_attention_heads, 0.0);
  if (after) ids.attention_output_norm = writer.norm(prefix + ".post_attention_layernorm", C);
  if (before) {
    ids.feedforward_norm =
        writer.norm(prefix + (after ? ".pre_feedforward_layernorm" : ".post_attention_layernorm"), C);
  }
  if (spec.gated_feedforward) ids.gate = writer.linear(prefix + ".mlp.gate_proj", F, C, biases.feedforward);
  ids.up = writer.linear(prefix + ".mlp.up_proj", F, C, biases.feedforward);
  ids.down = writer.linear(prefix + ".mlp.down_proj", C, F, biases.feedforward, residual);
  if (after) ids.feedforward_output_norm = writer.norm(prefix + ".post_feedforward_layernorm", C);
  return ids;
}

void check_inserted(const ModelSpec& spec, const std::vector<LayerInsertion>& inserted) {
  if (inserted.empty()) return;
  if (spec.lora.on()) {
    fail(ExitCode::usage,
         "lora.rank is {}, but a model with custom layers cannot have adapters; set lora.rank to 0; to train only some "
         "parameters, name them in training.trainable",
         spec.lora.rank);
  }
  for (const LayerInsertion& layer : inserted) {
    if (layer.behind >= 0 && layer.behind < spec.num_hidden_layers()) continue;
    fail(ExitCode::usage, "a custom layer follows block {}, but the model has blocks 0 to {}", layer.behind,
         spec.num_hidden_layers() - 1);
  }
}

}  // namespace

ModelParameters describe_parameters(const ModelSpec& spec, const std::vector<std::string>& trainable,
                                    const std::vector<LayerInsertion>& inserted) {
  check_inserted(spec, inserted);
  const std::int64_t C = spec.hidden_size, V = spec.vocab_size;
  ModelParameters model;
  ModelIds& ids = model.ids;
  ids.inserted.resize(inserted.size());
  TableWriter writer(spec, trainable, model.table);
  writer.begin_bucket(0);
  ids.token_embedding = writer.matrix("model.embed_tokens", V, C);
  if (spec.positions == Positions::learned) {
    ids.position_embedding = writer.matrix("model.embed_positions", spec.max_position_embeddings, C);
  }
  for (std::int64_t layer = 0; layer < spec.num_hidden_layers(); ++layer) {
    ids.blocks.push_back(describe_block(writer, spec, layer));
    for (std::size_t i = 0; i < inserted.size(); ++i) {
      if (inserted[i].behind != layer) continue;
      for (const Parameter& parameter : inserted[i].parameters) ids.inserted[i].push_back(writer.insert(parameter));
    }
  }
  ids.head_bucket = static_cast<int>(spec.num_hidden_layers()) + 1;
  ids.tied = model.table.ends_together = spec.tied_head;
  writer.begin_bucket(ids.head_bucket);
  ids.final_norm = writer.norm("model.norm", C);
  ids.head.weight = ids.tied ? ids.token_embedding : writer.matrix("lm_head", V, C);
  return model;
}

ParameterTable make_parameter_table(const ModelConfig& config) {
  return describe_parameters(model_spec(config)).table;
}

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

LoraNames lora_names(const std::string& weight) {
  const std::string name = weight.substr(0, weight.rfind(".weight"));
  return {name + ".lora_A.weight", name + ".lora_B.weight"};
}

std::string adapted_weight(const std::string& factor) {
  return factor.substr(0, factor.rfind(".lora_")) + ".weight";
}

std::string projection_of(const std::string& name) {
  const std::string path = name.substr(0, name.rfind('.'));
  return path.substr(path.rfind('.') + 1);  // npos + 1 is 0
}

std::vector<std::string> adaptable_modules(const ModelSpec& spec) {
  std::vector<std::string> names;
  const ParameterTable table = describe_parameters(spec).table;
  for (const Parameter& parameter : table.all()) {
    const bool in_layer = parameter.bucket >= 1 && parameter.bucket <= spec.num_hidden_layers();
    if (!in_layer || parameter.shape.rank() != 2 || parameter.adapter) continue;
    names.push_back(parameter.name.substr(0, parameter.name.rfind('.')));
  }
  return names;
}

std::vector<std::string> projections_of(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const std::string& module : adaptable_modules(spec)) {
    if (module.starts_with("model.layers.0.")) names.push_back(projection_of(module + ".weight"));
  }
  return names;
}

std::set<std::string> ends_of(const std::string& module) {
  std::set<std::string> ends{module};
  for (std::size_t dot = module.find('.'); dot != std::string::npos; dot = module.find('.', dot + 1)) {
    ends.insert(module.substr(dot + 1));
  }
  return ends;
}

bool is_named(const std::string& module, const std::set<std::string>& names) {
  return std::ranges::any_of(ends_of(module), [&](const std::string& end) { return names.contains(end); });
}

void initialize_parameter(Stream& stream, const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                          const TensorView& part) {
  if (parameter.init_stddev == 0) {
    fill(stream, part, parameter.init_value);
  } else {
    fill_normal(stream, part, parameter.init_stddev, seed,
                (parameter.stream << 40) + static_cast<std::uint64_t>(begin));
  }
}

void initialize_weights(Stream& stream, ParameterStore& parameters, std::uint64_t seed) {
  parameters.clear_weights();
  for (const ParameterSlice& slice : parameters.held()) {
    initialize_parameter(stream, parameters.table()[slice.parameter], seed, slice.begin, parameters.weights(slice));
  }
}

}  // namespace ringtrain
