#include "framework/storage/folder_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <system_error>

namespace ringtrain {

namespace {

namespace fs = std::filesystem;

/// Returns the blobs folder that may contain a folder's files, as links of the hub's cache do; nothing for any other
/// folder.
std::optional<fs::path> blobs_of(const fs::path& home) {
  for (fs::path at = home; at.has_relative_path(); at = at.parent_path()) {
    const fs::path snapshots = at.parent_path(), repository = snapshots.parent_path();
    const std::string name = repository.filename().string();
    if (snapshots.filename() == "snapshots" && name.starts_with("models--")) return repository / "blobs";
  }
  return std::nullopt;
}

/// Returns the path of the file after following all links; nothing if it does not exist. Throws if it is outside the
/// folder.
std::optional<fs::path> place_of(const std::string& folder, const std::string& path, ExitCode code) {
  std::error_code no_folder, no_file;
  const fs::path home = fs::canonical(folder, no_folder), target = fs::canonical(path, no_file);
  if (no_folder || no_file) return std::nullopt;
  if (target.parent_path() == home || target.parent_path() == blobs_of(home)) return target;
  fail(code, "{}: is a link to {}, outside the link's folder; replace the link with a copy", path, target.string());
}

}  // namespace

File open_in_folder(const std::string& folder, const std::string& name, ExitCode code) {
  ensure(name.find('/') == std::string::npos, "the name of a file in a folder");
  const std::string path = folder + "/" + name;
  place_of(folder, path, code);
  File file = File::open(path, code);
  // If a link changes between the two checks, nothing is read: the opened file must be the one in the folder.
  const std::optional<fs::path> target = place_of(folder, path, code);
  const FileStamp stamp = file.stamp();
  struct stat there {};
  if (!target || ::lstat(target->c_str(), &there) != 0 || there.st_dev != stamp.device || there.st_ino != stamp.inode) {
    fail(code, "{}: was replaced while it was being opened; try again", path);
  }
  return file;
}

std::string read_in_folder(const std::string& folder, const std::string& name, ExitCode code, std::int64_t max_bytes) {
  return open_in_folder(folder, name, code).content(max_bytes);
}

void check_link_in_folder(const std::string& folder, const std::string& name, ExitCode code) {
  place_of(folder, folder + "/" + name, code);
}

void require_unchanged(const File& file, const FileStamp& before) {
  const FileStamp now = file.stamp();
  if (now == before) return;
  const bool other = now.device != before.device || now.inode != before.inode;
  const std::string how = other ? "another file replaced it"
                          : now.bytes != before.bytes
                              ? fmt::format("it had {} bytes and now has {}", before.bytes, now.bytes)
                              : "its time stamps are new";
  fail(ExitCode::checkpoint, "{} was changed while it was being read: {}; start again when no program writes to it",
       file.path(), how);
}

void refuse_gguf_file(const std::string& path, ExitCode code) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || !begins_with(path, "GGUF", code)) return;
  fail(code,
       "{}: is a GGUF file; convert it to a Hugging Face folder with PYTHONPATH=extras/python python3 -m "
       "ringtrain_gguf --input {} --output FOLDER",
       path, path);
}

}  // namespace ringtrain
