// Runs the plain double reference (reference/model.h) on sequences of a test, with the weights that a run has there.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "layers/model_parameters.h"
#include "reference/model.h"
#include "tests/layers/harness.h"

namespace ringtrain::testing {

inline reference::Tensors test_weights(const ParameterTable& table) {
  reference::Tensors weights;
  for (int id = 0; id < static_cast<int>(table.all().size()); ++id) {
    reference::Vector& values = weights[table[id].name];
    for (std::int64_t i = 0; i < table[id].shape.numel(); ++i) values.push_back(test_weight(id, table[id].name, i));
  }
  return weights;
}

inline reference::Row row_of(const Sequences& all, std::int64_t b) {
  const auto cut = [&]<class T>(const std::vector<T>& x) {
    return std::vector<T>(x.begin() + b * all.S, x.begin() + (b + 1) * all.S);
  };
  return {.tokens = cut(all.tokens),
          .labels = cut(all.labels),
          .documents = all.has_documents ? cut(all.documents) : std::vector<std::int32_t>{},
          .positions = cut(all.positions),
          .weights = cut(all.weights)};
}

/// The reference's results for whole sequences.
struct ReferencePass {
  double loss_sum = 0;
  std::vector<double> nll;
  reference::Tensors gradients;
};

inline ReferencePass reference_pass(const reference::Model& model, const Sequences& sequences, double denominator,
                                    bool backward = true) {
  ReferencePass pass;
  for (std::int64_t b = 0; b < sequences.B; ++b) {
    reference::Tensors t;
    const reference::Row row = row_of(sequences, b);
    pass.loss_sum += model.forward(row, t);
    pass.nll.insert(pass.nll.end(), t.at("nll").begin(), t.at("nll").end());
    if (backward) model.backward(row, denominator, t, pass.gradients);
  }
  return pass;
}

/// Compares a run with it.
inline void expect_agreement(const RunResult& run, const ReferencePass& pass, const ParameterTable& table) {
  EXPECT_NEAR(run.loss_sum, pass.loss_sum, 1e-12 * std::abs(pass.loss_sum));
  for (const Parameter& parameter : table.all()) {
    const auto begin = run.gradients.begin() + parameter.offset;
    ASSERT_EQ(std::ssize(pass.gradients.at(parameter.name)), parameter.shape.numel());
    EXPECT_LE(relative_difference({begin, begin + parameter.shape.numel()}, pass.gradients.at(parameter.name)), 1e-11)
        << parameter.name;
  }
}

}  // namespace ringtrain::testing
