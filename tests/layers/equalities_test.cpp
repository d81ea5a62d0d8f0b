// What must be equal: recompute policies (to the bit), numbers of threads (to the bit), chunk sizes, layouts and rings,
// consecutive micro-batches in the same buffers, evaluation and training.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/config/model_config.h"
#include "tests/layers/harness.h"

namespace ringtrain::testing {
namespace {

class Equalities : public ::testing::TestWithParam<Architecture> {
 protected:
  ModelConfig config() const { return small_model(GetParam()); }
};

void expect_same_bits(const RunResult& a, const RunResult& b) {
  EXPECT_EQ(a.rank_losses, b.rank_losses);
  for (std::size_t r = 0; r < a.by_rank.size(); ++r) {
    ASSERT_EQ(a.by_rank[r].size(), b.by_rank[r].size());
    for (std::size_t i = 0; i < a.by_rank[r].size(); ++i) {
      ASSERT_EQ(a.by_rank[r][i], b.by_rank[r][i]) << "rank " << r << " element " << i;
    }
  }
}

TEST_P(Equalities, RecomputePoliciesGiveTheSameBits) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const int ranks : {1, 3}) {
      for (const Layout layout : {Layout::contiguous, Layout::zigzag}) {
        const Sequences sequences = random_sequences(config(), 2, 37, true, 2);
        RunOptions options{.ranks = ranks, .layout = layout, .dtype = dtype, .recompute = Recompute::none};
        const RunResult none = run_training(config(), options, sequences, sequences.denominator());
        for (const Recompute policy : {Recompute::keep_attention, Recompute::full}) {
          SCOPED_TRACE(std::string(name_of(dtype)) + " ring of " + std::to_string(ranks));
          options.recompute = policy;
          expect_same_bits(run_training(config(), options, sequences, sequences.denominator()), none);
        }
      }
    }
  }
}

TEST_P(Equalities, ThreadsGiveTheSameBits) {
  const Sequences sequences = random_sequences(config(), 2, 61, true, 3);
  RunOptions options{.ranks = 2, .layout = Layout::zigzag, .dtype = DType::float32};
  const RunResult one = run_training(config(), options, sequences, sequences.denominator());
  for (const int threads : {2, 3}) {
    options.threads = threads;
    expect_same_bits(run_training(config(), options, sequences, sequences.denominator()), one);
  }
}

TEST_P(Equalities, ChunksChangeNoForwardBitAndGradientsOnlyByRounding) {
  const Sequences sequences = random_sequences(config(), 2, 45, false, 4);
  RunOptions options{.feedforward_chunk = 0, .loss_chunk = 1000};
  const RunResult whole = run_training(config(), options, sequences, sequences.denominator());
  const EvaluationResult whole_nll = run_evaluation(config(), options, sequences);
  for (const auto& [feedforward, loss] : {std::pair<int, int>{1, 1}, {7, 13}, {16, 8}, {90, 90}, {500, 500}}) {
    SCOPED_TRACE("chunks of " + std::to_string(feedforward) + " and " + std::to_string(loss));
    options.feedforward_chunk = feedforward;
    options.loss_chunk = loss;
    EXPECT_EQ(run_evaluation(config(), options, sequences).nll, whole_nll.nll);
    const RunResult chunked = run_training(config(), options, sequences, sequences.denominator());
    EXPECT_NEAR(chunked.loss_sum / whole.loss_sum, 1.0, 1e-14);
    EXPECT_LE(relative_difference(chunked.gradients, whole.gradients), 1e-13);
  }
}

TEST_P(Equalities, RingsAndLayoutsEqualOneRank) {
  const Sequences sequences = random_sequences(config(), 2, 43, true, 6);
  const RunResult one = run_training(config(), {}, sequences, sequences.denominator());
  for (const int ranks : {2, 3, 4, 5}) {
    for (const Layout layout : all_layouts) {
      SCOPED_TRACE(std::string("ring of ") + std::to_string(ranks) + " " + name_of(layout));
      const RunOptions options{.ranks = ranks, .layout = layout, .recompute = Recompute::keep_attention};
      const RunResult result = run_training(config(), options, sequences, sequences.denominator());
      EXPECT_NEAR(result.loss_sum / one.loss_sum, 1.0, 1e-13);
      EXPECT_LE(relative_difference(result.gradients, one.gradients), 1e-12);
    }
  }
}

TEST_P(Equalities, RanksWithoutTokensTakePart) {
  const Sequences sequences = random_sequences(config(), 2, 2, false, 7);
  const RunResult one = run_training(config(), {}, sequences, 3.0);
  for (const Layout layout : all_layouts) {
    for (const Recompute policy : {Recompute::none, Recompute::full}) {
      const RunOptions options{.ranks = 4, .layout = layout, .recompute = policy};
      const RunResult result = run_training(config(), options, sequences, 3.0);
      EXPECT_NEAR(result.loss_sum, one.loss_sum, 1e-13);
      EXPECT_LE(relative_difference(result.gradients, one.gradients), 1e-12);
      EXPECT_EQ(result.rank_losses[3], 0.0);
      for (double g : result.by_rank[3]) ASSERT_EQ(g, 0.0);
      EXPECT_LE(relative_difference(run_evaluation(config(), options, sequences).nll,
                                    run_evaluation(config(), {}, sequences).nll),
                1e-14);
    }
  }
}

TEST_P(Equalities, MicroBatchesAddInTheSameBuffers) {
  const Sequences large = random_sequences(config(), 3, 29, true, 9),
                  small = random_sequences(config(), 1, 10, false, 10);
  for (const Recompute policy : all_recompute_policies) {
    const RunOptions options{.ranks = 2, .layout = Layout::zigzag, .recompute = policy};
    const RunResult first = run_training(config(), options, large, 7.0);
    const RunResult second = run_training(config(), options, small, 7.0);
    std::mutex mutex;
    std::vector<double> sum(first.gradients.size(), 0.0);
    double loss = 0;
    on_ring(config(), options, large, [&](RankModel& rank) {
      rank.evaluate(small);  // evaluation shares training's buffers and must leave no trace
      rank.model.take_loss_sum();
      rank.train(large, 7.0);
      rank.evaluate(large);
      rank.model.take_loss_sum();
      rank.train(small, 7.0);
      rank.train(large, 7.0);
      const double own = rank.model.take_loss_sum();
      EXPECT_EQ(rank.model.take_loss_sum(), 0.0);
      const std::vector<double> gradients = elements(flat_gradients(rank.parameters));
      const std::lock_guard lock(mutex);
      loss += own;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[i];
    });
    std::vector<double> expected(sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) expected[i] = 2 * first.gradients[i] + second.gradients[i];
    EXPECT_NEAR(loss / (first.loss_sum + second.loss_sum), 1.0, 1e-14);
    EXPECT_LE(relative_difference(sum, expected), 1e-13);
  }
}

TEST_P(Equalities, AStepReadsNoGradientOfTheStepBefore) {
  for (const std::int64_t S : {2, 37}) {  // with 2 tokens, the third rank has none
    const Sequences sequences = random_sequences(config(), 1, S, false, 6);
    for (const int chunk : {0, 5}) {
      const RunOptions options{.ranks = 3, .feedforward_chunk = chunk, .loss_chunk = 7};
      on_ring(config(), options, sequences, [&](RankModel& rank) {
        rank.train(sequences, 7.0);
        rank.train(sequences, 7.0);
        const std::vector<double> first = elements(flat_gradients(rank.parameters));
        for (int id = 0; id < static_cast<int>(rank.table.all().size()); ++id) {
          fill(rank.stream, rank.parameters.gradient(id), std::nan(""));
        }
        rank.parameters.begin_step();
        rank.train(sequences, 7.0);
        rank.train(sequences, 7.0);
        EXPECT_EQ(elements(flat_gradients(rank.parameters)), first);
      });
    }
  }
}

TEST_P(Equalities, EvaluationGivesTheTrainingLoss) {
  const Sequences sequences = random_sequences(config(), 2, 33, true, 11);
  for (const int ranks : {1, 3}) {
    const RunOptions options{.ranks = ranks, .layout = Layout::striped};
    const RunResult training = run_training(config(), options, sequences, sequences.denominator());
    const EvaluationResult evaluation = run_evaluation(config(), options, sequences);
    EXPECT_EQ(training.loss_sum, evaluation.loss_sum);
    double sum = 0;
    for (std::size_t i = 0; i < evaluation.nll.size(); ++i) {
      sum += sequences.labels[i] >= 0 ? sequences.weights[i] * evaluation.nll[i] : 0.0;
      if (sequences.labels[i] < 0) {
        EXPECT_EQ(evaluation.nll[i], 0.0);
      }
    }
    EXPECT_NEAR(sum / evaluation.loss_sum, 1.0, 1e-14);
  }
}

TEST_P(Equalities, UniformModelGivesTheLogarithmOfTheVocabulary) {
  const Sequences sequences = random_sequences(config(), 2, 20, true, 12);
  const EvaluationResult result = run_evaluation(config(), {.ranks = 2}, sequences, [](ParameterStore& parameters) {
    for (std::int64_t i = 0; i < flat_weights(parameters).numel(); ++i) {
      set_element(flat_weights(parameters), i, 0.0);
    }
  });
  const double expected = std::log(static_cast<double>(config().vocab_size));
  for (std::size_t i = 0; i < result.nll.size(); ++i) {
    if (sequences.labels[i] >= 0) {
      EXPECT_NEAR(result.nll[i] / expected, 1.0, 1e-12);
    }
  }
}

TEST_P(Equalities, NoTargetsGiveNoGradient) {
  Sequences unlabeled = random_sequences(config(), 2, 17, true, 13), weightless = unlabeled;
  for (std::int32_t& label : unlabeled.labels) label = -1;
  for (double& weight : weightless.weights) weight = 0.0;
  for (const Sequences* sequences : {&unlabeled, &weightless}) {
    for (const double denominator : {0.0, 5.0}) {
      const RunResult result = run_training(config(), {.ranks = 2, .layout = Layout::zigzag}, *sequences, denominator);
      EXPECT_EQ(result.loss_sum, 0.0);
      for (double g : result.gradients) ASSERT_EQ(g, 0.0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Equalities, ::testing::ValuesIn(all_architectures),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace ringtrain::testing
