// A model's weights in files of tensors whose names and arrangement are another program's: checks that the files hold
// this model and nothing else, and reads slices of our parameters out of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "framework/storage/stored_tensor.h"
#include "train/models/tensor_place.h"
#include "train/models/weight_source.h"

namespace ringtrain {

/// Files that hold a model. source: the folder or file, for messages.
struct PlacedModel {
  std::string source;
  StoredTensors stored;
  Places places;
  std::string tied_head;  // the name that the head's matrix would have, of a model whose head is the token embedding
  std::function<bool(std::string_view name)> is_constant;  // which tensors are none of the model's weights
};

/// Throws Error(checkpoint) unless each parameter has its tensor, of its shape and a type that can be read, and no
/// tensor is left over. A head beside a tied embedding must equal it, element by element.
void check_placed_model(const PlacedModel& model, const ParameterTable& table);

/// Returns a reader. It keeps at most 20 MiB.
std::unique_ptr<WeightSource> read_placed_weights(std::shared_ptr<const PlacedModel> model);

}  // namespace ringtrain
