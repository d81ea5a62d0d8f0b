#include "extras/extend/extension_folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "framework/output/output_file.h"
#include "framework/profile/clock.h"
#include "framework/standard_streams.h"
#include "framework/storage/hash.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PartRecord, read, made, seconds)

namespace {

constexpr const char* writer = "ringtrain extend";
constexpr const char* record_name = "extend.json";
constexpr const char* lock_name = "lock";

/// Throws Error(usage) if the folder is not empty but has no record.
void check_own(const std::string& path) {
  if (!path_exists(path) || path_exists(path + "/" + record_name)) return;
  for (const std::string& name : list_directory(path, ExitCode::usage)) {
    if (name == lock_name || parse_unique_name(name, "partial")) continue;  // from a call that was killed at its start
    fail(ExitCode::usage, "{} holds {}, which extend did not make: move it away, or choose another --output", path,
         name);
  }
}

void check_options(const std::string& path, OptionValues before, OptionValues now) {
  for (const auto& [option, value] : OptionValues(now)) before.try_emplace(option);
  for (const auto& [option, value] : before) {
    if (now[option] == value) continue;
    fail(ExitCode::usage,
         "{} was started with {} '{}', and now it is '{}': use the first value again, or choose another --output", path,
         option, value, now[option]);
  }
}

[[noreturn]] void refuse_input(const std::string& path, const char* what, const std::string& part) {
  fail(ExitCode::usage, "{}: {} (part {}); undo this change, or choose another --output", path, what, part);
}

}  // namespace

ExtensionFolder::ExtensionFolder(std::string path, const OptionValues& options) : path_(std::move(path)) {
  check_own(path_);
  make_directories(path_, ExitCode::usage);
  lock_ = FileLock::acquire(at(lock_name), path_ + ": is in use by another extend:", ExitCode::usage);
  if (path_exists(at(record_name))) {
    read_record();
    check_options(path_, options_, options);
  }
  options_ = options;
  save();
}

void ExtensionFolder::read_record() {
  const std::string text = read_file(at(record_name), ExitCode::usage);
  try {
    const auto record = parse_strict_json(text);
    if (record.at("written_by") != writer) throw std::runtime_error("another program wrote it");
    options_ = record.at("options").get<OptionValues>();
    records_ = record.at("parts").get<std::map<std::string, PartRecord>>();
  } catch (const std::exception& error) {
    fail(ExitCode::usage, "{}: is not a record of extend ({}); choose another --output", at(record_name), error.what());
  }
}

void ExtensionFolder::save() const {
  const nlohmann::json json{{"options", options_}, {"parts", records_}};
  write_file(at(record_name), marked_json(writer, json_text(json, 2)) + "\n", ExitCode::usage);
}

FileHashes ExtensionFolder::hashes_of(const std::vector<std::string>& paths) {
  FileHashes hashes;
  const auto add = [&](const std::string& path) {
    const File file = File::open(path, ExitCode::usage);
    auto& [stamp, hash] = hashed_[path];
    if (hash.empty() || !(stamp == file.stamp())) {
      stamp = file.stamp();
      hash = hash_file(file, {});
    }
    hashes[path] = hash;
  };
  for (const std::string& path : paths) {
    if (!is_directory(path)) {
      add(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) add(entry.path().string());
    }
  }
  return hashes;
}

void ExtensionFolder::check_inputs(const ExtensionPart& part) const {
  for (const auto& [name, record] : records_) {
    for (const auto& [path, hash] : record.read) {
      const auto now = part.reads.find(path);
      if (now != part.reads.end() && now->second != hash) refuse_input(path, "has changed since extend read it", name);
      if (now == part.reads.end() && name == part.name) refuse_input(path, "is no longer an input", name);
    }
  }
  const auto found = records_.find(part.name);
  for (const auto& [path, hash] : part.reads) {
    if (found != records_.end() && !found->second.read.contains(path)) refuse_input(path, "is a new input", part.name);
  }
}

bool ExtensionFolder::is_done(const ExtensionPart& part, const std::vector<std::string>& paths) {
  const FileHashes& made = records_[part.name].made;
  const auto exists = [](const std::string& path) { return path_exists(path); };
  if (made.empty() || !std::ranges::all_of(paths, exists)) return false;
  const FileHashes now = hashes_of(paths);
  for (const auto& [path, hash] : made) {
    if (const auto found = now.find(path); found != now.end() && found->second == hash) continue;
    fail(ExitCode::usage, "{}: has changed since extend made it (part {}); restore it, or remove {} to make it again",
         path, part.name, paths.front());
  }
  return true;
}

void ExtensionFolder::run(const ExtensionPart& part, const std::function<void()>& work) {
  check_inputs(part);
  std::vector<std::string> paths(part.makes.size());
  std::ranges::transform(part.makes, paths.begin(), [&](const std::string& name) { return at(name); });
  if (is_done(part, paths)) return;
  PartRecord& record = records_[part.name];
  record = {part.reads, {}, 0};
  save();
  for (const std::string& path : paths) {
    if (!part.resumes) remove_tree(path, ExitCode::usage);
  }
  write_message(stderr, fmt::format("extend: {}\n", part.message));
  const auto begun = std::chrono::steady_clock::now();
  work();
  record.seconds = seconds_since(begun);
  record.made = hashes_of(paths);
  save();
}

}  // namespace ringtrain
