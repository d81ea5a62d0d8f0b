#include "data/token_manifest.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/files.h"

namespace ringtrain {

namespace {

using Json = nlohmann::json;
constexpr const char* format_name = "ringtrain-tokens";

/// Reads members of one JSON object, each of a known name and type, and no others.
class StrictObject {
 public:
  StrictObject(const Json& json, std::size_t members) : json_(json) {
    if (!json.is_object() || json.size() != members) throw std::runtime_error("an object lacks members or has others");
  }
  std::int64_t integer(const char* name) const {
    const Json& value = json_.at(name);
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) ||
        value.get<std::int64_t>() < 0) {
      throw std::runtime_error(std::string(name) + " is no count");
    }
    return value.get<std::int64_t>();
  }
  std::string text(const char* name) const {
    const Json& value = json_.at(name);
    if (!value.is_string()) throw std::runtime_error(std::string(name) + " is no text");
    return value.get<std::string>();
  }
  const Json& member(const char* name) const { return json_.at(name); }

 private:
  const Json& json_;
};

TokenManifest parse(const std::string& text) {
  const Json json = Json::parse(text);
  const StrictObject top(json, 5);
  if (top.text("format") != format_name) throw std::runtime_error("format is not " + std::string(format_name));
  if (const auto version = top.integer("format_version"); version != token_format_version) {
    throw std::runtime_error("format_version is " + std::to_string(version) + ", this program reads " +
                             std::to_string(token_format_version));
  }
  TokenManifest manifest;
  manifest.bytes = top.integer("bytes");
  manifest.hash = top.text("xxh3_128");
  const bool digits = manifest.hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (manifest.hash.size() != 32 || !digits) throw std::runtime_error("xxh3_128 is no hash");
  const Json& datasets = top.member("datasets");
  if (!datasets.is_array()) throw std::runtime_error("datasets is no list");
  for (const Json& entry : datasets) {
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
    return parse(read_file(path, ExitCode::data, 1 << 20));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // nlohmann's errors and those above
    fail(ExitCode::data, "{} is damaged: {}; make the token file again with prepare", path, error.what());
  }
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
