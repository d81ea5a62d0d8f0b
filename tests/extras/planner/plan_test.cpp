// extras/planner/plan.h: FLOPs compared with counts by hand, memory as in a run, consistent times, refusals of
// incorrect hardware files; and the program `plan`.
#include "extras/planner/plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "extras/planner/plan_report.h"
#include "framework/config/read_config.h"
#include "framework/system/system_memory.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

constexpr const char* hardware_text = R"(name: by hand
peak_flops: {float32: 1.0e9}
efficiency: {matmul: 0.5, attention_forward: 0.25, attention_backward: 0.125}
memory: {bytes: 1.0e9, bandwidth: 1.0e18}
levels:
  - {ranks: 2, bandwidth: 1.0e9, latency: 1.0e-3}
  - {ranks: 64, bandwidth: 1.0e8}
)";

Config config_of(const std::vector<std::string>& settings) {
  return read_config(source_folder() + "/configs/tiny.yaml", settings, ConfigUse::know, check_model);
}

PlanRequest request_of(const std::vector<std::string>& settings) {
  return {
      .config = config_of(settings), .hardware = parse_hardware(hardware_text, "hand.yaml"), .longest_context = false};
}

TEST(Plan, CountsFlopsByPart) {
  // tiny: C 32, 4 heads of 8, 2 key/value heads, F 64, V 257, 2 layers; 24 sequences of 64.
  const Plan plan = make_plan(request_of({"training.recompute=keep_attention", "data.packing=concat"}));
  const double tokens = 24 * 64, layers = 2;
  EXPECT_DOUBLE_EQ(plan.flops.projections, 3 * 2 * tokens * layers * (32 * 32 + 2 * 32 * 16 + 32 * 32));
  EXPECT_DOUBLE_EQ(plan.flops.feedforward, 3 * 2 * tokens * layers * 3 * 32 * 64);
  EXPECT_DOUBLE_EQ(plan.flops.head, 3 * 2 * tokens * 257 * 32);
  const double pairs = 24 * 64 * 65 / 2.0;
  EXPECT_DOUBLE_EQ(plan.flops.attention_forward, 4 * 32 * pairs * layers);
  EXPECT_DOUBLE_EQ(plan.flops.attention_backward, 10 * 32 * pairs * layers);
  EXPECT_DOUBLE_EQ(plan.flops.recompute, 2 * tokens * layers * (32 * 32 + 2 * 32 * 16 + 32 * 32 + 2 * 32 * 64));
  EXPECT_DOUBLE_EQ(plan.useful_flops, 6 * static_cast<double>(plan.parameters) * tokens + 12 * 2 * 32 * pairs);
}

TEST(Plan, WhatIsFrozenHasNoWeightGradientAndNothingBelowTheLowestTrainedLayerABackward) {
  // tiny, tied: a layer has 3,072 of projections, 6,144 of the feedforward and 64 of norms; the head 257 x 32.
  const double tokens = 24 * 64, pairs = 24 * 64 * 65 / 2.0, head = 257 * 32, N = 2 * 9280 + 32 + head;
  const auto plan_of = [](const std::vector<std::string>& settings) {
    std::vector<std::string> all{"training.recompute=full", "data.packing=concat"};
    all.insert(all.end(), settings.begin(), settings.end());
    return make_plan(request_of(all));
  };
  const Plan upper = plan_of({"training.trainable=[model.layers.1.mlp.*]"});
  EXPECT_DOUBLE_EQ(upper.flops.projections, 2 * tokens * 3072 * (2 + 1));
  EXPECT_DOUBLE_EQ(upper.flops.feedforward, 2 * tokens * 6144 * (2 + 1 + 1));
  EXPECT_DOUBLE_EQ(upper.flops.head, 2 * 2 * tokens * head);
  EXPECT_DOUBLE_EQ(upper.flops.attention_forward, 4 * 32 * pairs * 2);
  EXPECT_DOUBLE_EQ(upper.flops.attention_backward, 10 * 32 * pairs);
  EXPECT_DOUBLE_EQ(upper.flops.recompute, 2 * tokens * (3072 + 4096) + 4 * 32 * pairs);
  EXPECT_DOUBLE_EQ(upper.useful_flops, 2 * (N + 9280 + 32 + head + 6144) * tokens + 4 * (2 + 2) * 32 * pairs);

  const Plan norm = plan_of({"training.trainable=[model.norm.weight]"});
  EXPECT_EQ(norm.flops.attention_backward + norm.flops.recompute + norm.times.attention_backward, 0);
  EXPECT_DOUBLE_EQ(norm.flops.projections, 2 * tokens * 3072 * 2);
  EXPECT_DOUBLE_EQ(norm.useful_flops, 2 * (N + 32 + head + 32) * tokens + 4 * 2 * 32 * pairs);

  // An embedding that is not the head is only read, but backward continues down to it.
  const Plan embedding = plan_of({"training.trainable=[model.embed_tokens.weight]", "model.tie_word_embeddings=false"});
  EXPECT_DOUBLE_EQ(embedding.useful_flops, 2 * 2 * N * tokens + 12 * 2 * 32 * pairs);

  // A [4, in] and B [out, 4] of q, v and down: 128 + 128, 128 + 64 and 256 + 128 a layer.
  const Plan lora = plan_of({"lora.rank=4", "lora.targets=[q_proj, v_proj, down_proj]"});
  const double adapters = 2 * (256 + 192 + 384);
  EXPECT_DOUBLE_EQ(lora.flops.projections, 2 * 2 * tokens * 3072 * 2);
  EXPECT_DOUBLE_EQ(lora.flops.feedforward, 2 * 2 * tokens * 6144 * 2);
  EXPECT_DOUBLE_EQ(lora.flops.adapters, 8 * tokens * adapters);
  EXPECT_DOUBLE_EQ(lora.flops.recompute, 2 * tokens * 2 * (3072 + 4096 + 256 + 192) + 4 * 32 * pairs * 2);
  EXPECT_DOUBLE_EQ(lora.useful_flops, 2 * (2 * (N + adapters) + adapters) * tokens + 12 * 2 * 32 * pairs);
  EXPECT_EQ(lora.parameters, static_cast<std::int64_t>(N + adapters));

  for (const Plan& plan : {plan_of({}), upper, norm, embedding, lora}) {  // the step is its work divided by its rates
    const StepFlops& f = plan.flops;
    const double again = f.attention_backward / 2.5;
    EXPECT_NEAR(plan.times.products,
                (f.projections + f.feedforward + f.head + f.adapters + f.recompute - again) / 0.5e9, 1e-9);
    EXPECT_NEAR(plan.times.attention_forward, (f.attention_forward + again) / 0.25e9, 1e-9);
    EXPECT_NEAR(plan.times.attention_backward, f.attention_backward / 0.125e9, 1e-9);
    EXPECT_NEAR(plan.times.step_seconds,
                plan.times.products + plan.times.attention_forward + plan.times.attention_backward, 1e-8);
    EXPECT_EQ(plan.times.ring_wait, 0);
    EXPECT_NEAR(plan.mfu, plan.useful_flops / plan.times.step_seconds / 1e9, 1e-12);
    EXPECT_LT(plan.useful_flops, 6 * (N + adapters) * tokens + 12 * 2 * 32 * pairs);
  }
}

TEST(Plan, WhatIsFrozenHasNoGradientNoMomentsAndNoExchange) {
  const auto plan_of = [](std::vector<std::string> settings) {
    settings.insert(settings.end(), {"mesh.data=2", "data.packing=concat", "checkpoint.background=false"});
    return make_plan(request_of(settings));
  };
  const Plan all = plan_of({}), lora = plan_of({"lora.rank=4", "lora.targets=[q_proj]"});
  const auto bytes = [](const Plan& plan, Tag tag) { return static_cast<std::int64_t>(plan.memory[0].peak[tag]); };
  // For the handmade table: 2 layers of A and B with 128 each, float32; all sizes are multiples of their alignment.
  const std::int64_t adapters = 2 * (128 + 128) * 4;
  EXPECT_EQ(bytes(lora, Tag::weights), bytes(all, Tag::weights) + adapters);
  EXPECT_EQ(bytes(lora, Tag::gradients), adapters);
  EXPECT_EQ(bytes(lora, Tag::optimizer), 2 * adapters / 2);
  EXPECT_EQ(bytes(lora, Tag::activations), bytes(all, Tag::activations));
  // Half of a bucket's bytes over the link of 1e9 B/s and 1e-3 s. The second bucket is transferred during the first
  // layer.
  EXPECT_NEAR(lora.times.gather, 1e-3 + static_cast<double>(adapters) / 4 / 1e9, 1e-12);
  EXPECT_GT(all.times.gather, 1.5 * lora.times.gather);
  EXPECT_LT(20 * lora.checkpoint_bytes, all.checkpoint_bytes);  // it has only adapters
}

TEST(Plan, UsefulFlopsCountWhatTokensAreMultipliedWith) {
  // tiny: V 257, C 32. An embedding is read, not multiplied with, unless it is also the head; a position table never
  // is.
  const auto parameters = [](const std::vector<std::string>& settings) {
    const ModelConfig model = config_of(settings).model;
    return std::pair(make_parameter_table(model).count(), trained_parts(model, {}).multiplied);
  };
  const auto [tied, tied_n] = parameters({});
  EXPECT_EQ(tied_n, tied);
  const auto [untied, untied_n] = parameters({"model.tie_word_embeddings=false"});
  EXPECT_EQ(untied, tied + 257 * 32);
  EXPECT_EQ(untied_n, tied);
  const auto [learned, learned_n] =
      parameters({"model.architecture=gpt2", "model.num_key_value_heads=4", "model.max_position_embeddings=100"});
  EXPECT_EQ(learned_n, learned - 100 * 32);
}

TEST(Plan, MfuCountsVisiblePairs) {
  // Documents of 8 tokens leave at most an eighth of the pairs of 64, and useful FLOPs decrease accordingly.
  PlanRequest request = request_of({});
  const Plan whole = make_plan(request);
  request.mean_document = 8;
  const Plan packed = make_plan(request);
  const double of_tokens = 6 * static_cast<double>(packed.parameters) * packed.step_tokens;
  const double packed_pairs = packed.flops.attention_forward / (4 * 32 * 2);
  EXPECT_DOUBLE_EQ(packed.useful_flops, of_tokens + 12 * 2 * 32 * packed_pairs);
  EXPECT_LT(packed.useful_flops - of_tokens, 0.4 * (whole.useful_flops - of_tokens));
  EXPECT_LT(packed.mfu, 1);
}

TEST(Plan, MicroBatchesAndLayersThatAreNotSimulatedAreLikeTheOthers) {
  const auto times = [](const std::vector<std::string>& settings, std::int64_t max_events) {
    const PlanRequest request = request_of(settings);
    const ParameterTable table = make_parameter_table(request.config.model);
    return simulate_step(
        {.config = request.config, .table = table, .hardware = request.hardware, .max_events = max_events});
  };
  const std::vector<std::string> ring{"mesh.sequence=4", "training.micro_batch_size=6", "training.seq_len=512",
                                      "model.num_hidden_layers=12", "data.packing=concat"};
  EXPECT_NEAR(times(ring, 1).step_seconds / times(ring, 1'000'000'000).step_seconds, 1, 0.01);
  // Three of four layers; the gradients of the last one are in transit when its backward ends.
  const std::vector<std::string> reduced{"mesh.data=8", "training.global_batch_size=8", "training.shard=gradients",
                                         "model.num_hidden_layers=4", "data.packing=concat"};
  EXPECT_NEAR(times(reduced, 30).step_seconds / times(reduced, 1'000'000'000).step_seconds, 1, 0.005);
}

TEST(Plan, MemoryIsThatOfTheRunsOwnConstruction) {
  const PlanRequest request = request_of({"mesh.sequence=4"});
  const Plan plan = make_plan(request);
  const ParameterTable table = make_parameter_table(request.config.model);
  const auto plans = plan_ranks(request.config, table, training_purpose(request.config));
  ASSERT_EQ(plan.memory.size(), plans.size());
  double largest = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    EXPECT_EQ(plan.memory[i].peak.by_tag, plans[i].peak.by_tag);
    largest = std::max(largest, static_cast<double>(plans[i].peak.total));
  }
  EXPECT_EQ(plan.need.device, largest);
}

TEST(Plan, TheLongestContextFitsAndTheNextDoesNot) {
  PlanRequest request = request_of({"mesh.sequence=2"});
  request.hardware.memory_bytes = 64e6;
  const std::int64_t longest = longest_context(request.config, request.hardware);
  const auto needed = [&](std::int64_t length) {
    request.config.training.seq_len = length;
    return make_plan(request).need.device;
  };
  EXPECT_GT(longest, 1000);
  EXPECT_LE(needed(longest), 64e6);
  EXPECT_GT(needed(longest + 4), 64e6);
  request.hardware.memory_bytes = 1000;
  EXPECT_EQ(longest_context(request.config, request.hardware), 0);
}

TEST(Plan, ATableOfPositionsLimitsTheContextAndRotaryPositionsAreWarnedOf) {
  PlanRequest request =
      request_of({"model.architecture=gpt2", "model.num_key_value_heads=4", "model.max_position_embeddings=100"});
  EXPECT_EQ(longest_context(request.config, request.hardware), 100);
  request = request_of({"mesh.sequence=2", "model.max_position_embeddings=1002"});
  const std::int64_t roomy = longest_context(request.config, request.hardware);
  EXPECT_GT(roomy, 10000);
  request.longest_context = true;
  const auto warned = [&](std::int64_t made_for, std::int64_t length) {  // for any requested length
    request.made_for = made_for;
    request.config.training.seq_len = length;
    const std::string text = plan_report(make_plan(request));
    EXPECT_NE(text.find(fmt::format("fits on this mesh: {} tokens", roomy)), std::string::npos) << text;
    return text.find(fmt::format("beyond the {} tokens that the model was made for", made_for)) != std::string::npos;
  };
  EXPECT_TRUE(warned(1002, 1000));
  EXPECT_TRUE(warned(1002, 1004));
  EXPECT_FALSE(warned(0, 1000));
  EXPECT_FALSE(warned(roomy, 1000));
}

TEST(Plan, AMachinesPlanLeavesTheReserveThatARunMustFind) {
  PlanRequest request = request_of({});
  request.hardware.memory_bytes = 1e9;
  const auto fits = [&](double bytes) { return MemoryNeed{.device = bytes, .host = 0}.fits(request.hardware); };
  EXPECT_TRUE(fits(1e9));  // of a device: a run may use all of the file's bytes
  request.hardware.cores = 2;
  EXPECT_EQ(usable_bytes(request.hardware), static_cast<double>(usable_memory(1'000'000'000)));
  EXPECT_TRUE(fits(0.95e9));
  EXPECT_FALSE(fits(0.95e9 + 1));
}

TEST(Plan, WhatWasNotMeasuredIsSaid) {
  PlanRequest request = request_of({"mesh.sequence=2"});
  const auto said = [&](Measured measured, const char* words) {
    request.hardware.measured = measured;
    return plan_report(make_plan(request)).find(words) != std::string::npos;
  };
  EXPECT_FALSE(said(Measured::all, "caution"));
  EXPECT_TRUE(said(Measured::kernels, "caution: none of the links was measured"));
  EXPECT_TRUE(said(Measured::nothing, "caution: ringtrain was not measured on this hardware"));
  request.config.mesh.sequence = 1;  // without need of a link
  EXPECT_FALSE(said(Measured::kernels, "caution"));
}

TEST(Plan, ARunIsItsStepsAndItsEvaluations) {
  const PlanRequest request = request_of({"training.steps=100", "evaluation.interval=30", "mesh.data=4",
                                          "evaluation.context_lengths=[16, 32]", "evaluation.target_blocks=10"});
  const Plan plan = make_plan(request);
  EXPECT_EQ(plan.steps, 100);
  EXPECT_EQ(plan.evaluations, 3);
  EXPECT_NEAR(plan.evaluation_seconds, 10 * (16 + 32) / plan.tokens_per_second / 3, 1e-12);
  EXPECT_NEAR(plan.hours * 3600, 100 * plan.times.step_seconds + 3 * plan.evaluation_seconds, 1e-9);
  EXPECT_NEAR(plan.device_hours, 4 * plan.hours, 1e-12);
}

TEST(Plan, ARunOfAGpuIsPlannedInAnyBuild) {
  PlanRequest request{
      .config = read_config(source_folder() + "/configs/long_ctx_gpu.yaml", {}, ConfigUse::know, check_model),
      .hardware = read_hardware(source_folder() + "/configs/hardware/h200.yaml"),
      .longest_context = false};
  const Plan plan = make_plan(request);
  EXPECT_NEAR(plan.need.device, 37.4e9, 0.1e9);  // as configs/long_ctx_gpu.yaml says
  EXPECT_TRUE(plan.fits);
  EXPECT_GT(plan.mfu, 0.2);
  EXPECT_LT(plan.mfu, 0.7);
}

TEST(Plan, TokensToHideAreFlopsOverBandwidth) {
  struct Device {
    double flops, bandwidth, published;  // thousands of tokens: bench/planning/paper.md
  };
  for (const auto& [flops, bandwidth, published] : {Device{312e12, 300e9, 1.04},
                                                    {312e12, 12.5e9, 24.96},
                                                    {123e12, 112e9, 1.10},
                                                    {275e12, 268e9, 1.03},
                                                    {196e12, 186e9, 1.05}}) {
    EXPECT_NEAR(tokens_to_hide(4 * 64 / flops, 1, 4 * 64 / bandwidth, 0), 1e3 * published, 6);
  }
  // In the causal balanced case, half of a block is visible: twice the tokens.
  EXPECT_NEAR(tokens_to_hide(4 * 64 / 312e12, 0.5, 4 * 64 / 300e9, 0), 2 * 312e12 / 300e9, 1e-6);
  // At that length, both take the same time, including latency.
  const double tokens = tokens_to_hide(1e-9, 0.5, 1e-7, 1e-3);
  EXPECT_NEAR(1e-9 * 0.5 * tokens * tokens, 1e-7 * tokens + 1e-3, 1e-9);
}

TEST(Plan, ARingAtTheThresholdHidesItsHops) {
  PlanRequest request = request_of({"mesh.sequence=2", "training.global_batch_size=1", "data.packing=concat"});
  request.hardware.levels = {{.ranks = 64, .bandwidth = 1e6, .latency = 0}};
  request.config.training.seq_len = 4096;
  const double threshold = make_plan(request).hop.tokens_to_hide;
  const auto wait = [&](double tokens) {
    request.config.training.seq_len = 4 * std::llround(tokens / 2);
    const Plan plan = make_plan(request);
    const HopPlan& hop = plan.hop;
    return hop.transfer_seconds / hop.compute_seconds;
  };
  EXPECT_NEAR(wait(threshold), 1, 0.01);
  EXPECT_GT(wait(threshold / 2), 1.9);
  EXPECT_LT(wait(threshold * 2), 0.51);
}

TEST(Plan, AttentionLeavesMultiprocessorsToNcclBetweenNodes) {
  const auto rate_of = [](std::int64_t multiprocessors, const std::vector<std::string>& settings) {
    Hardware hardware = parse_hardware(hardware_text, "hand.yaml");
    hardware.multiprocessors = multiprocessors;
    return rank_rates(hardware, config_of(settings), 0).attention_backward;
  };
  const double whole = rate_of(0, {"mesh.sequence=4"});
  EXPECT_DOUBLE_EQ(rate_of(40, {"mesh.sequence=4"}), 0.8 * whole);
  EXPECT_DOUBLE_EQ(rate_of(10, {"mesh.sequence=4"}), 0.5 * whole) << "half of them at most";
  EXPECT_DOUBLE_EQ(rate_of(40, {"mesh.sequence=2"}), whole) << "a node's ranks may be threads";
  EXPECT_DOUBLE_EQ(rate_of(40, {"mesh.sequence=1"}), whole);
}

TEST(Plan, SixtyFiveThousandRanksAreSimulated) {
  PlanRequest request = request_of({"data.packing=concat"});
  request.config.mesh.data = 256;
  request.config.mesh.sequence = 256;
  request.config.training.global_batch_size = 256;
  request.config.training.seq_len = 65536;
  request.hardware.levels = {{.ranks = 12, .bandwidth = 4e11, .latency = 5e-6},  // rings have several positions in them
                             {.ranks = 65536, .bandwidth = 5e10, .latency = 2e-5}};
  EXPECT_GT(make_plan(request).times.step_seconds, 0);
}

TEST(Hardware, FilesAreReadStrictly) {
  const std::string good = hardware_text;
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& part) {
    std::string text = good;
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
    const std::string sentence = error_of(ExitCode::usage, [&] { parse_hardware(text, "hand.yaml"); });
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    EXPECT_TRUE(sentence.starts_with("hand.yaml:")) << sentence;
  };
  refused("bandwidth: 1.0e18", "bandwith: 1.0e18",
          "hand.yaml:4: memory.bandwith is not a key; did you mean memory.bandwidth?");
  refused("matmul: 0.5", "matmul: 1.5", "hand.yaml:3: efficiency.matmul");
  refused("ranks: 64", "ranks: 3", "ranks 3 must be a multiple of the 2 before it");
  refused("ranks: 64", "ranks: 2", "ranks 2 follows 2: sort the list");
  refused("name: by hand\n", "", "name or levels is missing");
  refused("bytes: 1.0e9, ", "", "memory.bytes is missing");
  refused("latency: 1.0e-3", "latency: soon", "hand.yaml:6: latency");
  refused("peak_flops: {float32: 1.0e9}", "peak_flops: 7", "peak_flops is not a key");
  refused("name: by hand", "name: by hand\nname: twice", "given twice");
  refused("name: by hand", "name: by hand\nattention_blocks: 0.8", "hand.yaml:2: attention_blocks must be a list");
  refused("name: by hand", "name: by hand\nmeasured: me", "must be one of all, kernels, nothing");
  refused("name: by hand", "name: by hand\nnode: {ranks: 8, memory: nan}", "node.memory is the text");
  refused("name: by hand", "name: by hand\nattention_blocks:\n  - {tokens: 9, share: 1}\n  - {tokens: 9, share: 1}",
          "tokens 9 follows 9: sort the list");
}

TEST(Hardware, AttentionIsSlowerInShortBlocks) {
  const std::string text = hardware_text;
  Hardware hardware = parse_hardware(
      text + "attention_blocks:\n  - {tokens: 100, share: 0.5}\n  - {tokens: 400, share: 0.9}\n", "hand.yaml");
  EXPECT_DOUBLE_EQ(hardware.attention_share(1e6), 0.9);
  EXPECT_DOUBLE_EQ(hardware.attention_share(400), 0.9);
  EXPECT_NEAR(hardware.attention_share(200), 0.7, 1e-12);  // halfway, in the logarithm
  EXPECT_DOUBLE_EQ(hardware.attention_share(50), 0.25);
  Config config = config_of({"training.seq_len=800", "mesh.sequence=2"});
  EXPECT_DOUBLE_EQ(rank_rates(hardware, config, 0).attention_forward, 0.9 * 0.25e9);
  EXPECT_NEAR(rank_rates(hardware, config, 200).attention_backward, 0.7 * 0.125e9, 1);
  EXPECT_DOUBLE_EQ(rank_rates(hardware, config, 200).matmul, 0.5e9);
}

TEST(Hardware, EveryFileOfTheCheckoutIsReadAndFoundByName) {
  std::filesystem::current_path(source_folder());
  const auto files = hardware_files();
  EXPECT_GE(files.size(), 9u);
  for (const auto& [name, path] : files) {
    const Hardware hardware = read_hardware(find_hardware(name));
    EXPECT_FALSE(hardware.levels.empty()) << name;
    EXPECT_GT(hardware.peak_float32, 0) << name;
  }
  expect_error(ExitCode::usage, "did you mean h20?", [] { find_hardware("h20o"); });
}

TEST(Hardware, RanksOfAMachineShareItsCores) {
  Hardware hardware = parse_hardware(hardware_text, "hand.yaml");
  hardware.cores = 4;
  hardware.levels = {{.ranks = 64, .bandwidth = 1}};
  Config config = config_of({"mesh.data=1", "mesh.sequence=2"});
  EXPECT_DOUBLE_EQ(rank_rates(hardware, config, 0).peak, 2e9);
  config.mesh.threads_per_rank = 1;
  EXPECT_DOUBLE_EQ(rank_rates(hardware, config, 0).peak, 1e9);
  config.mesh.sequence = 8;
  EXPECT_DOUBLE_EQ(rank_rates(hardware, config, 0).peak, 0.5e9);
  config.training.dtype = DType::bfloat16;
  error_of(ExitCode::usage, [&] { rank_rates(hardware, config, 0); });
}

}  // namespace
}  // namespace ringtrain::testing
