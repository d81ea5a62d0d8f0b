#include "data/token_manifest.h"

#include "framework/storage/files.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

constexpr const char* format_name = "ringtrain-tokens";
constexpr std::int64_t max_bytes = 1 << 20;

TokenManifest parse(const std::string& text, const std::string& path) {
  const nlohmann::json json = parse_strict_json(text);
  const StrictObject top(json, 5);
  if (top.text("format") != format_name) throw std::runtime_error("format is not " + std::string(format_name));
  if (const auto version = top.integer("format_version"); version != token_format_version) {
    fail(ExitCode::data,
         "{} is of another version of this program: its format_version is {}, and this one reads {}; make the token "
         "file "
         "again with prepare",
         path, version, token_format_version);
  }
  TokenManifest manifest;
  manifest.bytes = top.integer("bytes");
  manifest.hash = top.hash("xxh3_128");
  for (const nlohmann::json& entry : top.list("datasets")) {
    const StrictObject one(entry, 4);
    manifest.datasets.push_back({one.text("name"), one.text("type"), one.integer("count"), one.integer("offset")});
  }
  return manifest;
}

}  // namespace

std::string manifest_path(const std::string& token_file) {
  return token_file + ".manifest.json";
}

TokenManifest read_manifest(const std::string& token_file) {
  const std::string path = manifest_path(token_file);
  if (!path_exists(path)) {
    fail(ExitCode::data, "{} has no manifest {}; copy it along, or make the token file again with prepare", token_file,
         path);
  }
  try {
    return parse(read_file(path, ExitCode::data, max_bytes), path);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ExitCode::data, "{} is damaged: {}; make the token file again with prepare", path, error.what());
  }
}

std::string token_manifest_head() {
  return fmt::format("{{\n  \"format\": \"{}\",\n", format_name);
}

std::string to_json(const TokenManifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = format_name;
  json["format_version"] = token_format_version;
  json["bytes"] = manifest.bytes;
  json["xxh3_128"] = manifest.hash;
  json["datasets"] = nlohmann::ordered_json::array();
  for (const TokenManifest::Dataset& dataset : manifest.datasets) {
    json["datasets"].push_back(
        {{"name", dataset.name}, {"type", dataset.type}, {"count", dataset.count}, {"offset", dataset.offset}});
  }
  return json.dump(2) + "\n";
}

}  // namespace ringtrain
