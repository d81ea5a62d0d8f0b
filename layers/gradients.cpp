#include "layers/gradients.h"

#include "kernels/elementwise.h"

namespace ringtrain {

TensorView gradient_to_add_to(Stream& stream, Parameters& parameters, int id) {
  const TensorView gradient = parameters.gradient(id);
  if (!parameters.begin_write(id)) fill(stream, gradient, 0.0);
  return gradient;
}

void complete_gradients(Stream& stream, Parameters& parameters, int bucket) {
  const std::vector<Parameter>& all = parameters.table().all();
  for (int id = 0; id < static_cast<int>(all.size()); ++id) {
    if (parameters.table()[id].bucket == bucket && !parameters.has_gradient(id)) {
      gradient_to_add_to(stream, parameters, id);
    }
  }
}

}  // namespace ringtrain
