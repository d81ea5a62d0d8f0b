// The weights of a model that lies somewhere, by our global names, whatever the format: a checkpoint of a run, or
// a Hugging Face folder. model_source.h opens one.
#pragma once

#include <cstdint>

#include "framework/parameter_table.h"
#include "framework/tensor.h"

namespace ringtrain {

/// Each rank has its own. No member communicates.
class WeightSource {
 public:
  WeightSource() = default;
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  /// Reads elements [begin, begin + to.numel()) of the flattened parameter into `to`: float32 or float64, on the host,
  /// contiguous. Slices are read fastest one after the other. Throws Error(checkpoint) that names file and tensor.
  virtual void read(const Parameter& parameter, std::int64_t begin, const TensorView& to) = 0;
};

}  // namespace ringtrain
