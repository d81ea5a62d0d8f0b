// The plain double reference (reference/model.h) over sequences of a test, with the weights that a run has there.
#pragma once

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

/// What the reference makes of whole sequences.
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

}  // namespace ringtrain::testing
