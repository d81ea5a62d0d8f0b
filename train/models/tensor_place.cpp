#include "train/models/tensor_place.h"

namespace ringtrain {

std::vector<std::int64_t> shape_of(const Parameter& parameter) {
  std::vector<std::int64_t> shape;
  shape.reserve(parameter.shape.rank());
  for (int dim = 0; dim < parameter.shape.rank(); ++dim) shape.push_back(parameter.shape[dim]);
  return shape;
}

}  // namespace ringtrain
