#include "train/engine/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "framework/config/config.h"
#include "framework/random.h"
#include "parallel/store_context.h"
#include "tests/support/flat_store.h"

namespace ringtrain {
namespace {

ParameterTable small_table() {
  ParameterTable table;
  table.add({.name = "embedding", .shape = {7, 5}, .bucket = 0, .decay = true});
  table.add({.name = "norm", .shape = {5}, .bucket = 1, .decay = false});
  table.add({.name = "linear", .shape = {9, 5}, .bucket = 1, .decay = true});
  table.add({.name = "bias", .shape = {3}, .bucket = 2, .decay = false});
  return table;
}

TEST(OwnedSlices, OfAllRanksAreEveryElementOnce) {
  const ParameterTable table = small_table();
  for (int ranks = 1; ranks <= 12; ++ranks) {
    std::vector<std::vector<int>> owners;
    for (const Parameter& parameter : table.all()) owners.emplace_back(parameter.shape.numel(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      std::int64_t offset = 0;
      for (const ParameterSlice& slice : owned_slices(table, Part::trainable, ranks, rank)) {
        EXPECT_LT(slice.begin, slice.end);
        EXPECT_EQ(slice.offset, offset);  // state has no gaps
        offset += slice.count();
        for (std::int64_t i = slice.begin; i < slice.end; ++i) ++owners[slice.parameter][i];
      }
    }
    for (const auto& counts : owners) {
      for (const int count : counts) EXPECT_EQ(count, 1) << ranks << " ranks";
    }
  }
}

/// AdamW, Algorithm 2 of Loshchilov and Hutter (2019), written out for one number.
struct PlainAdamW {
  double m = 0, v = 0;
  double step(double w, double g, double lr, const OptimizerConfig& config, double decay, int t) {
    m = config.beta1 * m + (1 - config.beta1) * g;
    v = config.beta2 * v + (1 - config.beta2) * g * g;
    const double mean = m / (1 - std::pow(config.beta1, t)), square = v / (1 - std::pow(config.beta2, t));
    return w - lr * (mean / (std::sqrt(square) + config.eps) + decay * w);
  }
};

double draw(std::uint64_t what, std::uint64_t index) {
  return random_normal(9, Purpose::test, what << 32 | index);
}

// Several ranks, each with the whole flat buffers but only its slices updated, compared with the plain formula for all
// elements: norm over slices, clipping, decay only on matrices.
TEST(OptimizerTest, ShardedUpdatesEqualThePlainFormula) {
  const ParameterTable table = small_table();
  constexpr int ranks = 3;
  OptimizerConfig config;
  config.weight_decay = 0.3;
  config.eps = 1e-6;
  config.max_grad_norm = 2.0;
  ThreadPool pool(1);
  Stream stream(pool);
  const auto flat = static_cast<std::size_t>(table.flat_size());

  std::vector<double> expected(flat);
  std::vector<PlainAdamW> plain(flat);
  for (std::size_t i = 0; i < flat; ++i) expected[i] = draw(0, i);
  const std::vector<double> initial = expected;

  for (int rank = 0; rank < ranks; ++rank) {
    expected = initial;
    plain.assign(flat, {});
    Allocator allocator(Device::cpu());
    {
      ParameterStore parameters(allocator, table, stream,
                                {.dtype = DType::float64, .gradients = true, .ranks = ranks, .rank = rank});
      Optimizer optimizer(allocator, config, /*seed=*/1, parameters, stream);
      optimizer.reset();
      double* weights = testing::flat_weights(parameters).as<double>();
      double* gradients = testing::flat_gradients(parameters).as<double>();
      std::copy(initial.begin(), initial.end(), weights);
      for (int t = 1; t <= 4; ++t) {
        for (std::size_t i = 0; i < flat; ++i) gradients[i] = draw(static_cast<std::uint64_t>(t), i);
        // The norm is that of all parameters without padding; a rank's share is the sum over its slices.
        double squares = 0, own = 0;
        for (const Parameter& parameter : table.all()) {
          for (std::int64_t i = 0; i < parameter.shape.numel(); ++i) {
            const double g = gradients[parameter.offset + i];
            squares += g * g;
          }
        }
        for (const ParameterSlice& slice : optimizer.slices()) {
          for (std::int64_t i = slice.begin; i < slice.end; ++i) {
            const double g = gradients[table[slice.parameter].offset + i];
            own += g * g;
          }
        }
        double sum = 0;
        optimizer.sum_of_squares(host_view(&sum, {1}));
        stream.synchronize();
        EXPECT_NEAR(sum, own, 1e-12 * own);
        const double norm = std::sqrt(squares), factor = clip_factor(norm, config.max_grad_norm);
        EXPECT_LT(factor, 1);
        const double lr = 0.1 / t;
        optimizer.update(lr, t, factor);
        for (const Parameter& parameter : table.all()) {
          for (std::int64_t i = 0; i < parameter.shape.numel(); ++i) {
            const auto at = static_cast<std::size_t>(parameter.offset + i);
            expected[at] =
                plain[at].step(expected[at], gradients[at] * factor, lr, config, parameter.decay ? 0.3 : 0.0, t);
          }
        }
      }
      std::vector<bool> owned(flat, false);
      for (const ParameterSlice& slice : optimizer.slices()) {
        const std::int64_t offset = table[slice.parameter].offset;
        for (std::int64_t i = slice.begin; i < slice.end; ++i) owned[offset + i] = true;
      }
      for (std::size_t i = 0; i < flat; ++i) {
        if (owned[i]) {
          EXPECT_NEAR(weights[i], expected[i], 1e-12 * std::abs(expected[i]) + 1e-14);
        } else {
          EXPECT_EQ(weights[i], initial[i]) << "an element of another rank was touched";
        }
      }
    }
  }
}

/// Returns all weights after two steps on this many ranks, with moments in bfloat16 and equal gradients.
std::vector<float> updated(int ranks, std::uint64_t seed) {
  const ParameterTable table = small_table();
  OptimizerConfig config;
  config.moments = DType::bfloat16;
  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<float> all(static_cast<std::size_t>(table.flat_size()));
  for (int rank = 0; rank < ranks; ++rank) {
    Allocator allocator(Device::cpu());
    ParameterStore parameters(allocator, table, stream, {.gradients = true, .ranks = ranks, .rank = rank});
    Optimizer optimizer(allocator, config, seed, parameters, stream);
    optimizer.reset();
    parameters.clear_weights();
    std::fill_n(testing::flat_gradients(parameters).as<float>(), all.size(), 1.01F);
    for (const int step : {1, 2}) optimizer.update(0.1, step, 1);
    for (const ParameterSlice& slice : optimizer.slices()) {
      std::copy_n(optimizer.weights(slice).as<float>(), slice.count(),
                  all.begin() + table[slice.parameter].offset + slice.begin);
    }
  }
  return all;
}

TEST(OptimizerTest, MomentsInBFloat16DependOnSeedAndElementButNotOnTheMesh) {
  const std::vector<float> one = updated(1, 5);
  for (const int ranks : {2, 3, 7}) EXPECT_EQ(updated(ranks, 5), one) << ranks;
  EXPECT_NE(updated(1, 6), one);
  EXPECT_GT(std::set<float>(one.begin(), one.end()).size(), 4U) << "all elements are rounded in the same way";
}

TEST(ClipFactor, ScalesDownAndNeverUp) {
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1.0);
  EXPECT_EQ(clip_factor(100.0, 0.0), 1.0);  // no clipping
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
}

}  // namespace
}  // namespace ringtrain
