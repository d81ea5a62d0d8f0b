#include "data/token_manifest.h"

#include "framework/storage/files.h"
#include "framework/storage/hash.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

constexpr const char* format_name = "ringtrain-tokens";
constexpr std::int64_t max_bytes = 1 << 20;

/// Returns the hash of a manifest's content: of its JSON with sorted names and without spaces, but without the hash
/// itself.
std::string content_hash(nlohmann::json manifest) {
  manifest.erase("hash");
  return hash_bytes(json_text(manifest));
}

TokenManifest parse(const std::string& text, const std::string& path) {
  const nlohmann::json json = parse_strict_json(text);
  JsonReader reader(json);
  std::string format;
  std::int64_t version = 0;
  reader("format", format);
  if (format != format_name) throw std::runtime_error("format is not " + std::string(format_name));
  reader("format_version", version);
  if (version != token_format_version) {
    fail(ExitCode::data,
         "{} was written by another version of this program: its format_version is {}, but this version reads {}; make "
         "the token file again with prepare",
         path, version, token_format_version);
  }
  TokenManifest manifest;
  TokenManifest::visit_members(manifest, reader);
  std::string stated;
  reader.hash("hash", stated);
  reader.finish();
  require_within(manifest.datasets, manifest.bytes);
  if (const std::string found = content_hash(json); found != stated) {
    throw std::runtime_error(fmt::format("its content has hash {}, but it states {}", found, stated));
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
    fail(ExitCode::data, "{} has no manifest {}; copy the manifest too, or make the token file again with prepare",
         token_file, path);
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
  JsonWriter writer;
  writer("format", format_name);
  writer("format_version", token_format_version);
  TokenManifest::visit_members(manifest, writer);
  writer.hash("hash", content_hash(writer.json));
  return json_text(writer.json, 2) + "\n";
}

}  // namespace ringtrain
