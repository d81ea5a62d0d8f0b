// Which model a run trains: its name, its parameters, and how a rank makes it. The trainer, the evaluator, generation,
// and checkpoints take a definition; the programs use transformer_definition(). A program's own model is the
// transformer with inserted layers (transformer_with), or any class that derives from Model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/parameter_table.h"

namespace ringtrain {

class Allocator;
class Communicator;
class ConfigProblems;
struct Config;
struct ExecutionShape;  // layers/execution_shape.h
struct LayerInsertion;  // layers/model_parameters.h
class Model;            // layers/model/model.h
struct ModelConfig;
struct ModelSpec;
class ParameterStore;
class Stream;

/// What a rank's model is made from. All of it outlives the model.
struct ModelContext {
  const Config& config;
  const ExecutionShape& shape;
  Allocator& allocator;  // when planning, without memory
  ParameterStore& parameters;
  Stream& stream;
  Communicator* sequence_group;  // the ranks that share this rank's sequences; null when planning
};

struct ModelDefinition {  // a kind of model, as runs, evaluations, and checkpoints take it
  /// Checkpoints record the name, and a checkpoint with another name is refused. So it must express everything in which
  /// the model differs from others, including its own sizes ("gated-64").
  std::string name;
  /// Returns the parameters of a model. Pure: all ranks, plans, and checkpoints call it. trainable: a config's
  /// training.trainable (see describe_parameters).
  std::function<ParameterTable(const ModelConfig& model, const std::vector<std::string>& trainable)> parameters;
  /// Makes a rank's model; collective over the sequence group. Allocates everything that the model needs.
  std::function<std::unique_ptr<Model>(const ModelContext& context)> make;

  /// Returns the parameters under a config, or of a model that is not trained.
  ParameterTable table(const Config& config) const;
  /// Returns the parameters of a model that is not trained.
  ParameterTable table(const ModelConfig& model) const { return parameters(model, {}); }
  /// Returns whether this is the model of the programs.
  bool is_transformer() const { return name == transformer; }
  static constexpr std::string_view transformer = "transformer";
};

/// Returns the definition of the programs' model: the transformer that a config describes.
const ModelDefinition& transformer_definition();

/// Returns the definition of that transformer with a program's own layers after its blocks. layers returns the layers
/// to insert into a model; it must be pure. The blocks' initial weights are the same as without the inserted layers.
/// Throws Error(usage) for a name that is empty or the transformer's; the definition's functions throw it for a block
/// that does not exist, for a parameter's name that is taken, and for adapters (lora), whose base has no such layers.
ModelDefinition transformer_with(std::string name,
                                 std::function<std::vector<LayerInsertion>(const ModelSpec& spec)> layers);

/// Returns the ConfigRule with which read_config checks a config of such a model: check_model with the model's own
/// parameters.
std::function<void(const Config&, ConfigProblems&)> rule_of(const ModelDefinition& model);

/// Throws Error(usage) unless a definition has a name and both functions.
void check_definition(const ModelDefinition& model);

}  // namespace ringtrain
