#include "train/models/adapters/peft_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/config/config.h"
#include "framework/config/config_problems.h"
#include "framework/error.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/plain_text.h"
#include "framework/storage/safetensors.h"
#include "framework/storage/strict_json.h"
#include "layers/model_parameters.h"
#include "layers/model_spec.h"
#include "train/models/adapters/adapted_model.h"
#include "train/models/adapters/peft_targets.h"
#include "train/models/hugging_face_config.h"
#include "train/models/hugging_face_families.h"
#include "train/models/json_keys.h"

namespace ringtrain {

namespace {

constexpr std::int64_t largest_config = 1 << 20, largest_rank = 4096;

/// Keys that change nothing here: settings of training or merging, or what PEFT records about itself.
constexpr std::array<const char*, 16> harmless{
    "auto_mapping",      "base_model_class",  "bias",           "corda_config", "ensure_weight_tying", "eva_config",
    "inference_mode",    "init_lora_weights", "loftq_config",   "lora_dropout", "megatron_core",       "peft_version",
    "qalora_group_size", "revision",          "runtime_config", "task_type"};

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

/// The contents of adapter_config.json.
struct AdapterConfig {
  LoraConfig lora;
  PeftTargets targets;
  std::string base;
  std::vector<std::string> modules;  // suffixes of their names
};

AdapterConfig parse_adapter_config(const std::string& text, const std::string& path) {
  const nlohmann::json json = parse_object(text, path);
  JsonKeys keys(json, path);
  if (const std::string type = keys.text("peft_type", ""); type != "LORA") {
    keys.refuse("peft_type", "is \"{}\"; only LORA is supported", excerpt(type));
  }
  if (const std::string bias = keys.text("bias", "none"); bias != "none") {
    keys.refuse("bias", "is \"{}\"; biases in addition to adapters are not supported", excerpt(bias));
  }
  AdapterConfig config;
  if (keys.has("init_lora_weights") && keys.at("init_lora_weights").is_string() &&
      keys.text("init_lora_weights", "") != "gaussian") {
    keys.refuse("init_lora_weights", "may have changed the base; convert these adapters with PEFT first");
  }
  config.base = keys.text("base_model_name_or_path", "");
  config.lora.rank = keys.integer("r", 8);
  config.lora.alpha = keys.real("lora_alpha", 8);
  if (config.lora.rank < 1 || config.lora.rank > largest_rank) {
    keys.refuse("r", "is {}, but must be from 1 to {}", config.lora.rank, largest_rank);
  }
  if (!(config.lora.alpha > 0 && config.lora.alpha <= 1e6)) keys.refuse("lora_alpha", "must be above 0, at most 1e6");
  if (keys.has("use_rslora") && keys.flag("use_rslora", false)) {
    config.lora.alpha *= std::sqrt(static_cast<double>(config.lora.rank));
  }
  config.targets = read_targets(keys);
  if (keys.has("modules_to_save")) config.modules = keys.texts("modules_to_save");
  for (const char* const key : harmless) keys.names(key);
  for (const std::string& key : keys.unasked()) {
    if (!asks_for_nothing(keys.at(key))) {
      keys.refuse(key, "is {}, which is not supported", shown(keys.at(key)));
    }
  }
  return config;
}

/// Opens the model that a folder's config names.
ModelSource open_named_base(const std::string& folder, const std::string& name) {
  const std::string config = folder + "/" + adapter_config_file;
  if (name.empty() || name.find('\0') != std::string::npos) {
    fail(ExitCode::checkpoint,
         "{}: base_model_name_or_path is \"{}\", which is not a path; write the path of the base there", config,
         plain_text(name));
  }
  const std::string with_adapters = parent_directory(folder) + "/" + file_name(name);
  std::error_code error;
  for (const std::string& path : {name, with_adapters}) {
    if (!path_exists(path, ExitCode::checkpoint)) continue;
    if (std::filesystem::equivalent(path, folder, error)) {
      fail(ExitCode::checkpoint,
           "{}: base_model_name_or_path is \"{}\", which leads to {}, the folder of these adapters; write the base's "
           "path in that key, or rename this folder if only its name is the same as the base's",
           config, excerpt(name), excerpt(path));
    }
    return open_base_model(path, config);
  }
  fail(ExitCode::checkpoint,
       "{}: base_model_name_or_path is \"{}\", and neither that nor {} exists; put the base at one of these paths",
       config, excerpt(name), excerpt(with_adapters));
}

bool ends_with_any(const std::string& module, const std::vector<std::string>& ends) {
  return std::ranges::any_of(ends, [&](const std::string& end) { return module.ends_with(end); });
}

/// Unties a model's embedding and head as PEFT does if both are in modules_to_save: each then has its own numbers.
/// Throws Error(checkpoint) if only one of them is saved.
void untie(ModelConfig& model, const std::vector<std::string>& modules, const std::string& path) {
  if (!model.tie_word_embeddings) return;
  const std::string embedding = module_of(make_parameter_table(model)[0].name), head = "lm_head";
  const bool has_embedding = ends_with_any(embedding, modules), has_head = ends_with_any(head, modules);
  if (has_embedding != has_head) {
    fail(ExitCode::checkpoint, "{}: modules_to_save has {} without {}, which the base ties to it; save both, or merge",
         path, has_head ? head : embedding, has_head ? embedding : head);
  }
  model.tie_word_embeddings = !has_head;
}

}  // namespace

bool is_peft_folder(const std::string& folder) {
  return is_directory(folder, ExitCode::checkpoint) &&
         path_exists(folder + "/" + adapter_config_file, ExitCode::checkpoint);
}

ModelSource open_peft_folder(const std::string& folder) {
  const std::string path = folder + "/" + adapter_config_file;
  const AdapterConfig config =
      parse_adapter_config(read_in_folder(folder, adapter_config_file, ExitCode::checkpoint, largest_config), path);
  ModelSource base = open_named_base(folder, config.base);
  base.name = config.base;
  ModelSource source = base;
  source.path = folder;
  source.checkpoint.reset();
  source.logs.clear();
  if (const Family& family = family_of(base.model.architecture); !family.own_projections()) {
    fail(ExitCode::checkpoint, "{}: target_modules: no projection of a {} can have adapters here", path, family.name);
  }
  source.model.lora = config.lora;
  source.model.lora.targets = resolved(config.targets, model_spec(base.model), path);
  untie(source.model, config.modules, path);
  ParameterTable table;
  std::set<std::string> own_parameters;
  const ParameterTable all = make_parameter_table(source.model);
  for (const Parameter& parameter : all.all()) {
    if (!parameter.adapter && !ends_with_any(module_of(parameter.name), config.modules)) continue;
    own_parameters.insert(parameter.name);
    table.add(parameter);
  }
  PlacedModel placed;
  placed.stored = read_safetensors_of_folder(folder, adapter_weights_file);
  placed.locations = peft_location;
  placed.is_constant = [](std::string_view) { return false; };
  source = with_weights(std::move(source), std::move(placed), table);
  source.identity += base.identity;
  return with_adapters(std::move(base), std::move(source), std::move(own_parameters));
}

std::set<std::string> modules_to_save(const ModelSource& source) {
  const auto refuse = [&](const std::string& why) {
    fail(ExitCode::usage, "{}: PEFT cannot store these adapters: {}; merge them with their base (export --merge)",
         source.path, why);
  };
  const Family& family = family_of(source.model.architecture);
  if (!family.own_projections()) refuse(fmt::format("PEFT stores the projections of a {} in one tensor", family.name));
  std::set<std::string> modules, adapted;
  const ParameterTable table = make_parameter_table(source.model);
  for (const Parameter& parameter : table.all()) {
    const std::string module = module_of(parameter.name);
    if (parameter.adapter) {
      adapted.insert(module_of(adapted_weight(parameter.name)));
    } else if (source.own_parameters.contains(parameter.name)) {
      modules.insert(module);
    }
  }
  for (const std::string& module : modules) {
    if (adapted.contains(module)) refuse(module + " is trained in addition to its adapter");
    if (source.model.tie_word_embeddings && module == module_of(table[0].name)) {
      refuse("the embedding, which is trained, is the head as well");
    }
  }
  return modules;
}

bool in_peft_folder(const Parameter& parameter, const std::set<std::string>& modules) {
  return parameter.adapter || modules.contains(module_of(parameter.name));
}

TensorLocation peft_location(const Parameter& parameter) {
  return {.name = "base_model.model." + parameter.name, .shape = parameter.shape.dims()};
}

std::vector<ConfigDifference> lost_in_peft_folder(const ModelSource& source) {
  Config base, trained;
  base.model = source.base->model;
  trained.model = source.model;
  base.model.lora = trained.model.lora;
  base.model.initializer_range = trained.model.initializer_range;  // the weights already exist
  if (model_spec(base.model).positions == Positions::rope) {       // it has no table, so the length changes nothing
    base.model.max_position_embeddings = trained.model.max_position_embeddings;
  }
  // Both tied tensors are in the folder, each with its own numbers.
  if (source.own_parameters.contains("lm_head.weight")) base.model.tie_word_embeddings = false;
  if (model_spec(base.model) == model_spec(trained.model)) return {};  // also if keys express the same differently
  return differences(base, trained);
}

std::string write_adapter_config(const ModelSource& source) {
  const LoraConfig& lora = source.model.lora;
  const std::set<std::string> modules = modules_to_save(source);
  nlohmann::ordered_json json;
  json["base_model_name_or_path"] = base_name(source);
  json["bias"] = "none";
  json["fan_in_fan_out"] = false;
  json["inference_mode"] = true;
  json["init_lora_weights"] = true;
  json["lora_alpha"] = lora.alpha;
  json["lora_dropout"] = 0.0;
  json["modules_to_save"] = modules.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(modules);
  json["peft_type"] = "LORA";
  json["r"] = lora.rank;
  json["target_modules"] = lora.targets;
  json["task_type"] = "CAUSAL_LM";
  json["use_dora"] = false;
  json["use_rslora"] = false;
  return json_text(json, 2) + "\n";
}

}  // namespace ringtrain
