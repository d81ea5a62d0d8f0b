#include "train/models/model_tokenizer.h"

#include <array>
#include <nlohmann/json.hpp>

#include "data/tokenizer/formats/gguf_tokenizer.h"
#include "framework/error.h"
#include "framework/gguf/gguf.h"
#include "framework/storage/files.h"
#include "framework/storage/folder_file.h"
#include "train/models/output_folder.h"

namespace ringtrain {

namespace {

/// What stands beside a model's weights and is not made by training.
constexpr std::array carried_files{"generation_config.json", "tokenizer.json",    "tokenizer_config.json",
                                   "tokenizer.model",        "tekken.json",       "special_tokens_map.json",
                                   "added_tokens.json",      "vocab.json",        "merges.txt",
                                   "chat_template.jinja",    "chat_template.json"};

std::vector<std::string> copy_files(const std::string& from, const std::string& to, ExitCode code) {
  constexpr std::int64_t longest = std::int64_t{256} << 20;
  std::vector<std::string> names;
  for (const char* name : carried_files) {
    const std::string path = from + "/" + name;
    if (!path_exists(path, code)) continue;
    write_file(to + "/" + name, read_in_folder(from, name, code, longest), code);
    names.emplace_back(name);
  }
  return names;
}

/// Writes what a GGUF file says of its tokenizer as the files of a folder.
CarriedTokenizer write_files(const GgufFile& file, const std::string& to, ExitCode code) {
  CarriedTokenizer result;
  nlohmann::json tokenizer;
  try {
    if (!file.text("tokenizer.ggml.model")) return result;
    tokenizer = gguf_tokenizer_json(file);
  } catch (const Error& error) {  // weights go without
    result.remark = fmt::format("the tokenizer does not go along: {}", error.what());
    return result;
  }
  const std::vector<std::string>& tokens = *file.texts("tokenizer.ggml.tokens");
  // The class that takes tokenizer.json as it is, and text after decoding as it comes.
  nlohmann::json config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  for (const char* role : {"bos", "eos"}) {
    const auto id = file.integer(fmt::format("tokenizer.ggml.{}_token_id", role));
    if (id && *id >= 0 && *id < std::ssize(tokens)) {
      config[fmt::format("{}_token", role)] = tokens[*id];
    }
  }
  if (const nlohmann::json& unknown = tokenizer["model"]["unk_token"]; unknown.is_string()) {
    config["unk_token"] = unknown;
  }
  const auto write = [&](const std::string& name, const std::string& content) {
    write_file(to + "/" + name, content, code);
    result.files.push_back(name);
  };
  write("tokenizer.json", tokenizer.dump() + "\n");
  write("tokenizer_config.json", config.dump(2) + "\n");
  if (const auto chat = file.text("tokenizer.chat_template")) write("chat_template.jinja", *chat);
  return result;
}

/// Returns the hash of the tokenizer that a model from elsewhere brings along, "" if it brings none. Sets *remark where
/// it cannot be read.
std::string own_tokenizer_hash(const ModelSource& source, std::optional<std::string>& remark) {
  try {
    if (source.tokenizer.empty() || !holds_tokenizer(source.tokenizer)) return "";
    return read_tokenizer_identity(source.tokenizer);
  } catch (const Error& error) {
    remark = fmt::format("whether the tokens are those of {} is not known, as its tokenizer is not read: {}",
                         source.path, error.what());
    return "";
  }
}

}  // namespace

std::optional<std::string> check_tokens(const ModelSource& source, const TokenFile& file) {
  std::optional<std::string> remark;
  if (file.tokenizer_hash().empty()) return remark;
  const std::string hash =
      source.checkpoint ? source.checkpoint->manifest.tokenizer_hash : own_tokenizer_hash(source, remark);
  if (hash.empty() || hash == file.tokenizer_hash()) return remark;
  fail(ExitCode::data,
       "{} has tokens of another tokenizer than {} (hashes {} and {}), so they mean nothing to this model; {}",
       file.path(), source.path, file.tokenizer_hash(), hash,
       source.tokenizer.empty() ? "make the file with the tokenizer that the model was trained with"
                                : fmt::format("make the file with prepare --tokenizer {}", source.tokenizer));
}

void check_tokenizer(const ModelSource& source, const Tokenizer& tokenizer, const std::string& path) {
  if (!source.checkpoint) return;
  const std::string& hash = source.checkpoint->manifest.tokenizer_hash;
  if (hash.empty() || hash == tokenizer.identity()) return;
  fail(ExitCode::data,
       "{} was trained on tokens of another tokenizer than {} (hashes {} and {}); name the one that its data were made "
       "with by --tokenizer, or give ids by --tokens",
       source.path, path, hash, tokenizer.identity());
}

void check_carried_files(const std::string& folder) {
  for (const char* name : carried_files) check_link_in_folder(folder, name, ExitCode::checkpoint);
}

CarriedTokenizer carry_tokenizer(const std::string& from, const std::string& to, ExitCode code) {
  if (from.empty()) return {};
  if (is_directory(from, code)) return {.files = copy_files(from, to, code), .remark = {}};
  return write_files(GgufFile::open(from), to, code);
}

std::optional<std::string> keep_tokenizer(const ModelSource& source, const std::string& run_folder) {
  const std::string folder = ModelSource::tokenizer_folder(run_folder);
  if (source.tokenizer.empty() || path_exists(folder)) return std::nullopt;
  OutputFolder output(folder, ExitCode::usage);
  const CarriedTokenizer carried = carry_tokenizer(source.tokenizer, output.content(), ExitCode::usage);
  if (carried.files.empty()) return carried.remark;
  output.publish();
  return std::nullopt;
}

}  // namespace ringtrain
