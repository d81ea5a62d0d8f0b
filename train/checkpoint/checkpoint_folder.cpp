#include "train/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <thread>

#include "framework/config/read_config.h"
#include "framework/config/training_stages.h"
#include "framework/error.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/plain_text.h"
#include "framework/text/text_reader.h"
#include "train/checkpoint/state_files.h"

namespace ringtrain {

namespace {

constexpr std::string_view prefix = "step-", partial_kind = "partial", deleted_kind = "deleted";
constexpr int max_tries = 100;  // to read a folder whose run deletes what was just listed

std::string name_of_step(std::int64_t step) {
  return fmt::format("{}{:08}", prefix, step);
}

/// Returns the step in a name: step-DIGITS, or that followed by a dot and more.
std::optional<std::int64_t> stated_step(std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  std::int64_t step = 0;
  if (!take_number(name, step) || step < 0 || !(name.empty() || name.starts_with('.'))) return std::nullopt;
  return step;
}

/// Returns the step in a complete checkpoint's name.
std::optional<std::int64_t> step_of(std::string_view name) {
  const std::optional<std::int64_t> step = stated_step(name);
  return step && name == name_of_step(*step) ? step : std::nullopt;
}

/// Returns whether a name is that of a checkpoint that was being written or deleted.
bool is_half(std::string_view name) {
  const auto parts = parse_unique_name(name, partial_kind), other = parse_unique_name(name, deleted_kind);
  return (parts && step_of(parts->base)) || (other && step_of(other->base));
}

void require_name(const std::string& folder, const CheckpointManifest& manifest) {
  const std::optional<std::int64_t> stated = stated_step(file_name(folder));
  if (!stated || *stated == manifest.step) return;
  fail(ExitCode::checkpoint,
       "{}: its name says step {}, but its manifest says step {}; rename it to {}, or move it away", folder, *stated,
       manifest.step, name_of_step(manifest.step));
}

/// Checks a manifest's counts against the config that made them: numbers that a run keeps from its first step to its
/// last.
void require_counts(const Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest;
  const TrainingConfig& training = checkpoint.config.training;
  const MeshConfig& mesh = checkpoint.config.mesh;
  const auto require = [&](bool possible, const char* what, std::int64_t value, const std::string& bound) {
    if (possible) return;
    fail(ExitCode::checkpoint, "{}/manifest.json: is damaged: {} is {}, but its config allows {}", checkpoint.path,
         what, value, bound);
  };
  require(manifest.step <= training.steps, "step", manifest.step, fmt::format("at most {}", training.steps));
  const std::int64_t samples = sequences_done(training, manifest.step), tokens = tokens_done(training, manifest.step);
  const std::string after = fmt::format("after {} steps", manifest.step);
  require(manifest.samples == samples, "samples", manifest.samples, fmt::format("{} {}", samples, after));
  require(manifest.tokens == tokens, "tokens", manifest.tokens, fmt::format("{} {}", tokens, after));
  require(manifest.ranks / mesh.data == mesh.sequence && manifest.ranks % mesh.data == 0, "ranks", manifest.ranks,
          fmt::format("{} x {}", mesh.data, mesh.sequence));
}

/// A checkpoint that is intact but holds another model than the requested one: an older checkpoint would hold that
/// model too.
class OtherModel : public Error {
 public:
  using Error::Error;
};

void require_model(const std::string& folder, const CheckpointManifest& manifest, const ModelDefinition& model) {
  const std::string found = manifest.model.definition.value_or(std::string(ModelDefinition::transformer));
  if (found == model.name) return;
  const auto described = [](const std::string& name) {
    return name == ModelDefinition::transformer ? std::string("ringtrain's own transformer")
                                                : fmt::format("the custom model \"{}\"", name);
  };
  throw OtherModel(ExitCode::checkpoint,
                   fmt::format("{}: holds {}, but this program reads {}; use the program that made it",
                               plain_text(folder), described(plain_text(found)), described(model.name)));
}

/// Thrown, although it is no error, where a run deletes what is being read.
struct Deleted {};

/// Returns the checkpoint in a folder. Throws Deleted if its run deletes it meanwhile.
Checkpoint open_folder(const std::string& folder, const ModelDefinition& model) {
  try {
    Checkpoint checkpoint;
    checkpoint.path = folder;
    checkpoint.hold = std::make_shared<File>();
    const std::string manifest_path = folder + "/manifest.json";
    if (path_exists(manifest_path, ExitCode::checkpoint)) {
      *checkpoint.hold = File::open(manifest_path, ExitCode::checkpoint);
      if (!checkpoint.hold->try_share() || !checkpoint.hold->is_at_path()) throw Deleted();
    }
    checkpoint.manifest = verify_checkpoint(folder);
    require_name(folder, checkpoint.manifest);
    require_model(folder, checkpoint.manifest, model);
    const std::string config_path = folder + "/" + config_file_name;
    try {
      checkpoint.config = read_config(config_path, {}, ConfigUse::know, rule_of(model));
    } catch (const Error& error) {
      fail(ExitCode::checkpoint, "{}: its config cannot be used: {}", folder, error.what());
    }
    const auto config = std::ranges::find(checkpoint.manifest.files, config_file_name, &CheckpointFile::name);
    require_unchanged(File::open(config_path, ExitCode::checkpoint), config->stamp.value());  // since it was hashed
    require_counts(checkpoint);
    check_state(checkpoint, model);
    return checkpoint;
  } catch (const Error&) {
    if (!path_exists(folder, ExitCode::checkpoint)) throw Deleted();
    throw;
  }
}

/// Returns why the folder at path may not be deleted as a checkpoint of the run that made `saved`; "": it may be. Reads
/// nothing but the manifest: even with a damaged state, it still belongs to the run.
std::string why_not_of_run(const std::string& path, const CheckpointManifest& saved) {
  try {
    if (std::filesystem::is_symlink(path)) return "it is a link";
    const CheckpointManifest manifest = read_checkpoint_manifest(path);
    require_name(path, manifest);
    const bool same_run = manifest.run.empty() || saved.run.empty()  // earlier versions did not record the run
                              ? manifest.data_hash == saved.data_hash && manifest.dtype == saved.dtype &&
                                    manifest.model.architecture == saved.model.architecture
                              : manifest.run == saved.run;
    if (!same_run) return "another run made it";
    for (const std::string& name : list_directory(path, ExitCode::checkpoint)) {
      const bool listed = std::ranges::find(manifest.files, name, &CheckpointFile::name) != manifest.files.end();
      if (listed || name == "manifest.json") continue;
      return fmt::format("it contains {0}, which the run did not write; without {0}, a save may delete the folder",
                         name);
    }
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Calls `attempt` until it does not throw Deleted. Returns its result.
template <class Attempt>
auto retry_while_deleted(const std::string& path, Attempt&& attempt) {
  for (int i = 0; i < max_tries; ++i) {
    try {
      return attempt();
    } catch (const Deleted&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(i));
    }
  }
  fail(ExitCode::checkpoint, "{}: its run deletes checkpoints faster than they can be read; try again later", path);
}

/// Returns the folders of the checkpoints at a path: of a run's folder, the complete ones in ascending order; otherwise
/// the path.
std::vector<std::string> folders_at(const std::string& path) {
  if (!is_run_folder(path)) {
    if (!path_exists(path, ExitCode::checkpoint)) {
      fail(ExitCode::checkpoint, "{}: there is no such checkpoint{}", path, hub_hint(path));
    }
    return {path};
  }
  const CheckpointFolder checkpoints(path + "/checkpoints");
  std::vector<std::string> folders;
  auto steps = checkpoints.steps();
  if (steps.empty()) steps = checkpoints.steps();  // between two looks, one may have appeared and another gone
  if (steps.empty()) fail(ExitCode::checkpoint, "{}: this run has no checkpoint yet; wait for its first save", path);
  for (const std::int64_t step : steps) folders.push_back(checkpoints.complete(step));
  return folders;
}

}  // namespace

bool is_run_folder(const std::string& path) {
  return is_directory(path + "/checkpoints", ExitCode::checkpoint) &&
         !path_exists(path + "/manifest.json", ExitCode::checkpoint);
}

void refuse_within_run(const std::string& path, const std::string& flag) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
  for (fs::path at = whole.parent_path(); at != at.parent_path(); at = at.parent_path()) {
    const std::string name = at.filename().string(), run = at.parent_path().string();
    if ((name != "checkpoints" && name != "tokenizer" && name != "base") || !is_run_folder(run)) continue;
    for (const char* of_run : {"/config.yaml", "/metrics.jsonl", "/lock"}) {
      if (!path_exists(run + of_run)) continue;
      fail(ExitCode::usage, "{} {}: is in the {} of the run {}, which may delete it; choose another {}", flag, path,
           name, run, flag);
    }
  }
}

Checkpoint open_checkpoint(const std::string& path, const ModelDefinition& model) {
  return retry_while_deleted(path, [&] { return open_folder(folders_at(path).back(), model); });
}

void check_state(const Checkpoint& checkpoint, const ModelDefinition& model) {
  const StateFiles files(checkpoint.path, checkpoint.manifest);
  const ParameterTable table = model.table(checkpoint.config);
  for (std::size_t kind = 0; kind < state_kinds.size(); ++kind) {
    for (const Parameter& parameter : table.all()) {
      if (kind == 0 ? !parameter.saved : parameter.part == Part::frozen) continue;  // it has no optimizer state
      files.whole_tensor(state_kinds[kind], parameter, accumulator(checkpoint.config.training.dtype));
    }
  }
}

void verify_checkpoints(const std::string& path, const Log& report, const std::function<void(const Checkpoint&)>& base,
                        const ModelDefinition& model) {
  std::optional<Error> first;
  int good = 0;
  const auto verify = [&](const std::string& folder) {
    try {
      const Checkpoint checkpoint = open_folder(folder, model);
      base(checkpoint);
      ++good;
      std::int64_t bytes = 0;
      for (const CheckpointFile& file : checkpoint.manifest.files) bytes += file.bytes;
      report(fmt::format("{}: good: step {}, {} files, {} bytes", folder, checkpoint.manifest.step,
                         checkpoint.manifest.files.size(), bytes));
    } catch (const Deleted&) {  // by its run: nothing to report
    } catch (const Error& error) {
      report(error.what());
      if (!first) first = error;
    }
  };
  const CheckpointFolder checkpoints(path + "/checkpoints");
  for (const std::string& name : checkpoints.misnamed()) {
    first = Error(
        ExitCode::checkpoint,
        fmt::format("{}/{}: this is not a checkpoint's name like step-00000010, so no run resumes from it; rename it",
                    checkpoints.path(), name));
    report(first->what());
  }
  retry_while_deleted(path, [&] {
    for (const std::string& folder : folders_at(path)) verify(folder);
    if (good == 0 && !first) throw Deleted();
  });
  if (first) throw Error(*first);
}

// ---- CheckpointFolder ----------------------------------------------------------------------------------------------

std::string CheckpointFolder::complete(std::int64_t step) const {
  return path_ + "/" + name_of_step(step);
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  std::vector<std::int64_t> steps;
  if (!is_directory(path_, ExitCode::checkpoint)) return steps;
  for (const std::string& name : list_directory(path_, ExitCode::checkpoint)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<std::string> CheckpointFolder::misnamed() const {
  std::vector<std::string> names;
  if (!is_directory(path_, ExitCode::checkpoint)) return names;
  for (const std::string& name : list_directory(path_, ExitCode::checkpoint)) {
    if (stated_step(name) && !step_of(name) && name.find('.') == std::string::npos) names.push_back(name);
  }
  return names;
}

bool CheckpointFolder::says_nothing_saved() const {
  const std::string path = nothing_saved_path();
  if (!path_exists(path, ExitCode::checkpoint)) return false;
  std::error_code error;  // an empty file belongs to the run; anything else with its name is a user's
  const bool is_file = std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::regular;
  return is_file && file_size(path, ExitCode::checkpoint) == 0;
}

void CheckpointFolder::say_nothing_saved() const {
  File::open_or_create(nothing_saved_path(), ExitCode::usage).sync();
  sync_directory(path_, ExitCode::usage);
}

std::optional<Checkpoint> CheckpointFolder::newest_intact(const Log& warn, const ModelDefinition& model) const {
  std::set<std::int64_t> reported;
  std::optional<Checkpoint> found = retry_while_deleted(path_, [&]() -> std::optional<Checkpoint> {
    const auto all = steps();
    std::string last_problem;
    for (auto step = all.rbegin(); step != all.rend(); ++step) {
      try {
        return open_folder(complete(*step), model);
      } catch (const OtherModel&) {
        throw;
      } catch (const Error& error) {
        last_problem = error.what();
        if (reported.insert(*step).second) warn(fmt::format("{}; trying the previous checkpoint", last_problem));
      }
    }
    if (!all.empty()) {
      fail(ExitCode::checkpoint,
           "{}: none of the {} checkpoints is intact ({}); to start afresh, choose another --output", path_, all.size(),
           last_problem);
    }
    return std::nullopt;
  });
  warn_of_misnamed(found ? found->manifest.step : 0, warn);
  return found;
}

/// Warns about checkpoints that are skipped because of their names; those later than `chosen` have already been
/// reported.
void CheckpointFolder::warn_of_misnamed(std::int64_t chosen, const Log& warn) const {
  for (const std::string& name : misnamed()) {
    warn(fmt::format("{}/{}: this is not a checkpoint's name; it is skipped", path_, name));
  }
  for (const std::int64_t step : steps()) {
    if (step >= chosen) break;
    std::optional<CheckpointManifest> manifest;
    try {
      manifest = read_checkpoint_manifest(complete(step));
      require_name(complete(step), *manifest);
    } catch (const Error& error) {
      if (manifest) warn(fmt::format("{}; it is skipped", error.what()));  // other problems do not matter here
    }
  }
}

std::string CheckpointFolder::set_aside(std::int64_t step) const {
  std::string aside = complete(step) + ".superseded";
  for (int i = 2; path_exists(aside, ExitCode::checkpoint); ++i) {
    aside = fmt::format("{}.superseded-{}", complete(step), i);
  }
  rename_path(complete(step), aside, ExitCode::checkpoint);
  return file_name(aside);
}

void CheckpointFolder::continue_from(std::int64_t step, const Log& warn) const {
  for (const std::string& name : list_directory(path_, ExitCode::checkpoint)) {
    if (is_half(name) || is_probe(name)) remove_tree(path_ + "/" + name, ExitCode::checkpoint);
  }
  for (const std::int64_t later : steps()) {
    if (later <= step) continue;
    const std::string aside = set_aside(later);
    warn(fmt::format("{}: this run continues from step {}, which is earlier, so this checkpoint was moved to {}",
                     complete(later), step, aside));
  }
}

std::string CheckpointFolder::make_partial(std::int64_t step) const {
  return make_unique_directory(complete(step), partial_kind, ExitCode::checkpoint);
}

void CheckpointFolder::publish(std::int64_t step, const std::string& partial) const {
  // Someone may have created one since this run began.
  if (path_exists(complete(step), ExitCode::checkpoint)) set_aside(step);
  rename_path(partial, complete(step), ExitCode::checkpoint);
}

void CheckpointFolder::prune(std::int64_t keep, const CheckpointManifest& saved, std::set<std::string>& reported,
                             const Log& warn) const {
  const auto warn_of_failure = [&](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      warn(fmt::format("warning: a file that is no longer needed could not be deleted: {}", error.what()));
    }
  };
  warn_of_failure([&] {
    if (says_nothing_saved()) remove_tree(nothing_saved_path(), ExitCode::checkpoint);
  });
  std::vector<std::string> paths;
  for (const std::int64_t step : steps()) {
    const std::string path = complete(step);
    const std::string reason = why_not_of_run(path, saved);
    if (reason.empty()) {
      paths.push_back(path);
    } else if (reported.insert(path).second) {
      warn(fmt::format("warning: {}: this run does not delete this folder ({}); move it away", path, reason));
    }
  }
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < paths.size(); ++i) {
    warn_of_failure([&] {
      const std::string& path = paths[i];
      File lock = File::open(path + "/manifest.json", ExitCode::checkpoint);
      if (lock.try_lock() == LockState::taken) {
        warn(fmt::format("{}: another process is reading it, so it is kept until a later save", path));
        return;
      }
      const std::string deleted = unique_name(path, deleted_kind);
      rename_path(path, deleted, ExitCode::checkpoint);  // from here on, it is no longer a checkpoint
      remove_tree(deleted, ExitCode::checkpoint);
    });
  }
}

}  // namespace ringtrain
