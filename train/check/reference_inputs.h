// What the reference reads, which knows of no token file, nothing frozen, and no adapters. A step's sequences come
// straight from the token file, whole and in order, by the rules of docs/data.md: they share nothing with the loader
// but the file's reader and the order of samples. Of adapters it computes with W + (alpha / r) B A, and from W's
// gradient those of A and B follow by the chain rule.
#pragma once

#include <cstdint>

#include "framework/parameter_table.h"
#include "reference/model.h"
#include "train/run/run.h"

namespace ringtrain {

/// Returns sequence i of a step (from 1) of a run that begins afresh.
reference::Row reference_row(const Run& run, std::int64_t step, std::int64_t i);

class ReferenceAdapters {
 public:
  /// Adds scale * B A to the weights beside which adapters stand, and takes A and B out of them.
  ReferenceAdapters(double scale, const ParameterTable& table, reference::Tensors& weights);

  /// Returns the gradients of what is trained, of those of all weights: dA = scale * B^T dW, dB = scale * dW A^T.
  reference::Tensors of_trained(reference::Tensors gradients) const;

 private:
  double scale_;
  const ParameterTable& table_;
  reference::Tensors factors_;  // A and B, by name
};

}  // namespace ringtrain
