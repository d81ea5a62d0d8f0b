// A model as a Hugging Face folder: config.json, safetensors as transformers writes them, in one file or in shards with
// an index, and the tokenizer's files. The bytes depend only on the model, not on the mesh that trained it. Adapters
// become a PEFT folder in the same way, without their base. The folder is written under a temporary name and renamed
// when it is complete; config.json, without which nothing loads a folder, is written last.
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
  std::int64_t parameters = 0;       // counting tied ones once
  std::int64_t bytes = 0;            // of tensors
  std::vector<std::string> files;    // of weights, in order
  std::vector<std::string> carried;  // files of the tokenizer
};

/// Throws Error(usage) unless an export of the model at `source` may be written to options.output, as far as can be
/// checked without reading the model: the folder must not exist yet, must be writable, and must not lie in a folder
/// that is read or in a run's.
void check_export(const std::string& source, const ExportOptions& options);

/// Writes the folder. While a SignalGuard lives, a signal ends the export with Error(interrupted) or Error(terminated),
/// and nothing is left behind. Throws Error: usage (output exists, cannot be written, no class of transformers is this
/// model, or a PEFT folder would lose keys of it), checkpoint (the source, the disk), numeric, which names the tensor
/// with a value that the dtype cannot hold.
ExportSummary export_model(const ModelSource& source, const ExportOptions& options);

/// Returns which tensors, with these byte counts in this order, go into each file: as in transformers' save_pretrained.
/// A tensor larger than the limit gets a separate file.
std::vector<std::vector<std::size_t>> split_into_shards(const std::vector<std::int64_t>& bytes, std::int64_t limit);

/// Returns torch's name for a type: "float32", "float16", or "bfloat16".
const char* torch_name(StoredType type);

}  // namespace ringtrain
