#include "train/models/adapters/kept_base.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "framework/error.h"
#include "framework/storage/hash.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain {

namespace {

namespace fs = std::filesystem;

std::string kept_folder(const std::string& run_folder) {
  return run_folder + "/base";
}

/// Returns whether something is at path, or the system cannot say.
bool may_exist(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error)) || (error && error != std::errc::no_such_file_or_directory);
}

/// Returns whether a run made the checkpoint and may delete it.
bool may_be_deleted(const std::string& checkpoint) {
  return file_name(parent_directory(checkpoint)) == "checkpoints" && may_exist(checkpoint + "/manifest.json");
}

/// Returns the file in a base's folder that says which run needs it.
std::string mark_path(const std::string& base_path, const std::string& run_folder) {
  const std::string whole = whole_path(run_folder);
  return fmt::format("{}/{}{}-{}", base_path, needed_by, file_name(whole), hash_bytes(whole).substr(0, 8));
}

/// Returns whether a copy or link of a checkpoint has the same manifest, and so the same content.
bool is_same_checkpoint(const std::string& one, const Checkpoint& other) {
  try {
    return to_json(read_checkpoint_manifest(one)) == to_json(other.manifest);
  } catch (const Error&) {
    return false;
  }
}

/// Links the files of a checkpoint into the run's folder. Returns false, and leaves nothing, where that is refused.
bool link_base(const Checkpoint& base, const std::string& run_folder) {
  const CheckpointFolder kept(kept_folder(run_folder));
  make_directories(kept.path(), ExitCode::checkpoint);
  kept.continue_from(std::numeric_limits<std::int64_t>::max(), {});  // removes what a killed start left half-done
  const std::string partial = kept.make_partial(base.manifest.step);
  const auto link = [&](const std::string& name) { return link_file(base.path + "/" + name, partial + "/" + name); };
  const bool linked = link("manifest.json") && std::ranges::all_of(base.manifest.files, link, &CheckpointFile::name);
  if (linked) {
    sync_directory(partial, ExitCode::checkpoint);
    kept.publish(base.manifest.step, partial);
  } else {
    remove_tree(partial, ExitCode::checkpoint);
    std::error_code error;
    fs::remove(kept.path(), error);  // if it is empty
  }
  return linked;
}

}  // namespace

std::string kept_base_path(const std::string& run_folder, const std::string& base_path) {
  return kept_folder(run_folder) + "/" + file_name(base_path);
}

void keep_base(const ModelSource& source, const std::string& run_folder) {
  const ModelSource& base = source.base ? *source.base : source;
  if (!base.checkpoint || is_same_checkpoint(kept_base_path(run_folder, base.path), *base.checkpoint)) return;
  if (link_base(*base.checkpoint, run_folder) || !may_be_deleted(base.path)) return;
  try {
    write_file(mark_path(base.path, run_folder), whole_path(run_folder) + "\n", ExitCode::checkpoint);
  } catch (const Error&) {  // base_warning() says so, now and at each save
  }
}

std::optional<std::string> base_warning(const BaseModel& base, const std::string& run_folder) {
  const std::string kept = kept_base_path(run_folder, base.path);
  if (may_exist(kept + "/manifest.json")) return std::nullopt;
  if (!may_exist(base.path)) {
    return fmt::format("warning: the base of these adapters, {}, is gone; bring it back, or nothing can read them",
                       base.path);
  }
  std::error_code error;
  const bool marked = fs::is_regular_file(fs::symlink_status(mark_path(base.path, run_folder), error));
  if (marked || !may_be_deleted(base.path)) return std::nullopt;
  return fmt::format(
      "warning: the base of these adapters, {}, belongs to a run that may delete it (checkpoint.keep), and nothing can "
      "read them without it; neither hard links in {} nor a file {}... beside it could be made: copy it to where no "
      "run cleans up, and start from there",
      base.path, kept_folder(run_folder), needed_by);
}

}  // namespace ringtrain
