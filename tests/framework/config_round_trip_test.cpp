// Random configs: a written config is read back to the same values, and a broken text results in an error.
#include "framework/config/config.h"
#include "framework/config/training_config.h"
#include "tests/framework/config_text.h"

#include <cmath>

#include "framework/random.h"

namespace ringtrain::testing {
namespace {

/// Draws from a fixed sequence of random numbers.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_below(seed_, Purpose::test, index_++, static_cast<std::uint64_t>(bound)));
  }
  double real(double low, double high) { return low + (high - low) * random_uniform(seed_, Purpose::test, index_++); }
  bool flag() { return below(2) == 1; }
  std::string text() {
    static const std::vector<std::string> pieces{"a",  "B7", " ",  "\"", "'",  "\\",       ":",   "#",
                                                 "- ", "\n", "\t", "é",  "語", "🙂",     "{",   "]",
                                                 ",",  "&",  "*",  "%",  "|",  "\xc2\x85", "null"};
    std::string result = "f";
    for (std::int64_t n = below(8); n > 0; --n) {
      result += pieces[below(static_cast<std::int64_t>(pieces.size()))];
    }
    return result;
  }

  template <class Values>
  auto one_of(const Values& values) {
    return values[below(std::ssize(values))];
  }

 private:
  std::uint64_t seed_, index_ = 0;
};

/// Returns a resolved scaling for a head with this many pairs, with every key that its type uses.
RopeScalingConfig random_scaling(Draw& draw, std::int64_t pairs) {
  RopeScalingConfig s;
  s.type = draw.one_of(all_rope_types);
  s.factor = s.type == RopeType::none ? 1 : draw.real(1, 64);
  if (s.type != RopeType::none) s.original_max_position_embeddings = 2 + draw.below(10000);
  if (s.type == RopeType::yarn || s.type == RopeType::longrope) s.attention_factor = draw.real(0, 3);
  if (s.type == RopeType::yarn) {
    s.beta_fast = draw.real(1, 64);
    s.beta_slow = draw.real(0.1, 2);
    s.mscale = draw.real(0, 2);
    s.mscale_all_dim = draw.real(0, 2);
    s.truncate = draw.flag();
  }
  if (s.type == RopeType::llama3) {
    s.low_freq_factor = draw.real(0.5, 2);
    s.high_freq_factor = draw.real(3, 9);
  }
  for (std::int64_t i = 0; s.type == RopeType::longrope && i < pairs; ++i) {
    s.short_factor.push_back(draw.real(1, 2));
    s.long_factor.push_back(draw.real(1, 60));
  }
  return s;
}

ModelConfig random_model(Draw& draw) {
  ModelConfig m;
  m.architecture = draw.one_of(all_architectures);
  m.vocab_size = 2 + draw.below(70000);
  m.num_key_value_heads = 1 + draw.below(4);
  m.num_attention_heads = m.num_key_value_heads * (1 + draw.below(4));
  m.head_dim = 2 * (1 + draw.below(64));
  m.hidden_size = 1 + draw.below(1000);
  m.num_hidden_layers = 1 + draw.below(10);
  m.intermediate_size = 1 + draw.below(5000);
  m.rope_theta = std::exp(draw.real(0, 20));
  m.rope_scaling = random_scaling(draw, m.head_dim / 2);
  m.max_position_embeddings = draw.below(1000);
  m.sliding_window = draw.below(1000);
  for (std::int64_t n = draw.below(4); n > 0; --n) {
    m.layer_types.push_back(draw.flag() ? LayerType::full_attention : LayerType::sliding_attention);
    m.layer_positions.push_back(draw.flag() ? LayerPositions::rope : LayerPositions::none);
  }
  m.sliding_rope_theta = draw.flag() ? 0 : std::exp(draw.real(0, 20));
  m.query_pre_attn_scalar = draw.flag() ? 0 : draw.real(1, 1000);
  m.attention_softcap = draw.flag() ? 0 : draw.real(1, 100);
  m.final_softcap = draw.flag() ? 0 : draw.real(1, 100);
  m.attention_sinks = draw.flag();
  m.embedding_multiplier = draw.flag() ? 0 : draw.real(0.1, 100);
  m.residual_multiplier = draw.real(0.1, 10);
  m.logits_scaling = draw.real(0.1, 100);
  m.rms_norm_eps = std::exp(draw.real(-30, -1));
  m.initializer_range = draw.real(0, 1);
  m.tie_word_embeddings = draw.flag();
  m.attention_bias = draw.flag();
  m.mlp_bias = draw.flag();
  return m;
}

Config random_config(std::uint64_t seed) {
  Draw draw(seed);
  Config c;
  c.model = random_model(draw);
  for (std::int64_t n = 1 + draw.below(3); n > 0; --n) {
    c.data.train.push_back({draw.text(), draw.flag() ? 1.0 : draw.real(1e-9, 5)});
  }
  if (draw.flag()) c.data.validation = draw.text();
  c.data.packing = static_cast<Packing>(draw.below(2));
  c.data.longer = c.data.packing == Packing::whole ? static_cast<LongDocuments>(draw.below(4)) : LongDocuments::cut;
  c.mesh.data = 1 + draw.below(8);
  c.mesh.sequence = 1 + draw.below(8);
  c.mesh.layout = draw.one_of(all_layouts);
  c.mesh.backend = static_cast<Backend>(draw.below(2));
  c.mesh.threads_per_rank = draw.below(9);
  c.mesh.timeout_seconds = draw.real(1e-3, 1e5);
  c.mesh.share_gpu = draw.flag();
  TrainingConfig& t = c.training;
  t.seq_len = 1 + draw.below(100000);
  t.micro_batch_size = 1 + draw.below(8);
  t.global_batch_size = c.mesh.data * t.micro_batch_size * (1 + draw.below(8));
  t.steps = 1 + draw.below(1000000000);
  t.seed = random_bits(seed, Purpose::test, 1u << 20);
  t.dtype = draw.flag() ? DType::float32 : DType::float64;
  t.recompute = draw.one_of(all_recompute_policies);
  t.feedforward_chunk = draw.below(5000) - 1;
  t.loss_chunk = draw.below(5000);
  t.deterministic = draw.flag();
  t.on_nonfinite = static_cast<OnNonfinite>(draw.below(2));
  t.max_skipped_steps = draw.below(100);
  t.audit = {draw.below(1000), 1 + draw.below(64), static_cast<OnFailure>(draw.below(2))};
  c.optimizer = {draw.one_of(values_of(optimizer_names)),
                 draw.real(0, 0.01),
                 draw.real(0, 0.999),
                 draw.real(0, 0.999),
                 std::exp(draw.real(-40, -1)),
                 draw.real(0, 1),
                 draw.real(0, 10),
                 t.dtype == DType::float32 && draw.flag() ? DType::bfloat16 : DType::float32};
  c.lr_scheduler = {static_cast<ScheduleType>(draw.below(4)), draw.below(1000), draw.real(0, 1), draw.real(0, 1)};
  c.checkpoint = {draw.below(1000), draw.real(0, 1e6), 1 + draw.below(9), draw.flag(),
                  static_cast<OnFailure>(draw.below(2))};
  c.evaluation.interval = draw.below(100);
  std::int64_t length = 0;
  for (std::int64_t n = 1 + draw.below(6); n > 0; --n) {
    c.evaluation.context_lengths.push_back(length += 2 + draw.below(10000));
  }
  c.evaluation.target_tokens = 1 + draw.below(c.evaluation.context_lengths[0] / 2);
  c.evaluation.target_blocks = 1 + draw.below(1000);
  c.metrics = {draw.flag(), draw.real(0, 1e20)};
  c.evaluation.on_training_data = draw.flag();
  return c;
}

TEST(Config, WhatIsWrittenIsReadBackToTheSameValues) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Config config = random_config(seed);
    Config back;
    try {
      back = parse_config(to_yaml(config), "x.yaml", {});
    } catch (const Error& error) {
      FAIL() << "seed " << seed << "\n" << error.what() << "\n" << to_yaml(config);
    }
    EXPECT_TRUE(differences(config, back).empty()) << "seed " << seed << " " << differences(config, back)[0].key;
    EXPECT_EQ(to_yaml(config), to_yaml(back));
    // Members, not only their text:
    EXPECT_EQ(config.optimizer.eps, back.optimizer.eps);
    EXPECT_EQ(config.optimizer.beta1, back.optimizer.beta1);
    EXPECT_EQ(config.model.rope_theta, back.model.rope_theta);
    EXPECT_EQ(config.model.rope_scaling.long_factor, back.model.rope_scaling.long_factor);
    EXPECT_EQ(config.mesh.timeout_seconds, back.mesh.timeout_seconds);
    EXPECT_EQ(config.mesh.share_gpu, back.mesh.share_gpu);
    EXPECT_EQ(config.training.seed, back.training.seed);
    EXPECT_EQ(config.training.steps, back.training.steps);
    EXPECT_EQ(config.evaluation.context_lengths, back.evaluation.context_lengths);
    ASSERT_EQ(config.data.train.size(), back.data.train.size());
    for (std::size_t i = 0; i < config.data.train.size(); ++i) {
      EXPECT_EQ(config.data.train[i].path, back.data.train[i].path);
      EXPECT_EQ(config.data.train[i].weight, back.data.train[i].weight);
    }
  }
}

TEST(Config, ATruncatedOrBrokenFileEndsInAnErrorAndNothingElse) {
  const std::string text = to_yaml(random_config(3));
  for (std::size_t length = 0; length < text.size(); length += 7) complaint(text.substr(0, length));
  for (std::uint64_t i = 0; i < 2000; ++i) {
    std::string broken = text;
    for (std::uint64_t j = 0; j < 3; ++j) {
      const std::uint64_t bits = random_bits(i, Purpose::test, j);
      broken[bits % broken.size()] = "{}[]:,#&*!|>'\"%@`\n\t -x09"[(bits >> 32) % 24];
    }
    complaint(broken);
  }
}

}  // namespace
}  // namespace ringtrain::testing
