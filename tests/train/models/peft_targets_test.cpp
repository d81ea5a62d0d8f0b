// Which modules have adapters, by what adapter_config.json says: lists, layers and regular expressions, resolved to the
// names that PEFT 0.21.2's check_target_module_exists gives for the same model.
#include "train/models/adapters/peft_targets.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "framework/config/model_config.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

using Names = std::vector<std::string>;
using nlohmann::json;

/// Three layers of a Llama.
ModelSpec three_layers() {
  ModelConfig model;
  model.vocab_size = 23;
  model.hidden_size = 16;
  model.num_hidden_layers = 3;
  model.num_attention_heads = model.num_key_value_heads = 2;
  model.head_dim = 8;
  model.intermediate_size = 24;
  return model_spec(model);
}

Names targets_of(const json& config) {
  JsonKeys keys(config, "adapter_config.json");
  return resolved(read_targets(keys), three_layers(), "adapter_config.json");
}
Names of_pattern(const std::string& pattern) {
  return targets_of({{"target_modules", pattern}});
}

const Names all{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"};

TEST(PeftTargets, APatternMatchesWholeNames) {
  EXPECT_EQ(of_pattern("all-linear"), all);
  EXPECT_EQ(of_pattern(R"(.*\.(q|v)_proj)"), (Names{"q_proj", "v_proj"}));
  EXPECT_EQ(of_pattern(R"(.*(self_attn|mlp).*(q_proj|up_proj)$)"), (Names{"q_proj", "up_proj"}));
  EXPECT_EQ(of_pattern(R"(model\.layers\.[01]\.self_attn\.q_proj)"),
            (Names{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"}));
  EXPECT_EQ(of_pattern(R"(^model.layers.(?:0|2).mlp.(?!gate)[a-z]+_proj)"),
            (Names{"model.layers.0.mlp.down_proj", "model.layers.0.mlp.up_proj", "model.layers.2.mlp.down_proj",
                   "model.layers.2.mlp.up_proj"}));
  EXPECT_EQ(of_pattern(R"([^]]*\.\d\.mlp\.(?P<which>up|down)_proj)"), (Names{"down_proj", "up_proj"}));
  EXPECT_EQ(of_pattern(R"(.*v_proj)"), Names{"v_proj"});  // the whole name: no end of one, as with a list
  for (const char* const none : {"q_proj", "layers.*q_proj", "model.*q_pro"}) {
    expect_error(ExitCode::checkpoint, "no projection of this model is meant", [&] { of_pattern(none); });
  }
}

TEST(PeftTargets, LayersAreThoseOfAList) {
  const auto of = [](const json& names, const json& layers, const json& pattern = nullptr) {
    return targets_of({{"target_modules", names}, {"layers_to_transform", layers}, {"layers_pattern", pattern}});
  };
  const Names first{"model.layers.1.mlp.down_proj", "model.layers.1.self_attn.q_proj"};
  EXPECT_EQ(of({"q_proj", "down_proj"}, 1), first);
  EXPECT_EQ(of({"q_proj", "down_proj"}, {1, 7}, "layers"), first);
  EXPECT_EQ(of({"q_proj"}, {0, 1, 2}, {"layers"}), Names{"q_proj"});
  EXPECT_EQ(of({"q_proj"}, json::array()), Names{"q_proj"});
  EXPECT_EQ(of({"q_proj"}, nullptr), Names{"q_proj"});
  // A whole name means its module, whatever the layers; an end of one is held against them.
  EXPECT_EQ(of({"model.layers.2.mlp.up_proj", "q_proj"}, {0}),
            (Names{"model.layers.0.self_attn.q_proj", "model.layers.2.mlp.up_proj"}));
  EXPECT_EQ(targets_of({{"target_modules", {"layers.1.mlp.up_proj", "mlp.down_proj"}}}),
            (Names{"layers.1.mlp.up_proj", "mlp.down_proj"}));
  expect_error(ExitCode::checkpoint, "no projection of this model is meant", [&] { of({"q_proj"}, {9}); });
}

TEST(PeftTargets, WhatCannotBeMeantIsRefused) {
  const auto refused = [](const json& config, const std::string& part) {
    expect_error(ExitCode::checkpoint, part, [&] { targets_of(config); });
  };
  const auto refused_pattern = [&](const char* pattern, const std::string& part) {
    refused({{"target_modules", pattern}}, part);
  };
  refused({{"target_modules", nullptr}}, "target_modules: must be a list");
  refused({{"target_modules", 7}}, "target_modules: is 7, but must be a list of names");
  refused({{"target_modules", {"q_proj", "c_attn"}}}, "c_attn is no projection that can be read, which are q_proj");
  refused({{"target_modules", {"lm_head"}}}, "lm_head is no projection");
  refused({{"target_modules", {"_proj"}}}, "_proj is no projection");
  refused({{"target_modules", ".*q_proj"}, {"layers_to_transform", 1}},
          "layers_to_transform: does not go with a pattern");
  refused({{"target_modules", {"q_proj"}}, {"layers_to_transform", {0.5}}},
          "layers_to_transform: is [0.5], but must be");
  refused({{"target_modules", {"q_proj"}}, {"layers_to_transform", 0}, {"layers_pattern", "h"}},
          "layers_pattern: is \"h\"");
  refused_pattern(".*", "means lm_head, too, which has no adapter here");
  refused_pattern("(.*q_proj|model.embed_tokens)", "means model.embed_tokens, too");
  refused_pattern("(q_proj", "cannot be compiled: missing closing parenthesis");
  for (const char* const apart : {R"(\w+\h)", R"(\Qq_proj\E)", R"((*UCP).*q_proj)", R"((?i).*q_proj)", R"((?|a|b))",
                                  R"([[:alpha:]]+)", R"(.{,50}q_proj)", R"((a)\1)", "\u00e9", R"(q\)"}) {
    refused_pattern(apart, "which Python and PCRE2 may read in different ways");
  }
  const auto start = std::chrono::steady_clock::now();
  refused_pattern("((a|[a-z._0-9])*)*[!?]", "gives up at");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace ringtrain::testing
