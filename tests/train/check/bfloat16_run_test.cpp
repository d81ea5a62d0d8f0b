// Whole runs in bfloat16 on a CPU: every architecture compared with the reference in double, within bounds that `check`
// derives from the rounding points; the same bits for any threads, recompute policy, sharding, and resume; meshes that
// agree; and a plan in which all stored tensors take half of float32's bytes and all sums take the same.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "framework/config/choices.h"
#include "framework/config/read_config.h"
#include "layers/model_parameters.h"
#include "tests/support/multiplying.h"
#include "tests/train/check/check_fixture.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/checkpoint_evaluation.h"

namespace ringtrain::testing {
namespace {

class BFloat16Run : public CheckTest {
 protected:
  BFloat16Run() : CheckTest(split_text) {}
  Config half(std::vector<std::string> settings, const std::string& dtype = "bfloat16") const {
    settings.insert(settings.begin(), {"training.dtype=" + dtype, "training.global_batch_size=4", "training.steps=6"});
    return tiny(data, settings);
  }
};

TEST_F(BFloat16Run, OfEveryArchitectureIsRight) {
  for (const Architecture architecture : all_architectures) {
    const std::string name = name_of(architecture);
    SCOPED_TRACE(name);
    std::vector<std::string> settings{"model.architecture=" + name, "mesh.sequence=3", "mesh.layout=zigzag"};
    if (architecture == Architecture::gpt2) {
      settings.insert(settings.end(), {"model.num_key_value_heads=4", "model.max_position_embeddings=37"});
    }
    const CheckReport report = check(half(settings));
    EXPECT_EQ(wrong(report), "");
    EXPECT_GT(report.tensors.size(), 80U);
  }
}

TEST_F(BFloat16Run, WithSinksSoftcapsAdaptersAndShardsIsRight) {
  EXPECT_EQ(wrong(check(half({"model.architecture=gemma2", "model.attention_sinks=true", "model.attention_softcap=2",
                              "model.final_softcap=3", "model.sliding_window=11", "mesh.sequence=2", "mesh.data=2",
                              "training.shard=weights", "training.recompute=full", "mesh.layout=striped"}))),
            "");
  run(half({"training.steps=1"}), "base");
  CheckOptions options =
      options_of(half({"lora.rank=3", "lora.alpha=6", "lora.targets=[q_proj, down_proj]", "mesh.sequence=2"}));
  options.train.start.init_from = at("base");
  options.train.dump.step = 3;  // B is zero before the first
  EXPECT_EQ(wrong(check_run(options, quiet)), "");
}

TEST_F(BFloat16Run, BitsDependOnlyOnTheMesh) {
  // One micro-batch: the gradients of sharded weights are added over ranks one by one.
  std::vector<std::string> mesh{"mesh.sequence=2", "mesh.data=2", "training.micro_batch_size=2"};
  const auto with = [&](const std::vector<std::string>& more) { return half(joined(more, mesh)); };
  run(with({}), "once");
  const auto expect_the_same = [&](const std::string& name) { expect_same_bits(name, "once"); };
  run(with({"mesh.threads_per_rank=3"}), "threads");
  expect_the_same("threads");
  for (const std::string policy : {"none", "full"}) {
    run(with({"training.recompute=" + policy}), policy);
    expect_the_same(policy);
  }
  run(with({"training.shard=weights"}), "weights");
  expect_the_same("weights");
  run(with({}), "stopped", {}, 2);
  run(with({}), "stopped", resumed());
  expect_the_same("stopped");

  // Moments in bfloat16 are rounded alike wherever an element is. On disk they are float32, which any run reads.
  mesh.emplace_back("optimizer.moments=bfloat16");
  run(with({}), "moments");
  EXPECT_NE(losses("moments"), losses("once"));
  expect_planned_peaks("moments", with({}));
  EXPECT_EQ(wrong(check(with({}))), "");
  run(with({"training.shard=weights"}), "narrow", {}, 3);
  run(with({"checkpoint.background=false"}), "narrow", resumed());
  expect_same_bits("narrow", "moments");
  mesh.back() = "optimizer.moments=float32";
  run(with({}), "wide", resumed(checkpoint("narrow", 3)));
  EXPECT_NEAR(losses("wide").back(), losses("once").back(), 0x1p-8 * losses("once").back());
  for (const auto& [name, first, then] : {std::tuple{"widened", BFloat16Products::widened, BFloat16Products::widened},
                                          {"pairs", BFloat16Products::pairs, BFloat16Products::pairs},
                                          {"resumed elsewhere", BFloat16Products::pairs, BFloat16Products::widened}}) {
    {
      const Multiplying products(first);
      run(with({}), name, {}, 3);
    }
    const Multiplying products(then);
    run(with({}), name, resumed());
    expect_the_same(name);
  }
}

// A float32 run on the same samples is the reference: bfloat16 rounds 2^-8 of an element, at random, and the loss is a
// mean over all of a step's tokens. Meshes differ by less: they round in the same way except where float32 sums differ.
TEST_F(BFloat16Run, LearnsWhatFloat32LearnsOnEveryMesh) {
  const std::vector<std::string> longer{"training.steps=30"};
  run(half(longer, "float32"), "float32");
  run(half(longer), "one");
  const auto reference = losses("float32"), one = losses("one");
  ASSERT_EQ(reference.size(), 30U);
  ASSERT_EQ(one.size(), 30U);
  EXPECT_LT(one.back(), 0.95 * one.front()) << "nothing was learnt";
  EXPECT_NE(one, reference) << "nothing was rounded";
  for (const auto& [data_ranks, sequence] : {std::pair{1, 1}, {1, 4}, {2, 2}, {4, 1}}) {
    const std::string name = fmt::format("{}x{}", data_ranks, sequence);
    SCOPED_TRACE(name);
    run(half(joined(longer, mesh_of(data_ranks, sequence))), name);
    expect_close(losses(name), reference, 0x1p-8);
    expect_close(losses(name), one, 0x1p-9);
  }
}

TEST_F(BFloat16Run, KeepsFloat32WeightsThatAnyRunReads) {
  run(half({}), "half", {}, 3);
  const auto saved = state(checkpoint("half", 3));
  std::size_t finer = 0, elements = 0;
  for (const auto& [name, values] : saved) {
    if (!name.starts_with("weights/")) continue;
    for (const double value : values) {
      ++elements;
      finer += static_cast<double>(BFloat16::rounded(static_cast<float>(value)).value()) == value ? 0 : 1;
    }
  }
  EXPECT_GT(finer, elements / 2) << "the saved weights are the rounded ones";
  EvaluationOptions options = evaluation_of("half", data, {{8, 32}, 4, 6});
  const EvaluationSummary own = evaluate_on_threads(options);  // in the dtype of training
  options.dtype = "float64";
  const EvaluationSummary exact = evaluate_on_threads(options);
  ASSERT_EQ(own.results.size(), exact.results.size());
  for (std::size_t i = 0; i < own.results.size(); ++i) {
    EXPECT_NE(own.results[i].nll.value, exact.results[i].nll.value);
    EXPECT_NEAR(own.results[i].nll.value, exact.results[i].nll.value, 0x1p-8 * exact.results[i].nll.value);
  }
}

TEST_F(BFloat16Run, HalvesWhatItStoresAndNothingThatAddsUp) {
  const auto bytes_of = [&](const std::string& dtype, const std::string& recompute) {
    std::map<std::string, std::size_t> bytes;
    const Config config = half({"mesh.sequence=4", "training.recompute=" + recompute, "training.seq_len=4096",
                                "model.architecture=qwen3", "data.packing=documents"},
                               dtype);
    const auto plans = plan_ranks(config, make_parameter_table(config.model), training_purpose(config));
    for (const PlannedTensor& tensor : plans[0].tensors) bytes[tensor.name] += tensor.bytes;
    return bytes;
  };
  // All sums and all tensors that are not numbers of the model's dtype; nothing of the others.
  const auto adds_up = [](const std::string& name) {
    static const std::regex parts(
        "statistics|logsumexp|row sum|moment|gradients|gradient norm|gradient reduction|key and value gradient|nll|"
        "loss sum|staging|rope table|batch|document ids|kernel scratch");
    return std::regex_search(name, parts);
  };
  for (const std::string recompute : {"none", "keep_attention", "full"}) {
    const auto full = bytes_of("float32", recompute), stored = bytes_of("bfloat16", recompute);
    std::size_t halves = 0;
    for (const auto& [name, bytes] : full) {
      ASSERT_TRUE(stored.contains(name)) << name;
      if (name.find("attention workspace") != std::string::npos) {
        // Tiles: sums as in float32, and for small heads up to 64 queries x 128 pairs of dS more per worker.
        EXPECT_GE(stored.at(name), bytes);
        EXPECT_LE(stored.at(name), bytes + std::size_t{64} * 128 * 4);
        continue;
      }
      if (adds_up(name)) {
        EXPECT_EQ(stored.at(name), bytes) << name;
        continue;
      }
      EXPECT_NEAR(static_cast<double>(stored.at(name)), static_cast<double>(bytes) / 2, 64) << name;
      ++halves;
    }
    EXPECT_GE(halves, 10U);
    for (const auto& [name, bytes] : stored) {
      // Tensors that float32 does not have: attention's running sum next to its output, and the optimizer's weights.
      if (full.contains(name)) continue;
      EXPECT_TRUE(name == "shared attention sum" || name.find("weight") != std::string::npos) << name;
    }
  }
}

#if RINGTRAIN_MPI
TEST_F(BFloat16Run, OfProcessesIsRight) {
  expect_right_by_processes(half({"mesh.sequence=3"}));
}
#endif

}  // namespace
}  // namespace ringtrain::testing
