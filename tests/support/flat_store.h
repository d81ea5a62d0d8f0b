// The flat buffers of a store that is not sharded, padding included, which tests fill and compare as a whole.
#pragma once

#include "parallel/parameter_store.h"

namespace ringtrain::testing {

/// Returns all trained weights, [table.flat_size()].
inline TensorView flat_weights(const ParameterStore& store) {
  TensorView all = store.weights({.parameter = 0, .begin = 0, .end = 1});
  all.shape = {store.table().flat_size()};
  return all;
}

/// Returns all their gradients.
inline TensorView flat_gradients(const ParameterStore& store) {
  TensorView all = store.gradient(0).flat();
  all.shape = {store.table().flat_size()};
  return all;
}

}  // namespace ringtrain::testing
