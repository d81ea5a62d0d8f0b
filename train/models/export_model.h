// A model as a Hugging Face folder: config.json, safetensors as transformers writes them, one file or shards with an
// index, and the files of the tokenizer beside them. The bytes depend on the model alone, not on the mesh that trained
// it. Adapters become a PEFT folder in the same way, without their base. The folder is written under a name of its own
// and renamed when it is whole; config.json, without which nothing loads a folder, is written last.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/storage/stored_tensor.h"
#include "train/models/carried_tokenizer.h"
#include "train/models/model_source.h"

namespace ringtrain {

struct ExportOptions {
  std::string output;                             // a folder that does not exist yet
  StoredType dtype = StoredType::float32;         // or float16, bfloat16
  std::int64_t max_shard_bytes = 50'000'000'000;  // transformers 5's default
};

struct ExportSummary {
  std::int64_t parameters = 0;       // tied ones once
  std::int64_t bytes = 0;            // of tensors
  std::vector<std::string> files;    // of weights, in order
  std::vector<std::string> carried;  // files of the tokenizer
};

/// Throws Error(usage) unless an export of the model at `source` may go to options.output, as far as it can be told
/// without reading the model: something exists there, it cannot be written, or it lies inside a folder that is read or
/// that is a run's.
void check_export(const std::string& source, const ExportOptions& options);

/// Writes the folder. While a SignalGuard lives, a signal ends it with Error(interrupted) or Error(terminated), and
/// nothing is left. Throws Error: usage (output exists, cannot be written, no class of transformers is this model, or a
/// PEFT folder would lose keys of it), checkpoint (the source, the disk), numeric that names the tensor with a value
/// that the dtype cannot hold.
ExportSummary export_model(const ModelSource& source, const ExportOptions& options);

/// Returns which tensors, of these bytes and in this order, go into each file: as transformers' save_pretrained does. A
/// tensor larger than the limit has a file of its own.
std::vector<std::vector<std::size_t>> split_into_shards(const std::vector<std::int64_t>& bytes, std::int64_t limit);

/// Returns what torch calls a type: "float32", "float16" or "bfloat16".
const char* torch_name(StoredType type);

}  // namespace ringtrain
