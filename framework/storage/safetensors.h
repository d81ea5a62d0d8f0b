// Files of the safetensors format: the length of a JSON header, the header, and the tensors' bytes (its reference:
// github.com/huggingface/safetensors, safetensors/src/tensor.rs). The reader follows the reference's rules exactly, and
// refuses what the reference leaves undefined: a duplicate name. Its input may be malicious.
#pragma once

#include <string>
#include <vector>

#include "framework/storage/stored_tensor.h"

namespace ringtrain {

/// Reads where all tensors of a folder are: those of model.safetensors or, if it is missing, of the files that
/// model.safetensors.index.json names. Throws Error(checkpoint) for an index that names a path instead of a file of the
/// folder, a link that leads out of the folder, and a file that does not have a tensor that it should have, or has one
/// that the index assigns to another file. (The hub's cache consists of links from snapshots/REVISION to the blobs of
/// the same model; those are followed.)
StoredTensors read_safetensors_folder(const std::string& folder);

/// Returns a sentence for a folder that has both, whose index and shards are not read; "" for others.
std::string unread_shards(const std::string& folder);

/// Reads where the tensors of one file of a folder are. Throws Error(checkpoint) that names the file, and the tensor,
/// for anything that the reference refuses, and for a link as described above.
StoredTensors read_safetensors_of_folder(const std::string& folder, const std::string& file);

/// Returns whether a folder contains model.safetensors or an index of shards.
bool holds_safetensors(const std::string& folder);

}  // namespace ringtrain
