#include "layers/model/model_definition.h"

#include <utility>

#include "framework/config/config.h"
#include "framework/error.h"
#include "layers/check_model.h"
#include "layers/model/transformer.h"
#include "layers/model_parameters.h"

namespace ringtrain {

namespace {

using Insertions = std::function<std::vector<LayerInsertion>(const ModelSpec& spec)>;

ModelDefinition transformer_of(std::string name, Insertions layers) {
  ModelDefinition model;
  model.name = std::move(name);
  model.parameters = [layers](const ModelConfig& config, const std::vector<std::string>& trainable) {
    const ModelSpec spec = model_spec(config);
    return describe_parameters(spec, trainable, layers(spec)).table;
  };
  model.make = [layers = std::move(layers)](const ModelContext& context) -> std::unique_ptr<Model> {
    const ModelSpec spec = model_spec(context.config.model);
    return make_transformer(spec, context.shape, context.allocator, context.parameters, context.stream,
                            context.sequence_group, layers(spec));
  };
  return model;
}

}  // namespace

ParameterTable ModelDefinition::table(const Config& config) const {
  return parameters(config.model, config.training.trainable);
}

const ModelDefinition& transformer_definition() {
  static const ModelDefinition model = transformer_of(std::string(ModelDefinition::transformer),
                                                      [](const ModelSpec&) { return Insertions::result_type{}; });
  return model;
}

ModelDefinition transformer_with(std::string name, Insertions layers) {
  ModelDefinition model = transformer_of(std::move(name), std::move(layers));
  check_definition(model);
  if (model.is_transformer()) {
    fail(ExitCode::usage, "a model's definition is called \"{}\", a name that the programs use; give it another name",
         model.name);
  }
  return model;
}

std::function<void(const Config&, ConfigProblems&)> rule_of(const ModelDefinition& model) {
  return [table = model.parameters](const Config& config, ConfigProblems& problems) {
    check_model_with(config, problems, [&] { return table(config.model, {}); });
  };
}

void check_definition(const ModelDefinition& model) {
  if (model.name.empty()) fail(ExitCode::usage, "a model's definition has no name; checkpoints need one");
  if (!model.parameters || !model.make) {
    fail(ExitCode::usage, "the definition of the model \"{}\" does not have {}", model.name,
         model.parameters ? "make, which makes a rank's model" : "parameters, which returns the model's table");
  }
}

}  // namespace ringtrain
