#include "train/checkpoint/checkpoint_manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "framework/error.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/hash.h"
#include "framework/storage/hdf5_datasets.h"
#include "framework/storage/plain_text.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

constexpr const char* format_name = "ringtrain checkpoint";
constexpr std::int64_t format_version = 3;
constexpr std::int64_t largest_manifest = 16 << 20;  // a rank takes about 250 bytes

/// Throws for values that no run can have, even if the manifest's hash is right.
void require_possible(const CheckpointManifest& manifest) {
  const auto require = [](bool possible, const std::string& what) {
    if (!possible) throw std::runtime_error(what);
  };
  const std::int64_t samples = manifest.samples, tokens = manifest.tokens;
  require(manifest.step >= 1, "it is from step 0, but a run saves only after a step");
  // The config, which may have stages, determines how many each step has.
  require(samples >= manifest.step, fmt::format("{} samples are fewer than its {} steps", samples, manifest.step));
  require(tokens >= samples, fmt::format("{} tokens are fewer than its {} samples", tokens, samples));
  require(manifest.skipped_steps <= manifest.step,
          fmt::format("{} skipped steps are more than its {} steps", manifest.skipped_steps, manifest.step));
  require(manifest.ranks >= 1 && 2 * static_cast<std::size_t>(manifest.ranks) + 1 == manifest.files.size(),
          fmt::format("it lists {} files, not those of {} ranks and a config", manifest.files.size(), manifest.ranks));
  for (std::int64_t i = 0; i <= 2 * manifest.ranks; ++i) {
    const std::string& name = manifest.files[i].name;
    const std::string state = state_file_name(i / 2, manifest.ranks);
    const std::string of_rank = i % 2 == 0 ? state : dataset_list_path(state);
    const std::string expected = i < 2 * manifest.ranks ? of_rank : config_file_name;
    require(name == expected, fmt::format("a file is called {}, not {}", plain_text(name), expected));
  }
}

JsonWriter without_hash(const CheckpointManifest& manifest) {
  JsonWriter writer;
  writer("format", format_name);
  writer("format_version", format_version);
  CheckpointManifest::visit_members(manifest, writer);
  return writer;
}

}  // namespace

std::string state_file_name(std::int64_t rank, std::int64_t ranks) {
  return fmt::format("state-{:05}-of-{:05}.h5", rank, ranks);
}

std::string to_json(const CheckpointManifest& manifest) {
  JsonWriter writer = without_hash(manifest);
  writer.hash("hash", hash_bytes(json_text(writer.json, 2)));
  return json_text(writer.json, 2) + "\n";
}

CheckpointManifest parse_manifest(const std::string& text, const std::string& path) {
  CheckpointManifest manifest;
  std::string stated;
  try {
    const nlohmann::json json = parse_strict_json(text);
    JsonReader reader(json);
    std::string format;
    std::int64_t version = 0;
    if (json.contains("format")) reader("format", format);
    if (format != format_name) throw std::runtime_error("it is not the manifest of a checkpoint");
    reader("format_version", version);
    if (version != format_version) {
      fail(ExitCode::checkpoint,
           "{}: has format version {}, but this program reads version {}; export it with the version of the program "
           "that made it, or start a new run in another --output",
           path, version, format_version);
    }
    CheckpointManifest::visit_members(manifest, reader);
    reader.hash("hash", stated);
    reader.finish();
    require_possible(manifest);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // from the JSON or its members
    fail(ExitCode::checkpoint, "{}: is damaged: {}", path, error.what());
  }
  if (const std::string found = hash_bytes(json_text(without_hash(manifest).json, 2)); found != stated) {
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
  const std::string path = folder + "/manifest.json";
  if (!is_directory(folder, ExitCode::checkpoint) || !path_exists(path, ExitCode::checkpoint)) {
    fail(ExitCode::checkpoint, "{}: is not a complete checkpoint: it has no manifest.json", folder);
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
