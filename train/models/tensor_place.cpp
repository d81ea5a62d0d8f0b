#include "train/models/tensor_place.h"

namespace ringtrain {

std::vector<std::int64_t> shape_of(const Parameter& parameter) {
  std::vector<std::int64_t> shape;
  shape.reserve(parameter.shape.rank());
  for (int dim = 0; dim < parameter.shape.rank(); ++dim) shape.push_back(parameter.shape[dim]);
  return shape;
}

std::int64_t interleaved_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return head * head_dim + 2 * (within % half) + within / half;
}

}  // namespace ringtrain
