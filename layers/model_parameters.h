// Which parameters a model has: their names, shapes, buckets, and initial values (the table), and where each layer
// finds its own (the ids). Both come from one walk over the config, so they cannot disagree. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/parameter_table.h"
#include "framework/stream.h"
#include "layers/model_spec.h"
#include "parallel/parameter_store.h"

namespace ringtrain {

/// Ids in the parameter table; -1: the model has no such parameter.
struct LinearIds {
  int weight = -1;  // [O, I]
  int bias = -1;    // [O]
  int lora_a = -1;  // [r, I], of an adapter
  int lora_b = -1;  // [O, r]
};
struct NormIds {
  int weight = -1;  // [C]
  int bias = -1;    // [C], of a LayerNorm
};

struct BlockIds {
  int bucket = 0;
  NormIds attention_norm, feedforward_norm;                // before each half's computation
  NormIds attention_output_norm, feedforward_output_norm;  // after it
  LinearIds query, key, value, attention_output;
  NormIds query_norm, key_norm;  // [D], shared by all heads, or [H * D] and [G * D]
  int sinks = -1;                // [H]
  LinearIds gate;                // of a gated feedforward
  LinearIds up, down;
};

struct ModelIds {
  int token_embedding = -1;     // [V, C]
  int position_embedding = -1;  // [max_position_embeddings, C], where positions are learned
  std::vector<BlockIds> blocks;
  std::vector<std::vector<int>> inserted;  // of each of a program's own layers, in their order
  NormIds final_norm;
  LinearIds head;  // tied: the token embedding's id
  int head_bucket = 0;
  bool tied = false;
};

class InsertedLayer;  // layers/model/inserted_layer.h
struct LayerContext;

/// A program's own layer, and its position in the sequence of blocks.
struct LayerInsertion {
  std::int64_t behind = 0;  // the block that it follows, from 0; layers after the same block keep the list's order
  /// Each needs a name, shape, decay, and initial value. The table sets the rest.
  std::vector<Parameter> parameters = {};
  std::function<std::unique_ptr<InsertedLayer>(const LayerContext&)> make = {};
};

struct ModelParameters {
  ParameterTable table;
  ModelIds ids;
};

/// Returns the table and ids of a model. Names are those of a Hugging Face checkpoint: Llama's, with .bias for a
/// projection or norm that has one, and model.embed_positions.weight for learned positions. If a block has only norms
/// before its halves, they are input_layernorm and post_attention_layernorm. Otherwise the norms are input_layernorm
/// and pre_feedforward_layernorm before the halves, and post_attention_layernorm and post_feedforward_layernorm after
/// them. Sinks are self_attn.sinks. trainable: patterns (fnmatch) of the names to train; all others are frozen; empty:
/// all are trained. Adapters, NAME.lora_A.weight and NAME.lora_B.weight as in PEFT, are trained in addition to what the
/// patterns name. inserted: what a program's own layers add; the initial values of everything else are the same as
/// without them. Throws Error(usage) if such a layer follows a block that does not exist, has a name that is taken, or
/// is combined with adapters.
ModelParameters describe_parameters(const ModelSpec& spec, const std::vector<std::string>& trainable = {},
                                    const std::vector<LayerInsertion>& inserted = {});

/// Returns only the table of a model with all parameters trained. (Of a run: ModelDefinition::table.)
ParameterTable make_parameter_table(const ModelConfig& config);

/// Returns whether a pattern of training.trainable matches a parameter's name.
bool matches(const std::string& pattern, const std::string& name);

/// The names of an adapter's factors: NAME.lora_A.weight and NAME.lora_B.weight for NAME.weight.
struct LoraNames {
  std::string a, b;
};
/// Returns the names of a weight's factors.
LoraNames lora_names(const std::string& weight);
/// Returns the name of the weight to which a factor belongs.
std::string adapted_weight(const std::string& factor);

/// Returns the name that lora.targets uses for a matrix: "q_proj" for "model.layers.0.self_attn.q_proj.weight".
std::string projection_of(const std::string& name);

/// Returns all such names of a model's layers.
std::vector<std::string> projections_of(const ModelSpec& spec);
/// Returns the full names of the modules that may have an adapter: "model.layers.0.self_attn.q_proj" and so on.
std::vector<std::string> adaptable_modules(const ModelSpec& spec);
/// Returns a module's name and its suffixes after each dot, by which a config may name it: PEFT's rule for
/// target_modules.
std::set<std::string> ends_of(const std::string& module);
/// Returns whether one of these is among the given names.
bool is_named(const std::string& module, const std::set<std::string>& names);

/// Sets elements [begin, begin + part.numel()) of a parameter to their initial values in a new model: a pure function
/// of seed, parameter, and index, rounded to part's dtype. A base has the same values with and without adapters.
void initialize_parameter(Stream& stream, const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                          const TensorView& part);
/// Sets all weights that a rank holds to those of a new model, and their padding to zero.
void initialize_weights(Stream& stream, ParameterStore& parameters, std::uint64_t seed);

}  // namespace ringtrain
