// Which modules have adapters according to adapter_config.json: lists, layers, and regular expressions, resolved to the
// names that PEFT 0.21.2's check_target_module_exists gives for the same model.
#include "train/models/adapters/peft_targets.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/config/model_config.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"

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
/// Returns a table of peft_targets.json: an adapter_config.json's keys, and the targets or a part of the refusal.
json target_rows(const char* table) {
  return json::parse(std::ifstream(source_folder() + "/tests/train/models/peft_targets.json")).at(table);
}

TEST(PeftTargets, AreThoseOfPeft) {
  const json all = target_rows("targets");
  ASSERT_EQ(all.size(), 14U);
  for (const json& row : all) EXPECT_EQ(json(targets_of(row["config"])), row["targets"]) << row;
}

TEST(PeftTargets, WhatCannotBeMeantIsRefused) {
  const json all = target_rows("refused");
  ASSERT_EQ(all.size(), 25U);
  for (const json& row : all) {
    expect_error(ExitCode::checkpoint, row["sentence"], [&] { targets_of(row["config"]); });
  }
}

TEST(PeftTargets, APatternGivesUpInTime) {
  const auto start = std::chrono::steady_clock::now();
  expect_error(ExitCode::checkpoint, "gives up at", [] { targets_of({{"target_modules", "((a|[a-z._0-9])*)*[!?]"}}); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace ringtrain::testing
