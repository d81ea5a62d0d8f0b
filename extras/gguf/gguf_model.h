// Models in GGUF files, as llama.cpp writes them: architecture llama (also Mistral, TinyLlama, SmolLM), whose rows of
// query and key weights are interleaved for its own rotary embedding.
#pragma once

#include "extras/gguf/gguf_file.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Returns the model of a file, resolved. Throws Error(checkpoint) that names the key: another architecture, a key that
/// is missing, or one that asks for what no layer here computes.
ModelConfig read_gguf_model(const GgufFile& file);

/// Returns the model of a file without its tokenizer, as open_model() returns others. Throws as read_gguf_model() and
/// check_gguf_weights() do.
ModelSource open_gguf_model(const GgufFile& file);

}  // namespace ringtrain
