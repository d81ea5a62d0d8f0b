// The inputs of the reference, which knows no token files, frozen weights, or adapters. A step's sequences come
// straight from the token file, whole and in order, by the rules of docs/data.md: they share nothing with the loader
// except the file's reader and the order of samples. The reference computes with adapters as W + (alpha / r) B A, and
// the gradients of A and B follow from W's by the chain rule.
#pragma once

#include <cstdint>

#include "framework/parameter_table.h"
#include "reference/model.h"
#include "train/run/run.h"

namespace ringtrain {

/// Returns sequence i of a step (from 1) of a run that starts from the beginning.
reference::Row reference_row(const Run& run, std::int64_t step, std::int64_t i);

class ReferenceAdapters {
 public:
  /// Adds scale * B A to the adapted weights, and removes A and B from them.
  ReferenceAdapters(double scale, const ParameterTable& table, reference::Tensors& weights);

  /// Returns the gradients of the trained parameters, given those of all weights: dA = scale * B^T dW, dB = scale * dW
  /// A^T.
  reference::Tensors of_trained(reference::Tensors gradients) const;

 private:
  double scale_;
  const ParameterTable& table_;
  reference::Tensors factors_;  // A and B, by name
};

}  // namespace ringtrain
