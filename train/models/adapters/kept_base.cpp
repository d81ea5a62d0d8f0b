#include "train/models/adapters/kept_base.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "framework/error.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain {

namespace {

namespace fs = std::filesystem;

/// Returns whether something exists at path, or the system cannot say.
bool may_exist(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error)) || (error && error != std::errc::no_such_file_or_directory);
}

/// Returns whether a copy or link of a checkpoint has the same manifest, and so the same content.
bool is_same_checkpoint(const std::string& path, const Checkpoint& other) {
  try {
    return to_json(read_checkpoint_manifest(path)) == to_json(other.manifest);
  } catch (const Error&) {
    return false;
  }
}

/// Hard-links a file, or copies it if the file system does not allow that.
void link_or_copy(const std::string& from, const std::string& to) {
  if (link_file(from, to)) return;
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) fail(ExitCode::checkpoint, "{}: cannot be copied to {}: {}", from, to, error.message());
  File::open(to, ExitCode::checkpoint).sync();
}

}  // namespace

std::string kept_base_path(const std::string& run_folder, const std::string& base_path) {
  return run_folder + "/base/" + file_name(whole_path(base_path));
}

void keep_base(const ModelSource& source, const std::string& run_folder) {
  const ModelSource& base = source.base ? *source.base : source;
  // Under the base's own name, which open_base() looks for.
  const std::string path = kept_base_path(run_folder, base.path);
  if (!base.checkpoint || is_same_checkpoint(path, *base.checkpoint)) return;
  const CheckpointManifest& manifest = base.checkpoint->manifest;
  const CheckpointFolder kept(parent_directory(path));
  make_directories(kept.path(), ExitCode::checkpoint);
  kept.continue_from(std::numeric_limits<std::int64_t>::max(), {});  // removes what a killed start left incomplete
  const std::string partial = kept.make_partial(manifest.step);
  const auto keep = [&](const std::string& name) { link_or_copy(base.path + "/" + name, partial + "/" + name); };
  try {
    keep("manifest.json");
    for (const CheckpointFile& file : manifest.files) keep(file.name);
  } catch (const Error&) {
    remove_tree(partial, ExitCode::checkpoint);
    throw;
  }
  sync_directory(partial, ExitCode::checkpoint);
  if (path_exists(path, ExitCode::checkpoint)) rename_path(path, unique_name(path, "superseded"), ExitCode::checkpoint);
  rename_to_new(partial, path, ExitCode::checkpoint);
}

std::optional<std::string> base_warning(const BaseModel& base, const std::string& run_folder) {
  if (may_exist(kept_base_path(run_folder, base.path) + "/manifest.json") || may_exist(base.path)) return std::nullopt;
  return fmt::format(
      "warning: the base of these adapters, {}, is missing; restore it: without it the adapters cannot be read",
      base.path);
}

}  // namespace ringtrain
