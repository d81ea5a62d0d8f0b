// The tokenizer files that accompany a model: copied from its folder to the folder of a run or an export, or next to a
// token file. transformers' AutoTokenizer then loads them from there.
#pragma once

#include <string>
#include <vector>

#include "framework/error.h"
#include "train/models/hugging_face_config.h"

namespace ringtrain {

/// Throws Error(checkpoint), which names link and target, if a file to be copied from a folder is a link that leads out
/// of it.
void check_carried_files(const std::string& folder);

/// Whether a folder's generation_config.json, which belongs to its model, is carried with its tokenizer.
enum class OwnGeneration { kept, left };

/// Writes a tokenizer with its chat template into an existing folder, and a generation_config.json with these ids.
/// Returns the names of the files. from: anything that load_tokenizer() takes; "": no tokenizer. Throws Error(code) if
/// a file cannot be read or written, or is a link that leads out of its folder, and Error(checkpoint), which names the
/// file, if a tokenizer.json is damaged.
std::vector<std::string> carry_tokenizer(const std::string& from, const std::string& to, const EndIds& ids,
                                         OwnGeneration generation, ExitCode code);

/// Copies a folder's chat template, if it has one, into another folder, and overwrites the one there. Throws as above.
void carry_chat_template(const std::string& from, const std::string& to, ExitCode code);

}  // namespace ringtrain
