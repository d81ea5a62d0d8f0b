// The targets of a batch: every score of an evaluation iterates over them.
#pragma once

#include <cstdint>

#include "data/batch.h"
#include "framework/dtype.h"

namespace ringtrain {

/// One target of this rank's part of a sequence.
struct BatchTarget {
  std::int64_t t = 0;         // its index in the batch
  std::int64_t position = 0;  // of the token before it, in the sequence
  std::int32_t label = 0;
  double weight = 0;
};

/// Calls body(target) for each target of a batch of one sequence, in order.
template <class Body>
void for_each_target(const Batch& batch, const Body& body) {
  const auto* const labels = batch.labels().as<std::int32_t>();
  const auto* const positions = batch.positions().as<std::int32_t>();
  dispatch_float(batch.weights().dtype, [&]<class Real>() {
    const Real* const weights = batch.weights().as<Real>();
    for (std::int64_t t = 0; t < batch.T; ++t) {
      if (labels[t] >= 0) body(BatchTarget{t, positions[t], labels[t], static_cast<double>(weights[t])});
    }
  });
}

}  // namespace ringtrain
