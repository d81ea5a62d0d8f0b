#include "train/checkpoint_manifest.h"

#include <nlohmann/json.hpp>

#include "framework/error.h"
#include "framework/files.h"
#include "framework/hash.h"

namespace ringtrain {

namespace {

using Json = nlohmann::ordered_json;
constexpr const char* format_name = "ringtrain checkpoint";
constexpr std::int64_t format_version = 1;
constexpr std::int64_t largest_manifest = 1 << 20;

/// Return what the manifest's own hash is taken of: the JSON without that key.
std::string hash_of(Json json) {
  json.erase("hash");
  return hash_bytes(json.dump(2));
}

void read_fields(const Json& json, CheckpointManifest& manifest) {
  json.at("step").get_to(manifest.step);
  json.at("samples").get_to(manifest.samples);
  json.at("tokens").get_to(manifest.tokens);
  json.at("data_hash").get_to(manifest.data_hash);
  json.at("dtype").get_to(manifest.dtype);
  json.at("model").at("architecture").get_to(manifest.architecture);
  json.at("model").at("parameters").get_to(manifest.parameters);
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({file.at("name").get<std::string>(), file.at("bytes").get<std::int64_t>(),
                              file.at("xxh3_128").get<std::string>()});
  }
}

}  // namespace

std::string to_json(const CheckpointManifest& manifest) {
  Json json;
  json["format"] = format_name;
  json["format_version"] = format_version;
  json["step"] = manifest.step;
  json["samples"] = manifest.samples;
  json["tokens"] = manifest.tokens;
  json["data_hash"] = manifest.data_hash;
  json["dtype"] = manifest.dtype;
  json["model"] = {{"architecture", manifest.architecture}, {"parameters", manifest.parameters}};
  json["files"] = Json::array();
  for (const CheckpointFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.hash}});
  }
  json["hash"] = hash_of(json);
  return json.dump(2) + "\n";
}

CheckpointManifest parse_manifest(const std::string& text, const std::string& path) {
  CheckpointManifest manifest;
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || json.value("format", "") != format_name) {
      fail(ExitCode::checkpoint, "{}: is not the manifest of a checkpoint", path);
    }
    if (const auto version = json.at("format_version").get<std::int64_t>(); version != format_version) {
      fail(ExitCode::checkpoint, "{}: has format version {}, but this program reads version {}", path, version,
           format_version);
    }
    const auto stated = json.at("hash").get<std::string>();
    if (const std::string found = hash_of(json); found != stated) {
      fail(ExitCode::checkpoint, "{}: is damaged: its content has hash {}, but it states {}", path, found, stated);
    }
    read_fields(json, manifest);
  } catch (const Json::exception& error) {
    fail(ExitCode::checkpoint, "{}: is damaged: {}", path, error.what());
  }
  return manifest;
}

CheckpointFile describe_file(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  return {name, file_size(path, ExitCode::checkpoint), hash_file(path, ExitCode::checkpoint)};
}

CheckpointManifest verify_checkpoint(const std::string& folder) {
  if (!path_exists(folder)) fail(ExitCode::checkpoint, "{}: there is no such checkpoint", folder);
  const std::string path = folder + "/manifest.json";
  if (!is_directory(folder) || !path_exists(path)) {
    fail(ExitCode::checkpoint, "{}: is no complete checkpoint: it has no manifest.json", folder);
  }
  const CheckpointManifest manifest = parse_manifest(read_file(path, ExitCode::checkpoint, largest_manifest), path);
  for (const CheckpointFile& file : manifest.files) {
    const std::string at = folder + "/" + file.name;
    if (!path_exists(at)) fail(ExitCode::checkpoint, "{}: is missing, but its manifest lists it", at);
    if (const std::int64_t bytes = file_size(at, ExitCode::checkpoint); bytes != file.bytes) {
      fail(ExitCode::checkpoint, "{}: has {} bytes, but its manifest says {}: it is damaged", at, bytes, file.bytes);
    }
    if (const std::string hash = hash_file(at, ExitCode::checkpoint); hash != file.hash) {
      fail(ExitCode::checkpoint, "{}: has hash {}, but its manifest says {}: it is damaged", at, hash, file.hash);
    }
  }
  return manifest;
}

}  // namespace ringtrain
