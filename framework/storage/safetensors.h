// Files of the safetensors format: the length of a JSON header, the header, and the tensors' bytes (its reference:
// github.com/huggingface/safetensors, safetensors/src/tensor.rs). The reader keeps the reference's rules to the letter
// and refuses what the reference leaves to chance: a name twice. What it reads may be hostile.
#pragma once

#include <string>
#include <vector>

#include "framework/storage/stored_tensor.h"

namespace ringtrain {

/// Reads the header of a file. Returns its tensors, sorted by where they lie. Throws Error(checkpoint) that names the
/// file, and the tensor, for anything that the reference refuses.
std::vector<StoredTensor> read_safetensors_file(const std::string& path);

/// Reads where all tensors of a folder lie: those of model.safetensors, or, where there is none, of the files that
/// model.safetensors.index.json names. Throws Error(checkpoint) if the index names a path instead of a file of the
/// folder, a link that leads out of it, a file without a tensor that it should have, or with one that the index places
/// elsewhere. (The hub's cache is made of links from snapshots/REVISION to blobs beside it: those may be followed.)
StoredTensors read_safetensors_folder(const std::string& folder);

/// Returns a sentence for a folder that holds both: its index and shards are not read. "" for others.
std::string unread_shards(const std::string& folder);

/// Reads where the tensors of one file of a folder lie. Throws Error(checkpoint), also for a link as above.
StoredTensors read_safetensors_of_folder(const std::string& folder, const std::string& file);

/// Returns whether a folder holds model.safetensors or an index of shards.
bool holds_safetensors(const std::string& folder);

}  // namespace ringtrain
