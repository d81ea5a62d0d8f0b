// Fuzzes the opening of a token file: a manifest, a byte of 0, and the file's content. Size and hashes are made to fit,
// as a forger would do. A file that opens is read to its end.
#include <nlohmann/json.hpp>

#include "data/token_file.h"
#include "data/token_manifest.h"
#include "framework/storage/hash.h"
#include "tests/fuzz/fuzz_file.h"

namespace {

/// Returns the manifest's text with values that fit the content; the text itself if it is not a JSON object.
std::string forged(const std::string& text, const std::string& content) {
  using namespace ringtrain;
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return text;
  json["bytes"] = content.size();
  json["xxh3_128"] = hash_bytes(content);
  json.erase("hash");
  json["hash"] = hash_bytes(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string path = fuzz::folder() + "/tokens.h5", input(reinterpret_cast<const char*>(data), bytes);
  const std::size_t end = input.find('\0');
  if (end == std::string::npos) return 0;
  const std::string content = input.substr(end + 1);
  fuzz::write(path, content);
  fuzz::write(manifest_path(path), forged(input.substr(0, end), content));
  fuzz::accepted(ExitCode::data, [&] {
    const auto file = TokenFile::open(path);
    std::vector<std::int32_t> tokens(file->token_count());
    file->read(0, tokens);
    std::vector<float> weights(tokens.size());
    file->read_weights(0, weights);
    for (std::size_t i = 0; i + 1 < file->document_offsets().size(); ++i) {
      file->bytes_per_token(static_cast<std::int64_t>(i));
    }
  });
  return 0;
}
