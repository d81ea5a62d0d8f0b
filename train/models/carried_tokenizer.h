// The files of a tokenizer that go along with a model: from wherever it lies, to the folder of a run or of an export,
// or beside a token file. transformers' AutoTokenizer loads what stands there then.
#pragma once

#include <string>
#include <vector>

#include "framework/error.h"
#include "train/models/hugging_face_config.h"

namespace ringtrain {

/// Throws Error(checkpoint) that names link and target if a file that would be copied from a folder is a link out of
/// it.
void check_carried_files(const std::string& folder);

/// Whether a folder's generation_config.json, which belongs to its model, goes along with its tokenizer.
enum class OwnGeneration { kept, left };

/// Puts a tokenizer with its chat template into a folder that exists, and a generation_config.json with these ids.
/// Returns the names of the files. from: what load_tokenizer() takes; "": no tokenizer. Throws Error(code) if a file
/// cannot be read or written, or is a link that leads out of its folder, and Error(checkpoint) that names a
/// tokenizer.json that is damaged.
std::vector<std::string> carry_tokenizer(const std::string& from, const std::string& to, const EndIds& ids,
                                         OwnGeneration generation, ExitCode code);

/// Puts the chat template of one folder, if it has one, into another, where it replaces another. Throws as above.
void carry_chat_template(const std::string& from, const std::string& to, ExitCode code);

}  // namespace ringtrain
