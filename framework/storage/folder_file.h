// The files of a model's folder, which may be another person's: a link in it that leads out of it is not followed, be
// it a chain of links or one that changes meanwhile. So nobody's other files are read, reported or copied.
#pragma once

#include <cstdint>
#include <string>

#include "framework/storage/files.h"

namespace ringtrain {

/// Opens a file of a folder to read it. Links may lead to other files of the folder, and, where the folder is a
/// snapshot in the cache of the Hugging Face hub (models--X--Y/snapshots/REVISION), to the blobs of the same model. The
/// folder itself may be a link. Throws Error(code) that names the link and its target if it leads elsewhere, and what
/// File::open() throws. Requires a name without slashes.
File open_in_folder(const std::string& folder, const std::string& name, ExitCode code);

/// Returns the whole content of such a file. Throws Error(code) as open_in_folder() does, or if it is longer than
/// max_bytes.
std::string read_in_folder(const std::string& folder, const std::string& name, ExitCode code,
                           std::int64_t max_bytes = std::int64_t{64} << 20);

/// Throws Error(code) as open_in_folder() does if something stands under this name and is a link that leads elsewhere.
void check_link_in_folder(const std::string& folder, const std::string& name, ExitCode code);

/// Throws Error(checkpoint) unless an open file of a model still has the stamp that it had when its header was read:
/// what was read since may belong to two files. (`touch`, `chmod` and `mv` give a new stamp as well.)
void require_unchanged(const File& file, const FileStamp& before);

/// Throws Error(code) that names the command of the extras if what is at path is a regular file that begins with
/// "GGUF": such a file is no model and no tokenizer before a folder has been made of it.
void refuse_gguf_file(const std::string& path, ExitCode code);

}  // namespace ringtrain
