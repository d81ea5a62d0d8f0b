#include "train/models/hugging_face_rope.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "framework/config/model_config.h"

namespace ringtrain {

namespace {

using nlohmann::json;

/// The contents of one section.
struct Rope {
  double theta = 0;
  RopeScalingConfig scaling;
  bool operator==(const Rope&) const = default;
};

/// A number that a type of scaling uses: its name in a section.
struct ScalingNumber {
  RopeType type;
  const char* key;
  double RopeScalingConfig::*value;
  bool required = false;  // otherwise null or absent keeps the default; a factor then follows from the two lengths
};
constexpr std::array scaling_numbers{
    ScalingNumber{RopeType::linear, "factor", &RopeScalingConfig::factor, true},
    ScalingNumber{RopeType::yarn, "factor", &RopeScalingConfig::factor},
    ScalingNumber{RopeType::yarn, "attention_factor", &RopeScalingConfig::attention_factor},
    ScalingNumber{RopeType::yarn, "beta_fast", &RopeScalingConfig::beta_fast},
    ScalingNumber{RopeType::yarn, "beta_slow", &RopeScalingConfig::beta_slow},
    ScalingNumber{RopeType::yarn, "mscale", &RopeScalingConfig::mscale},
    ScalingNumber{RopeType::yarn, "mscale_all_dim", &RopeScalingConfig::mscale_all_dim},
    ScalingNumber{RopeType::llama3, "factor", &RopeScalingConfig::factor, true},
    ScalingNumber{RopeType::llama3, "low_freq_factor", &RopeScalingConfig::low_freq_factor, true},
    ScalingNumber{RopeType::llama3, "high_freq_factor", &RopeScalingConfig::high_freq_factor, true},
    ScalingNumber{RopeType::longrope, "factor", &RopeScalingConfig::factor},
    ScalingNumber{RopeType::longrope, "attention_factor", &RopeScalingConfig::attention_factor},
};

/// Returns whether some type uses a key.
bool is_scaling_key(const std::string& key) {
  return std::ranges::any_of(scaling_numbers, [&](const ScalingNumber& number) { return key == number.key; }) ||
         key == "original_max_position_embeddings" || key == "truncate" || key == "short_factor" ||
         key == "long_factor";
}

RopeType read_type(JsonKeys& section, const Family& family) {
  std::string type = "default";
  if (section.has("type")) type = section.text("type", type);
  if (section.has("rope_type")) {
    const std::string current = section.text("rope_type", type);
    if (section.has("type") && current != type) {
      section.refuse("type", "is {}, but rope_type is {}; keep one of them", shown(type), shown(current));
    }
    type = current;
  }
  if (type == "default") return RopeType::none;
  // Phi-3's files of 2024 say su or yarn.
  if (type == "longrope" || type == "su" || (family.only_longrope() && type == "yarn")) return RopeType::longrope;
  if (family.only_longrope()) {
    section.refuse("rope_type", "{} is not supported in a {}; default and longrope are", shown(type), family.name);
  }
  for (const RopeType known : {RopeType::linear, RopeType::yarn, RopeType::llama3}) {
    if (type == name_of(known)) return known;
  }
  if (type == "dynamic") {
    section.refuse("rope_type",
                   "dynamic frequencies change with the length of each batch, so training cannot use them; use yarn or "
                   "default there, or ntk as model.rope_scaling.type in your own config");
  }
  section.refuse("rope_type", "{} is not supported; the supported ones are default, linear, yarn, llama3, longrope",
                 shown(type));
}

void refuse_partial(JsonKeys& keys) {
  if (keys.has("partial_rotary_factor") && keys.real("partial_rotary_factor", 1) != 1) {
    keys.refuse("partial_rotary_factor", "{}: heads that are only partly rotated are not supported",
                shown(keys.at("partial_rotary_factor")));
  }
}

/// Reads the trained length where the class looks for it. A Phi-3 never looks in the section. A class with a section
/// for each kind of layer looks only there. The others take the length outside, otherwise the one in the section.
void read_trained_length(JsonKeys& keys, JsonKeys& section, const Family& family, const ModelConfig& model,
                         RopeScalingConfig& scaling, std::vector<std::string>& logs) {
  const char* const key = "original_max_position_embeddings";
  const bool within = section.has(key), outside = !family.ropes_by_layer() && keys.has(key);
  std::int64_t& length = scaling.original_max_position_embeddings;
  if (outside) {
    length = keys.integer(key, 0);
  } else if (family.trained_length > 0) {
    length = family.trained_length;
  } else if (within) {
    length = section.integer(key, 0);
  } else {
    length = model.max_position_embeddings;
    logs.push_back(
        fmt::format("{}: {} is missing, so it is max_position_embeddings = {}, as in transformers; if that is the "
                    "extended length, set model.rope_scaling.{} yourself",
                    keys.path(), key, model.max_position_embeddings, key));
  }
  if (within && section.integer(key, 0) != length) {
    logs.push_back(fmt::format(
        "{}: {} = {} within the rotary keys has no effect, as in transformers; the trained length is {}, {}",
        keys.path(), key, section.integer(key, 0), length,
        outside ? "given outside of them" : fmt::format("the default of {}", family.name)));
  }
}

/// Reads what the type uses. Other keys of these names are ignored, as in transformers, and a log says so.
void read_scaling(JsonKeys& keys, JsonKeys& section, const Family& family, const ModelConfig& model,
                  RopeScalingConfig& scaling, std::vector<std::string>& logs) {
  for (const ScalingNumber& number : scaling_numbers) {
    if (number.type != scaling.type) continue;
    if (section.has(number.key)) {
      scaling.*number.value = section.real(number.key, 0);
    } else if (number.required) {
      section.refuse(number.key, "is missing, but rope_type {} needs it", name_of(scaling.type));
    }
    if (number.value == &RopeScalingConfig::attention_factor && section.has(number.key) &&
        scaling.attention_factor <= 0) {
      section.refuse(number.key, "must be above 0");
    }
  }
  if (scaling.type == RopeType::yarn) scaling.truncate = section.flag("truncate", true);
  if (scaling.type == RopeType::longrope) {
    scaling.short_factor = section.reals("short_factor");
    scaling.long_factor = section.reals("long_factor");
  }
  if (needs_trained_length(scaling.type)) read_trained_length(keys, section, family, model, scaling, logs);
}

void settle_other_keys(JsonKeys& section, RopeType type, std::vector<std::string>& logs) {
  section.names("finetuned");  // a remark of YaRN's authors
  for (const std::string& key : section.unasked()) {
    if (is_scaling_key(key)) {
      logs.push_back(fmt::format("{}: {} has no effect with rope_type {}, as in transformers", section.path(), key,
                                 type == RopeType::none ? "default" : name_of(type)));
    } else if (key == "full_attention" || key == "sliding_attention") {
      section.refuse(key, "rotary frequencies that differ from layer to layer are not supported");
    } else {
      section.refuse(key, "is not a known rotary key");
    }
  }
}

Rope read_section(JsonKeys& keys, const char* name, double theta, const Family& family, const ModelConfig& model,
                  std::vector<std::string>& logs) {
  const json& object = keys.at(name);
  if (!object.is_object()) keys.refuse(name, "is {}, but must be an object", shown(object));
  JsonKeys section(object, keys.path(), std::string(name) + ".");
  Rope rope;
  rope.theta = section.has("rope_theta") ? section.real("rope_theta", theta) : theta;
  refuse_partial(section);
  const bool nested = object.contains("full_attention") || object.contains("sliding_attention");
  if (!nested) {
    rope.scaling.type = read_type(section, family);
    read_scaling(keys, section, family, model, rope.scaling, logs);
  }
  settle_other_keys(section, rope.scaling.type, logs);
  return rope;
}

bool filled(JsonKeys& keys, const char* name) {
  return keys.has(name) && !keys.at(name).empty();
}

/// Returns transformers' section for a model's scaling, without theta.
json section_of(const RopeScalingConfig& scaling) {
  json section{{"rope_type", name_of(scaling.type)}};
  for (const ScalingNumber& number : scaling_numbers) {
    if (number.type == scaling.type && scaling.*number.value > 0) section[number.key] = scaling.*number.value;
  }
  if (needs_trained_length(scaling.type)) {
    section["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  }
  if (!scaling.truncate) section["truncate"] = false;
  if (scaling.type == RopeType::longrope) {
    section["short_factor"] = scaling.short_factor;
    section["long_factor"] = scaling.long_factor;
  }
  return section;
}

/// Refuses a key outside `section` that contradicts it: the class uses one of the two, and the file's author may have
/// meant the other. (A class that takes a trained length outside of the section agrees with it.) theta: the class's
/// default for a section without one.
void refuse_others(JsonKeys& keys, double theta, const Family& family, const ModelConfig& model, const char* section,
                   const Rope& meant) {
  const auto require_same = [&](bool same, const char* key) {
    if (!same) keys.refuse(key, "contradicts {}; remove the wrong one", section);
  };
  require_same(!keys.has("rope_theta") || keys.real("rope_theta", 0) == meant.theta, "rope_theta");
  const char* const key = "original_max_position_embeddings";
  const std::int64_t length = meant.scaling.original_max_position_embeddings;
  if (keys.has(key) && needs_trained_length(meant.scaling.type) && keys.integer(key, 0) != length) {
    keys.refuse(key, "is {}, but {} computes with {}; give one length, in {}", keys.integer(key, 0), family.name,
                length, section);
  }
  if (!filled(keys, "rope_scaling")) return;
  std::vector<std::string> own_notes;  // of a section that says nothing new
  require_same(read_section(keys, "rope_scaling", theta, family, model, own_notes) == meant, "rope_scaling");
}

/// Returns the rotary keys of a file with one set of them, or, in the old form, those of layers without a window.
Rope read_one(JsonKeys& keys, const Family& family, const ModelConfig& model, std::vector<std::string>& logs) {
  const double theta = keys.has("rope_theta") ? keys.real("rope_theta", family.theta) : family.theta;
  Rope rope{.theta = theta, .scaling = {}};
  refuse_partial(keys);
  const char* const section = filled(keys, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (filled(keys, section)) rope = read_section(keys, section, theta, family, model, logs);
  refuse_others(keys, theta, family, model, section, rope);
  return rope;
}

/// A class's rotary keys for layers without a window, and for those with one.
struct LayerRopes {
  Rope full, sliding;
};

/// Reads them as transformers 4 did, for which such files were written: Olmo 3's have one base, Gemma 3's two.
LayerRopes read_older(JsonKeys& keys, const Family& family, const ModelConfig& model, std::vector<std::string>& logs) {
  const Rope full = read_one(keys, family, model, logs);
  double local = full.theta;
  if (family.local_base_key()) {
    local = keys.real("rope_local_base_freq", family.sliding_theta);
  } else if (full.theta != family.sliding_theta && model.sliding_window > 0) {
    logs.push_back(
        fmt::format("{}: rope_theta = {} holds for all layers, as in transformers 4; in transformers 5, it is {} for "
                    "layers with a window",
                    keys.path(), full.theta, family.sliding_theta));
  }
  return {full, {.theta = local, .scaling = {}}};
}

/// Reads them from separate sections.
LayerRopes read_sections(JsonKeys& keys, const Family& family, const ModelConfig& model,
                         std::vector<std::string>& logs) {
  const json& object = keys.at("rope_parameters");
  if (!object.is_object()) keys.refuse("rope_parameters", "is {}, but must be an object", shown(object));
  JsonKeys kinds(object, keys.path(), "rope_parameters.");
  const auto read = [&](const char* kind, const char* outside, double other) {
    const double theta = outside && keys.has(outside) ? keys.real(outside, other) : other;
    return filled(kinds, kind) ? read_section(kinds, kind, theta, family, model, logs)
                               : Rope{.theta = theta, .scaling = {}};
  };
  const char* const local = family.local_base_key() ? "rope_local_base_freq" : nullptr;
  const Rope full = read("full_attention", "rope_theta", family.theta);
  const Rope sliding = read("sliding_attention", local, family.sliding_theta);
  for (const std::string& key : kinds.unasked()) {
    kinds.refuse(key, "{} has rotary keys only for full_attention and sliding_attention", family.name);
  }
  if (local && keys.has(local) && keys.real(local, 0) != sliding.theta) {
    keys.refuse(local, "contradicts rope_parameters.sliding_attention; remove the wrong one");
  }
  refuse_others(keys, full.theta, family, model, "rope_parameters.full_attention", full);
  return {full, sliding};
}

}  // namespace

void read_rope(JsonKeys& keys, const Family& family, ModelConfig& model, std::vector<std::string>& logs) {
  LayerRopes ropes;
  if (!family.ropes_by_layer()) {
    ropes.full = read_one(keys, family, model, logs);
  } else if (filled(keys, "rope_parameters")) {
    ropes = read_sections(keys, family, model, logs);
  } else {
    ropes = read_older(keys, family, model, logs);
  }
  const auto& [full, sliding] = ropes;
  model.rope_theta = full.theta;
  model.rope_scaling = full.scaling;
  if (!family.ropes_by_layer()) return;
  if (!full.scaling.truncate) {  // transformers (5.23) looks for it outside a class's sections for kinds of layers
    keys.refuse("truncate",
                "transformers computes this architecture with yarn's truncate as true, whatever its file says");
  }
  if (model.sliding_window == 0) return;
  const bool scaled = sliding.scaling.type != RopeType::none;
  if (scaled && sliding != full) {
    keys.refuse("rope_parameters.sliding_attention",
                "rope scaling is supported here only if full_attention is the same");
  }
  const bool as_others = sliding.theta == full.theta && full.scaling.type == RopeType::none;
  if (!scaled && !as_others) model.sliding_rope_theta = sliding.theta;
}

void write_rope(const ModelConfig& model, const Family& family, json& out) {
  const RopeScalingConfig& scaling = model.rope_scaling;
  const double theta = model.rope_theta;
  const bool plain = scaling.type == RopeType::none;
  json section = plain ? json{{"rope_type", "default"}} : section_of(scaling);
  if (plain) {
    out["rope_scaling"] = nullptr;
  } else {
    out["rope_scaling"] = section;
    out["rope_scaling"]["type"] = section["rope_type"];  // for programs written before transformers 4.43
  }
  section["rope_theta"] = theta;
  out["rope_parameters"] = section;
  out["rope_theta"] = theta;
  if (family.only_longrope() && !plain) {  // otherwise the class's own would override the section's
    out["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  }
  if (!family.ropes_by_layer()) return;
  json sliding = section;
  if (model.sliding_rope_theta > 0 || model.sliding_window == 0) {
    const double local = model.sliding_rope_theta > 0 ? model.sliding_rope_theta : family.sliding_theta;
    sliding = {{"rope_type", "default"}, {"rope_theta", local}};
    if (family.local_base_key()) out["rope_local_base_freq"] = local;
  }
  out["rope_parameters"] = {{"full_attention", section}, {"sliding_attention", sliding}};
}

}  // namespace ringtrain
