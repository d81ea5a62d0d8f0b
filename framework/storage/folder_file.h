// The files of a model's folder, which may be another person's. A link that leads out of the folder is not followed,
// even through a chain of links or if a link changes meanwhile. So no file of anyone else is read, reported, or copied.
#pragma once

#include <cstdint>
#include <string>

#include "framework/storage/files.h"

namespace ringtrain {

/// Opens a file of a folder for reading. Links may lead to other files of the folder and, if the folder is a snapshot
/// in the cache of the Hugging Face hub (models--X--Y/snapshots/REVISION), to the blobs of the same model. The folder
/// itself may be a link. Throws Error(code) that names the link and its target if it leads elsewhere, and the errors of
/// File::open(). Requires a name without slashes.
File open_in_folder(const std::string& folder, const std::string& name, ExitCode code);

/// Returns the whole content of such a file. Throws the errors of open_in_folder(), and Error(code) if it is longer
/// than max_bytes.
std::string read_in_folder(const std::string& folder, const std::string& name, ExitCode code,
                           std::int64_t max_bytes = std::int64_t{64} << 20);

/// Throws the errors of open_in_folder() if this name is a link that leads elsewhere.
void check_link_in_folder(const std::string& folder, const std::string& name, ExitCode code);

/// Throws Error(checkpoint) unless an open file of a model still has the stamp that it had when its header was read;
/// otherwise, data read since then may mix two files. (`touch`, `chmod`, and `mv` change the stamp as well.)
void require_unchanged(const File& file, const FileStamp& before);

/// Throws Error(code) that names the command of the extras if path is a regular file that begins with "GGUF": such a
/// file must first be converted to a folder before it can be used as a model or tokenizer.
void refuse_gguf_file(const std::string& path, ExitCode code);

}  // namespace ringtrain
