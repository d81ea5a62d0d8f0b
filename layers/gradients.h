// How the gradients of a step begin. After Parameters::forget_gradients() the first write of a gradient sets it and
// later ones add, so nothing is filled that is then overwritten. A linear layer's product does either. What can only
// add (a norm, an embedding) begins at zero, and so does what no layer writes because the rank has no tokens.
#pragma once

#include "framework/parameters.h"
#include "framework/stream.h"

namespace ringtrain {

/// Returns the gradient of id, to be added to: zero if this step has no term of it yet.
TensorView gradient_to_add_to(Stream& stream, Parameters& parameters, int id);

/// Sets to zero what no layer wrote of a bucket in this step.
void complete_gradients(Stream& stream, Parameters& parameters, int bucket);

}  // namespace ringtrain
