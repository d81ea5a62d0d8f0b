// The memory plan: activations decrease as 1/N with the ring, no allocation grows with the whole sequence, the plan is
// what a run allocates, and a step allocates nothing.
#include <gtest/gtest.h>

#include <map>

#include "framework/config/model_config.h"
#include "layers/model_parameters.h"
#include "tests/layers/harness.h"

namespace ringtrain::testing {
namespace {

ModelConfig medium_llama() {
  ModelConfig config;
  config.num_key_value_heads = 2;
  config.head_dim = 64;
  return config;
}

ExecutionShape planned_shape(std::int64_t S, int ranks, Recompute recompute) {
  const std::int64_t T = (S + ranks - 1) / ranks;
  return {.ring_size = ranks,
          .max_sequences = 1,
          .max_tokens = T,
          .max_evaluation_sequences = 1,
          .max_evaluation_tokens = T,
          .max_ring_tokens = T,
          .max_evaluation_ring_tokens = T,
          .dtype = DType::float32,
          .recompute = recompute,
          .feedforward_chunk = 512,
          .loss_chunk = 256,
          .documents = true};
}

/// Expects the activations of the formula in a rank's plan.
void check_activations(const ModelConfig& c, Recompute policy) {
  SCOPED_TRACE(name_of(c.architecture));
  const ModelSpec spec = model_spec(c);
  constexpr std::int64_t T = 2048;
  const Plan p = plan(c, planned_shape(4 * T, 4, policy));
  const std::int64_t C = c.hidden_size, F = c.intermediate_size, L = c.num_hidden_layers, H = c.num_attention_heads,
                     G = c.num_key_value_heads, D = c.head_dim, Q = H * D, K = 2 * G * D;
  const std::int64_t attention = policy == Recompute::full ? 1 : L, rest = policy == Recompute::none ? L : 1;
  const std::int64_t kept_feedforward = policy == Recompute::none ? (spec.gated_feedforward ? 2 : 1) * F * L : 0;
  const std::int64_t statistics = spec.norm.kind == NormKind::layer_norm ? 2 : 1;
  const std::int64_t rotary = spec.positions == Positions::rope ? D : 0;
  // With norms of queries and keys: their inputs, instead of the queries kept; the queries once; statistics.
  const std::int64_t heads = spec.query_key_norm != QueryKeyNorm::none ? rest * G * D + Q + H + G : 0;
  // Per token: layer inputs; O and LSE; q, k, v and the stream after attention; gate and up; shared scratch; gradients
  // of the stream, of O, of k and v; the batch (4 int32, a weight) and the rope table.
  const std::int64_t floats = L * C + attention * (Q + H) + rest * (Q + K + C) + kept_feedforward + heads +
                              (C + statistics + H) + (C + Q + K) + (5 + rotary);
  EXPECT_EQ(p.use[Tag::activations], static_cast<std::size_t>(4 * floats * T));
}

class MemoryTest : public ::testing::TestWithParam<Recompute> {};

TEST_P(MemoryTest, ActivationsFallAsOneOverN) {
  constexpr std::int64_t S = 16384;  // at least 2K tokens per rank
  const auto one = static_cast<double>(plan(medium_llama(), planned_shape(S, 1, GetParam())).use[Tag::activations]);
  for (const int ranks : {2, 4, 8}) {
    const Plan p = plan(medium_llama(), planned_shape(S, ranks, GetParam()));
    const double share = static_cast<double>(p.use[Tag::activations]) * ranks / one;
    EXPECT_NEAR(share, 1.0, 0.15) << ranks << " ranks";
    RecordProperty("share_of_one_over_" + std::to_string(ranks), std::to_string(share));
  }
}

TEST_P(MemoryTest, NoAllocationGrowsWithTheWholeSequence) {
  constexpr std::int64_t T = 2048;
  const Plan three = plan(medium_llama(), planned_shape(3 * T, 3, GetParam()));  // two need fewer ring buffers
  for (const int ranks : {4, 8, 64}) {
    const Plan many = plan(medium_llama(), planned_shape(ranks * T, ranks, GetParam()));
    ASSERT_EQ(many.tensors.size(), three.tensors.size());
    for (std::size_t i = 0; i < three.tensors.size(); ++i) {
      EXPECT_EQ(many.tensors[i].bytes, three.tensors[i].bytes) << three.tensors[i].name;
    }
  }
}

TEST_P(MemoryTest, ActivationsFollowTheStatedFormula) {
  for (const Architecture architecture : all_architectures) {
    ModelConfig c = medium_llama();
    c.architecture = architecture;
    c.max_position_embeddings = 8192;
    check_activations(c, GetParam());
  }
}

TEST_P(MemoryTest, PlanIsWhatARunAllocatesAndAStepAllocatesNothing) {
  const ModelConfig config = small_model(Architecture::qwen3);  // it has everything that the others have
  const Sequences sequences = random_sequences(config, 2, 26, true, 1);
  const RunOptions options{.ranks = 2, .dtype = DType::float32, .recompute = GetParam()};
  on_ring(config, options, sequences, [&](RankModel& rank) {
    const Plan planned = plan(config, shape_of(options, sequences, rank.sequence_group.rank()));
    std::map<std::string, std::size_t> expected, found;
    for (const PlannedTensor& tensor : planned.tensors) expected[tensor.name] += tensor.bytes;
    for (const PlannedTensor& tensor : rank.allocator.live()) {
      if (!tensor.name.starts_with("batch.")) found[tensor.name] += tensor.bytes;  // the loader's, not the model's
    }
    EXPECT_EQ(found, expected);
    const std::int64_t allocations = rank.allocator.allocation_count();
    for (int step = 0; step < 2; ++step) {
      rank.train(sequences, 10.0);
      rank.evaluate(sequences);
      rank.model.take_loss_sum();
    }
    EXPECT_EQ(rank.allocator.allocation_count(), allocations);
  });
}

// A long evaluation costs one layer's tensors, not every layer's; and the tensors that it shares with training do not
// affect it.
TEST_P(MemoryTest, EvaluationMayBeLongerThanTraining) {
  const ModelConfig config = small_model(Architecture::qwen3);
  const Sequences training = random_sequences(config, 2, 10, true, 1),
                  evaluation = random_sequences(config, 1, 57, true, 2);
  RunOptions options{.recompute = GetParam()};
  const EvaluationResult expected = run_evaluation(config, options, evaluation);
  const RunResult expected_training = run_training(config, options, training, 3.0);

  ExecutionShape shape = shape_of(options, training, 0);
  shape.max_evaluation_sequences = 1;
  shape.max_evaluation_tokens = shape.max_evaluation_ring_tokens = 57;
  for (const PlannedTensor& tensor : plan(config, shape).tensors) {
    if (tensor.name.starts_with("layer 0 ")) {
      EXPECT_EQ(tensor.shape[0], 57) << tensor.name;
    }
    if (tensor.name.starts_with("layer 1 ")) {
      EXPECT_EQ(tensor.shape[0], 20) << tensor.name;
    }
  }
  launch_threads({.ranks = 1, .timeout_seconds = 30}, [&](Communicator& ring) {
    ThreadPool pool(1);
    Stream stream(pool);
    Allocator allocator(Device::cpu());
    const ParameterTable table = make_parameter_table(config);
    ParameterStore parameters(allocator, table, stream, {.dtype = options.dtype, .gradients = true});
    Batch batch(allocator, 2, 29, options.dtype);
    const auto transformer = make_transformer(model_spec(config), shape, allocator, parameters, stream, &ring);
    Model& model = *transformer;
    set_test_weights(stream, parameters);
    parameters.begin_step();
    std::vector<double> nll(57);
    cut(batch, evaluation, options.layout, 1, 0);
    model.evaluate(batch, host_view(nll.data(), {1, 57}));
    EXPECT_EQ(nll, expected.nll);
    EXPECT_EQ(model.take_loss_sum(), expected.loss_sum);
    cut(batch, training, options.layout, 1, 0);
    model.train_step(batch, 3.0, /*last=*/true);
    EXPECT_EQ(elements(flat_gradients(parameters)), expected_training.gradients);
  });
}

TEST(MemoryPlan, PoliciesKeepLessAndLess) {
  const auto activations = [](Recompute policy) {
    return plan(medium_llama(), planned_shape(8192, 4, policy)).use[Tag::activations];
  };
  EXPECT_GT(activations(Recompute::none), activations(Recompute::keep_attention));
  EXPECT_GT(activations(Recompute::keep_attention), activations(Recompute::full));
}

TEST(MemoryPlan, AModelThatOnlyEvaluatesKeepsNothingALayer) {
  ModelConfig shallow = medium_llama(), deep = medium_llama();
  shallow.num_hidden_layers = 1;
  deep.num_hidden_layers = 12;
  const auto activations = [](const ModelConfig& config) {
    ExecutionShape shape = planned_shape(8192, 4, Recompute::none);
    shape.max_tokens = 0;
    return plan(config, shape, {}, /*trains=*/false).use[Tag::activations];
  };
  EXPECT_EQ(activations(shallow), activations(deep));
}

INSTANTIATE_TEST_SUITE_P(Policies, MemoryTest, ::testing::ValuesIn(all_recompute_policies),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace ringtrain::testing
