// Where a parameter of ours lies in a file of another program: the tensor's name and shape there, and how its elements
// are arranged. hugging_face_names.h says where; placed_weights.h reads. Pure values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/parameter_table.h"

namespace ringtrain {

struct TensorPlace {
  enum class Form {
    plain,       // the parameter is a run of the tensor's elements
    transposed,  // the tensor is [in, out ...]: the parameter [out, in] is a run of its columns, transposed
  };

  std::string name;
  std::vector<std::int64_t> shape;  // of the tensor
  Form form = Form::plain;
  std::int64_t first = 0;  // the element (plain) or column (transposed) of the tensor at which the parameter begins
};

/// Returns the place of a parameter.
using Places = std::function<TensorPlace(const Parameter&)>;

/// Returns the shape of a parameter.
inline std::vector<std::int64_t> shape_of(const Parameter& parameter) {
  std::vector<std::int64_t> shape;
  for (int dim = 0; dim < parameter.shape.rank(); ++dim) shape.push_back(parameter.shape[dim]);
  return shape;
}

}  // namespace ringtrain
