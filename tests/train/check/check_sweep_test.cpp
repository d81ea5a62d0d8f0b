// No false alarm, and no loose bound: random configs are correct, and for each kind of tensor, some run comes within a
// thirtieth of its bound.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "framework/random.h"
#include "tests/train/check/check_fixture.h"

namespace ringtrain::testing {
namespace {

class CheckSweep : public CheckTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();  // NOLINT(bugprone-parent-virtual-call): without the text of the other tests
    plain = write_tokens("plain.h5", {.shortest = 3});
    weighted = write_tokens("weighted.h5", {.shortest = 3, .weights = true});
  }

  /// Returns the settings of the config with this number.
  std::vector<std::string> random_settings(std::uint64_t number) const {
    std::uint64_t draws = 0;
    const auto draw = [&](std::uint64_t bound) {
      return static_cast<std::int64_t>(random_below(number, Purpose::test, draws++, bound));
    };
    const auto one_of = [&](const std::vector<std::string>& choices) { return choices[draw(choices.size())]; };
    std::vector<std::string> settings;
    const auto set = [&]<class Value>(const std::string& key, const Value& value) {
      settings.push_back(fmt::format("{}={}", key, value));
    };
    // Small logits, as in a fresh Granite: their softmax rounds more than they do.
    const bool small = draw(4) == 0;
    const std::string architecture =
        small && draw(2) == 0 ? "granite" : name_of(all_architectures[draw(all_architectures.size())]);
    const std::int64_t groups = 1 + draw(3), ring = 1 + draw(5), data_ranks = 1 + draw(3), micro = 1 + draw(2);
    const std::int64_t S = std::max<std::int64_t>(ring, 1 + draw(60)), D = 2 * (1 + draw(8));
    set("model.architecture", architecture);
    const std::int64_t layers = 1 + draw(3), window = draw(2) * (1 + draw(40));
    set("model.num_hidden_layers", layers);
    set("model.num_key_value_heads", groups);
    set("model.num_attention_heads", groups * (1 + draw(3)));
    set("model.head_dim", D);
    set("model.vocab_size", small ? one_of({"23", "257", "2000"}) : "23");
    set("model.hidden_size", small && draw(3) == 0 ? 256 : 4 + draw(40));
    set("model.intermediate_size", 4 + draw(60));
    set("model.initializer_range",
        small ? one_of({"0.0001", "0.0005", "0.006", "0.02"}) : one_of({"0.02", "0.1", "0.3"}));
    set("model.tie_word_embeddings", one_of({"true", "false"}));
    set("model.sliding_window", window);
    if (window > 0 && layers > 1 && draw(2) == 0) {
      set("model.layer_types", one_of({"[sliding_attention, full_attention]", "[full_attention, sliding_attention]"}));
    }
    if (architecture != "gpt2" && layers > 1 && draw(3) == 0) set("model.layer_positions", "[rope, none]");
    if (architecture != "gpt2" && window > 0 && draw(3) == 0) set("model.sliding_rope_theta", 1000);
    if (architecture == "llama") set("model.mlp_bias", one_of({"true", "false"}));
    if (architecture == "llama" || architecture == "qwen3") set("model.attention_bias", one_of({"true", "false"}));
    if (architecture == "gpt2") {
      set("model.max_position_embeddings", S + draw(5));
    } else if (draw(2) == 0) {
      const std::string type = one_of({"linear", "ntk", "yarn", "llama3"});
      set("model.rope_scaling.type", type);
      set("model.rope_scaling.factor", 2 + draw(3));
      if (type == "yarn" || type == "llama3") set("model.rope_scaling.original_max_position_embeddings", 16);
    }
    set("data.packing", one_of({"documents", "concat", "whole"}));
    set("mesh.sequence", ring);
    set("mesh.data", data_ranks);
    set("mesh.layout", one_of({"contiguous", "striped", "zigzag"}));
    set("training.seq_len", S);
    set("training.micro_batch_size", micro);
    set("training.global_batch_size", micro * data_ranks * (1 + draw(2)));
    set("training.dtype", one_of({"float32", "float64", "bfloat16"}));
    set("training.recompute", one_of({"none", "keep_attention", "full"}));
    set("training.feedforward_chunk", draw(20));
    set("training.loss_chunk", 1 + draw(40));
    set("optimizer.max_grad_norm", one_of({"0", "0.1", "1"}));
    set("lr_scheduler.warmup_steps", draw(4));
    set("lr_scheduler.type", one_of({"cosine", "linear", "constant", "wsd"}));
    if (draw(3) == 0) set("model.attention_sinks", "true");
    if (draw(3) == 0) set("model.attention_softcap", 1 + draw(4));
    if (draw(3) == 0) set("model.final_softcap", 1 + draw(4));
    if (architecture == "granite") {
      set("model.embedding_multiplier", small ? 12 : 1 + draw(9));
      set("model.residual_multiplier", one_of({"0.22", "0.5", "1.5"}));
      set("model.logits_scaling", small ? one_of({"8", "16", "100"}) : one_of({"0.3", "1", "2"}));
      if (small && draw(2) == 0) set("model.query_pre_attn_scalar", 4096);
    }
    return settings;
  }

  /// Checks configs [0, count). Returns, for each kind of tensor that is not exact, the largest share of its bound.
  std::map<std::string, double> check_all(std::uint64_t count) {
    std::map<std::string, double> shares;
    for (std::uint64_t number = 0; number < count; ++number) {
      const std::vector<std::string> settings = random_settings(number);
      const Config config = tiny(number % 2 == 0 ? plain : weighted, settings);
      CheckReport report;
      try {
        report = check(config);
      } catch (const Error& error) {  // a window without a target in each of its sequences
        EXPECT_TRUE(holds(std::string(error.what()), "no token to learn from")) << error.what();
        ++empty;
        continue;
      }
      EXPECT_EQ(wrong(report), "") << fmt::format("{}: {}", number, fmt::join(settings, " "));
      EXPECT_TRUE(report.untested().empty())
          << fmt::format("{}: {}: {}", number, fmt::join(settings, " "), fmt::join(report.untested(), " "));
      for (const CheckedTensor& tensor : report.tensors) {
        if (tensor.bound == 0) continue;
        double& share = shares[kind_of(tensor.name)];
        share = std::max(share, share_of_bound(tensor));
        largest_mean_share = std::max(largest_mean_share, share_of_mean_bound(tensor));
      }
    }
    return shares;
  }
  std::string plain, weighted;
  int empty = 0;
  double largest_mean_share = 0;
};

TEST_F(CheckSweep, RandomConfigsAreRight) {
  EXPECT_GT(check_all(20).size(), 40U);
}

TEST_F(CheckSweep, LongRandomConfigsAreRightAndTheirBoundsAreNotLoose) {
  for (const auto& [kind, share] : check_all(300)) {
    std::printf("%-60s %.3f of the bound\n", kind.c_str(), share);
    if (kind == "learning rate") continue;  // usually exactly the same bits
    EXPECT_GE(share, 1.0 / 30) << kind;
  }
  std::printf("%-60s %.3f of the bound\n", "the largest mean error", largest_mean_share);
  EXPECT_LE(empty, 10);
}

}  // namespace
}  // namespace ringtrain::testing
