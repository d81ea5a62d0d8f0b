// The files of a tokenizer that go along with a model: from a folder, or out of a GGUF file, to the folder of a run or
// of an export.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/error.h"

namespace ringtrain {

struct CarriedTokenizer {
  std::vector<std::string> files;     // names
  std::optional<std::string> remark;  // why that of a GGUF file does not go along
};

/// Throws Error(checkpoint) that names link and target if a file that would be copied from a folder is a link out of
/// it.
void check_carried_files(const std::string& folder);

/// Copies tokenizer, generation_config.json and chat template from a folder, or out of a GGUF file, into a folder that
/// exists. Throws Error(code) if a file cannot be read or written, or is a link that leads out of its folder.
CarriedTokenizer carry_tokenizer(const std::string& from, const std::string& to, ExitCode code);

}  // namespace ringtrain
