// Finds out the format of a tokenizer file by its content (data/tokenizer/tokenizer.h).
#include <nlohmann/json.hpp>
#include <utility>

#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/formats/tokenizer_json.h"
#include "framework/storage/files.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/strict_json.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

constexpr std::int64_t max_bytes = std::int64_t{256} << 20;

nlohmann::json parse_json(const std::string& text, const std::string& path, ExitCode damaged) {
  try {
    return parse_strict_json(text, {.bytes = max_bytes});
  } catch (const std::exception& error) {
    fail(damaged, "{} is damaged: {}", path, error.what());
  }
}

/// Returns the path of the tokenizer's file in a folder, "" if it has none: tokenizer.json, or otherwise a file in a
/// format that is not read, so that the error names it.
std::string find_file_in(const std::string& folder) {
  if (std::string path = folder + "/tokenizer.json"; path_exists(path, ExitCode::data)) return path;
  // Some names contain a version: mistral_instruct_tokenizer_240323.model.v3, tekken_240911.json.
  for (const std::string& name : list_directory(folder, ExitCode::data)) {
    const bool pieces = name.find("tokenizer") != std::string::npos && name.find(".model") != std::string::npos;
    const bool tekken = name.starts_with("tekken") && name.ends_with(".json");
    if (pieces || tekken || name.ends_with(".tiktoken")) return fmt::format("{}/{}", folder, name);
  }
  return "";
}

/// Returns the path of the file that load_tokenizer() reads. Throws Error(data) if there is none.
std::string tokenizer_file(const std::string& path) {
  if (!path_exists(path, ExitCode::data)) {
    fail(ExitCode::data, "the tokenizer {} does not exist; name a file, a folder, or 'bytes'{}", path, hub_hint(path));
  }
  if (!is_directory(path, ExitCode::data)) return path;
  if (std::string found = find_file_in(path); !found.empty()) return found;
  fail(ExitCode::data, "the folder {} contains no tokenizer.json; name a tokenizer file", path);
}

/// Throws Error(data) that says how transformers 5 converts another format to a tokenizer.json.
[[noreturn]] void refuse_form(const std::string& path) {
  const std::string folder = parent_directory(path);
  std::string call = fmt::format(R"(PreTrainedTokenizerFast.from_pretrained("{0}").save_pretrained("{0}"))", folder);
  if (path.ends_with(".tiktoken")) {
    call = fmt::format(R"(integrations.tiktoken.convert_tiktoken_to_fast(ENCODING, "{}"), )"
                       "where ENCODING is a tiktoken.Encoding with the model's pattern and special tokens",
                       folder);
  }
  fail(ExitCode::data, "{} is not a tokenizer.json, the only supported format; convert it in Python: transformers.{}",
       path, call);
}

/// The content of a tokenizer.json, as text and parsed.
struct Content {  // NOLINT(bugprone-exception-escape): json's move constructor does not throw
  std::string text;
  nlohmann::json json;
};

/// folder: the folder in which the file was found; "" if the file itself was named, which may then be a link. damaged:
/// the exit code for a damaged file.
Content read_content(const std::string& path, const std::string& folder, ExitCode damaged) {
  if (folder.empty()) refuse_gguf_file(path, ExitCode::data);
  Content content;
  std::string& text = content.text;
  text = folder.empty() ? read_file(path, damaged, max_bytes)
                        : read_in_folder(folder, file_name(path), damaged, max_bytes);
  if (text.empty()) fail(damaged, "the tokenizer {} is empty (0 bytes)", path);
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string::npos || text[start] != '{') {
    if (!folder.empty() && file_name(path) == "tokenizer.json")
      fail(damaged, "{} is damaged: it is not a JSON object", path);
    refuse_form(path);
  }
  if (well_formed_prefix(text) != text.size()) fail(damaged, "{} is damaged: it is not UTF-8", path);
  content.json = parse_json(text, path, damaged);
  if (content.json.contains("config") && content.json.contains("vocab")) refuse_form(path);  // tekken.json
  return content;
}

BpeSpec read_spec(const std::string& path, const std::string& folder, ExitCode damaged) {
  BpeSpec spec = read_tokenizer_json(read_content(path, folder, damaged).json, path, damaged);
  check_spec(spec, damaged);
  return spec;
}

/// Returns the text of the token that is eos_token in a folder's tokenizer_config.json, "" if there is none.
std::string end_token_in(const std::string& folder, ExitCode damaged) {
  const std::string path = folder + "/tokenizer_config.json";
  if (!path_exists(path, damaged)) return "";
  const nlohmann::json config = parse_json(read_in_folder(folder, "tokenizer_config.json", damaged), path, damaged);
  nlohmann::json token = config.is_object() ? config.value("eos_token", nlohmann::json()) : nlohmann::json();
  if (token.is_object()) token = token.value("content", nlohmann::json());
  return token.is_string() ? token.get<std::string>() : "";
}

/// Returns whether a tokenizer is the output of byte_tokenizer_json().
bool is_byte_tokenizer(const BpeSpec& spec) {
  if (spec.alphabet != BpeSpec::Alphabet::bytes || spec.tokens.size() != 256 || !spec.merges.empty() ||
      !spec.splits.empty() || spec.nfc || spec.space_in_front || spec.added.size() != 1) {
    return false;
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (spec.tokens[byte] != std::string(1, static_cast<char>(byte))) return false;
  }
  const AddedToken& end = spec.added.front();
  return end.id == end_of_document && end.content == end_of_document_text && end.special;
}

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> ids;
  make_encoder(special)->encode(text, ids);
  return ids;
}

bool holds_tokenizer(const std::string& path) {
  if (!is_directory(path, ExitCode::data)) return path_exists(path, ExitCode::data);
  return !find_file_in(path).empty();
}

std::string read_tokenizer_file(const std::string& path, ExitCode damaged) {
  return read_content(path, "", damaged).text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, ExitCode damaged) {
  if (path == "bytes") return make_byte_tokenizer();
  const std::string file = tokenizer_file(path);
  BpeSpec spec = read_spec(file, file == path ? "" : path, damaged);
  if (is_byte_tokenizer(spec)) return make_byte_tokenizer();
  auto tokenizer = std::make_unique<BpeTokenizer>(std::move(spec));
  if (!tokenizer->end_of_document()) tokenizer->name_end_of_document(end_token_in(parent_directory(file), damaged));
  return tokenizer;
}

std::string read_tokenizer_identity(const std::string& path, ExitCode damaged) {
  if (path == "bytes") return make_byte_tokenizer()->identity();
  const std::string file = tokenizer_file(path);
  const BpeSpec spec = read_spec(file, file == path ? "" : path, damaged);
  return is_byte_tokenizer(spec) ? make_byte_tokenizer()->identity() : identity_of(spec);
}

}  // namespace ringtrain
