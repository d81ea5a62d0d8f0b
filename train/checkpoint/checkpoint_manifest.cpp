#include "train/checkpoint/checkpoint_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/hash.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

constexpr const char* format_name = "ringtrain checkpoint";
constexpr std::int64_t format_version = 2;
constexpr std::int64_t largest_manifest = 16 << 20;  // a rank takes about 120 bytes

/// Return a name that is a file's of this folder and of no other.
std::string plain_name(std::string name) {
  if (name.empty() || name.starts_with('.') || name.find_first_of(std::string("/\0", 2)) != std::string::npos) {
    throw std::runtime_error("a file's name is no plain name");
  }
  return name;
}

/// Calls visit(name, member) for each plain member, in the order of the file.
template <class Manifest, class Visit>
void visit_members(Manifest& manifest, const Visit& visit) {
  visit("step", manifest.step);
  visit("samples", manifest.samples);
  visit("tokens", manifest.tokens);
  visit("skipped_steps", manifest.skipped_steps);
  visit("data_hash", manifest.data_hash);
  visit("dtype", manifest.dtype);
}

void read_fields(const StrictObject& top, bool names_tokenizer, bool names_run, CheckpointManifest& manifest) {
  visit_members(manifest, [&](const char* name, auto& member) { top.read(name, member); });
  if (names_tokenizer) manifest.tokenizer_hash = top.hash("tokenizer_hash");
  if (names_run) manifest.run = top.hash("run");
  const StrictObject model(top.member("model"), 2);
  manifest.architecture = model.text("architecture");
  manifest.parameters = model.integer("parameters");
  manifest.ranks = top.integer("ranks");
  for (const nlohmann::json& entry : top.list("files")) {
    const StrictObject file(entry, 3);
    manifest.files.push_back({plain_name(file.text("name")), file.integer("bytes"), file.hash("xxh3_128")});
  }
}

/// Throws what no run can have, however well it is sealed.
void require_possible(const CheckpointManifest& manifest) {
  const auto require = [](bool possible, const std::string& what) {
    if (!possible) throw std::runtime_error(what);
  };
  const auto [step, samples, tokens] = std::tuple{manifest.step, manifest.samples, manifest.tokens};
  require(step >= 1, "it is of step 0, and a run saves after a step");
  require(samples >= step && samples % step == 0,
          fmt::format("{} samples in {} steps are not as many in each", samples, step));
  require(tokens >= samples && tokens % samples == 0,
          fmt::format("{} tokens in {} samples are not as many in each", tokens, samples));
  require(manifest.skipped_steps <= step,
          fmt::format("{} skipped steps are more than its {} steps", manifest.skipped_steps, step));
  require(manifest.ranks >= 1 && static_cast<std::size_t>(manifest.ranks) + 1 == manifest.files.size(),
          fmt::format("{} ranks and a config do not leave {} files", manifest.ranks, manifest.files.size()));
  for (std::int64_t rank = 0; rank <= manifest.ranks; ++rank) {
    const std::string& name = manifest.files[static_cast<std::size_t>(rank)].name;
    const std::string expected = rank < manifest.ranks ? state_file_name(rank, manifest.ranks) : config_file_name;
    require(name == expected, fmt::format("a file is called {}, not {}", name, expected));
  }
}

nlohmann::ordered_json without_hash(const CheckpointManifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = format_name;
  json["format_version"] = format_version;
  visit_members(manifest, [&](const char* name, const auto& member) { json[name] = member; });
  if (!manifest.tokenizer_hash.empty()) json["tokenizer_hash"] = manifest.tokenizer_hash;
  if (!manifest.run.empty()) json["run"] = manifest.run;
  json["model"] = {{"architecture", manifest.architecture}, {"parameters", manifest.parameters}};
  json["ranks"] = manifest.ranks;
  json["files"] = nlohmann::ordered_json::array();
  for (const CheckpointFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.hash}});
  }
  return json;
}

}  // namespace

std::string state_file_name(std::int64_t rank, std::int64_t ranks) {
  return fmt::format("state-{:05}-of-{:05}.h5", rank, ranks);
}

std::string to_json(const CheckpointManifest& manifest) {
  nlohmann::ordered_json json = without_hash(manifest);
  json["hash"] = hash_bytes(json.dump(2));
  return json.dump(2) + "\n";
}

CheckpointManifest parse_manifest(const std::string& text, const std::string& path) {
  CheckpointManifest manifest;
  std::string stated;
  try {
    const nlohmann::json json = parse_strict_json(text);
    if (!json.is_object() || !json.contains("format") || json["format"] != format_name) {
      throw std::runtime_error("it is not the manifest of a checkpoint");
    }
    if (!json.contains("format_version") || json["format_version"] != format_version) {
      fail(ExitCode::checkpoint,
           "{}: has format version {}, but this program reads version {}; use it with the version of the program that "
           "made it, or train anew into another --output",
           path, json.value("format_version", nlohmann::json()).dump(), format_version);
    }
    const bool names_tokenizer = json.contains("tokenizer_hash");  // of data that say it
    const bool names_run = json.contains("run");                   // all but those of earlier versions do
    const StrictObject top(json, 12 + (names_tokenizer ? 1 : 0) + (names_run ? 1 : 0));
    read_fields(top, names_tokenizer, names_run, manifest);
    stated = top.hash("hash");
    require_possible(manifest);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // of the JSON or of its members
    fail(ExitCode::checkpoint, "{}: is damaged: {}", path, error.what());
  }
  if (const std::string found = hash_bytes(without_hash(manifest).dump(2)); found != stated) {
    fail(ExitCode::checkpoint, "{}: is damaged: its content has hash {}, but it states {}", path, found, stated);
  }
  if (to_json(manifest) != text) {
    fail(ExitCode::checkpoint, "{}: is damaged: it is not written as this program writes it", path);
  }
  return manifest;
}

CheckpointFile describe_file(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  return {name, file_size(path, ExitCode::checkpoint), hash_file(path, ExitCode::checkpoint)};
}

CheckpointManifest read_checkpoint_manifest(const std::string& folder) {
  if (!path_exists(folder, ExitCode::checkpoint)) {
    fail(ExitCode::checkpoint, "{}: there is no such checkpoint", folder);
  }
  const std::string path = folder + "/manifest.json";
  if (!is_directory(folder, ExitCode::checkpoint) || !path_exists(path, ExitCode::checkpoint)) {
    fail(ExitCode::checkpoint, "{}: is no complete checkpoint: it has no manifest.json", folder);
  }
  return parse_manifest(read_file(path, ExitCode::checkpoint, largest_manifest), path);
}

CheckpointManifest verify_checkpoint(const std::string& folder) {
  CheckpointManifest manifest = read_checkpoint_manifest(folder);
  for (CheckpointFile& file : manifest.files) {
    const std::string at = folder + "/" + file.name;
    if (!path_exists(at, ExitCode::checkpoint)) {
      fail(ExitCode::checkpoint, "{}: is missing, but its manifest lists it", at);
    }
    if (const std::int64_t bytes = file_size(at, ExitCode::checkpoint); bytes != file.bytes) {
      fail(ExitCode::checkpoint, "{}: has {} bytes, but its manifest says {}: it is damaged", at, bytes, file.bytes);
    }
    const File opened = File::open(at, ExitCode::checkpoint);
    file.stamp = opened.stamp();
    if (const std::string hash = hash_file(opened, nullptr); hash != file.hash) {
      fail(ExitCode::checkpoint, "{}: has hash {}, but its manifest says {}: it is damaged", at, hash, file.hash);
    }
    require_unchanged(opened, *file.stamp);
  }
  return manifest;
}

}  // namespace ringtrain
