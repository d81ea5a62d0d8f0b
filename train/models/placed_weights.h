// A model's weights in tensor files whose names and layout come from another program: where a parameter of ours is in
// them (from hugging_face_names.h), checks that the files hold exactly this model, and a reader of slices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/parameter_table.h"
#include "framework/storage/stored_tensor.h"
#include "framework/tensor.h"

namespace ringtrain {

/// Reads elements [begin, begin + to.numel()) of a flattened parameter into `to`: float32 or float64, on the host,
/// contiguous. Reading slices in sequence is fastest. Throws Error(checkpoint), which names file and tensor. Each rank
/// has a separate reader. No communication. In every format, weights have our global names.
using WeightReader = std::function<void(const Parameter& parameter, std::int64_t begin, const TensorView& to)>;

struct TensorLocation {
  std::string name;
  std::vector<std::int64_t> shape;  // of the tensor
  // false: the parameter is a run of the tensor's elements. true: the tensor is [in, out ...], and the parameter [out,
  // in] is a run of its columns, transposed.
  bool transposed = false;
  std::int64_t first = 0;  // the element, or the column, of the tensor at which the parameter begins
};

/// Returns the location of a parameter.
using TensorLocations = std::function<TensorLocation(const Parameter&)>;

/// Files that hold a model. source: the folder or file, for messages.
struct PlacedModel {
  std::string source;
  StoredTensors stored;
  TensorLocations locations;
  std::string tied_head;  // the name of a separate head's matrix, for a model whose head is the token embedding
  std::function<bool(std::string_view name)> is_constant;  // tensors that are not weights of the model
};

/// Throws Error(checkpoint) unless each parameter has its tensor, with its shape and a supported type, and no tensor is
/// left over. If there is a head in addition to a tied embedding, it must equal it, element by element.
void check_placed_model(const PlacedModel& model, const ParameterTable& table);

/// Returns a reader. It keeps at most 20 MiB.
WeightReader read_placed_weights(std::shared_ptr<const PlacedModel> model);

}  // namespace ringtrain
