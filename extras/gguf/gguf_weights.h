// The weights of a Llama in a GGUF file, by our names and in our order.
#pragma once

#include <cstdint>
#include <memory>

#include "extras/gguf/gguf_file.h"
#include "framework/parameter_table.h"
#include "train/models/weight_source.h"

namespace ringtrain {

/// Throws Error(checkpoint) that names file and tensor unless each parameter has its tensor, of its shape and a type
/// that is read, and no tensor is left over.
void check_gguf_weights(const GgufFile& file, const ParameterTable& table);

/// Returns a reader of weights that check_gguf_weights() accepts. It keeps one row of a tensor.
std::unique_ptr<WeightSource> read_gguf_weights(const GgufFile& file, std::int64_t head_dim);

}  // namespace ringtrain
