// Models in GGUF files, as llama.cpp writes them: architecture llama (also Mistral, TinyLlama, SmolLM), whose rows of
// query and key weights are interleaved for its own rotary embedding.
#pragma once

#include <string_view>

#include "framework/gguf/gguf.h"
#include "train/models/tensor_place.h"

namespace ringtrain {

struct ModelConfig;

/// Returns the model of a file, resolved. Throws Error(checkpoint) that names the key: another architecture, a key that
/// is missing, or one that asks for what no layer here computes.
ModelConfig read_gguf_model(const GgufFile& file);

/// Returns where the parameters of such a model lie.
Places gguf_places(const ModelConfig& model);

}  // namespace ringtrain
