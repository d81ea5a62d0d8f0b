#include "train/models/model_tokenizer.h"

#include "framework/error.h"
#include "framework/output/output_folder.h"
#include "framework/storage/files.h"
#include "train/models/carried_tokenizer.h"

namespace ringtrain {

namespace {

bool has_tokenizer(const ModelSource& source) {
  return !source.tokenizer.empty() && holds_tokenizer(source.tokenizer);
}

/// Returns the hash of the tokenizer that comes with a model from elsewhere, "" if it has none. Sets *remark if it is
/// of an unsupported kind. Throws Error(checkpoint) if it is damaged.
std::string own_tokenizer_hash(const ModelSource& source, std::optional<std::string>& remark) {
  try {
    return has_tokenizer(source) ? read_tokenizer_identity(source.tokenizer, ExitCode::checkpoint) : "";
  } catch (const Error& error) {
    if (error.code() == ExitCode::checkpoint) throw;
    remark = fmt::format("cannot check that the tokens are those of {}, because its tokenizer cannot be read: {}",
                         source.path, error.what());
    return "";
  }
}

/// Returns the tokenizer that made a run's data, in the form that carry_tokenizer() takes; "" if it is not available.
/// Sets *remark if the data's folder has another one, or one that cannot be read.
std::string tokenizer_of_data(const Corpus& corpus, std::optional<std::string>& remark) {
  const std::string hash = corpus.tokenizer_hash();
  std::string folder = tokenizer_of_token_file(corpus.files.front()->path());
  if (hash == read_tokenizer_identity("bytes")) return "bytes";
  if (hash.empty() || !is_directory(folder)) return "";
  try {
    if (read_tokenizer_identity(folder) == hash) return folder;
    remark = fmt::format("{} contains another tokenizer than that of {}, so the run does not keep it", folder,
                         corpus.files.front()->path());
  } catch (const Error& error) {
    remark = fmt::format("the run keeps no tokenizer: {}", error.what());
  }
  return "";
}

}  // namespace

std::optional<std::string> check_tokens(const ModelSource& source, const TokenFile& file) {
  std::optional<std::string> remark;
  const bool has_own = has_tokenizer(source);
  const std::string hash =
      source.checkpoint ? source.checkpoint->manifest.tokenizer_hash : own_tokenizer_hash(source, remark);
  if (file.tokenizer_hash().empty()) return std::nullopt;
  if (hash.empty() || hash == file.tokenizer_hash()) return remark;
  fail(ExitCode::data,
       "{} has tokens of another tokenizer than {} (hashes {} and {}), so they mean nothing to this model; {}",
       file.path(), source.path, file.tokenizer_hash(), hash,
       has_own ? fmt::format("make the file with prepare --tokenizer {}", source.tokenizer)
               : "make the file with the tokenizer that the model was trained with");
}

void check_tokenizer(const ModelSource& source, const Tokenizer& tokenizer, const std::string& path) {
  if (!source.checkpoint) return;
  const std::string& hash = source.checkpoint->manifest.tokenizer_hash;
  if (hash.empty() || hash == tokenizer.identity()) return;
  fail(ExitCode::data,
       "{} was trained on tokens of another tokenizer than {} (hashes {} and {}); name the tokenizer of its data with "
       "--tokenizer, or give ids with --tokens",
       source.path, path, hash, tokenizer.identity());
}

std::unique_ptr<Tokenizer> load_model_tokenizer(const ModelSource& source) {
  if (has_tokenizer(source)) return load_tokenizer(source.tokenizer, ExitCode::checkpoint);
  const bool of_bytes =
      source.checkpoint && source.checkpoint->manifest.tokenizer_hash == read_tokenizer_identity("bytes");
  return of_bytes ? load_tokenizer("bytes") : nullptr;
}

std::string tokenizer_identity(const ModelSource& source) {
  std::optional<std::string> remark;
  return source.checkpoint ? source.checkpoint->manifest.tokenizer_hash : own_tokenizer_hash(source, remark);
}

std::string tokenizer_of_token_file(const std::string& token_file) {
  return token_file + ".tokenizer";
}

std::optional<std::string> keep_tokenizer(const ModelSource* source, const Corpus& corpus,
                                          const std::string& run_folder) {
  const std::string folder = ModelSource::tokenizer_folder(run_folder);
  if (path_exists(folder)) return std::nullopt;
  EndIds ids = source ? source->ends : EndIds{};
  ids.add({{}, {corpus.files.front()->end_of_document()}});
  ids.add(read_generation_config(tokenizer_of_token_file(corpus.files.front()->path())));
  std::optional<std::string> remark;
  const std::string of_data = tokenizer_of_data(corpus, remark);
  const bool has_own = source && has_tokenizer(*source);
  if (has_own) remark.reset();
  OutputFolder output(folder, ExitCode::usage);
  carry_tokenizer(has_own ? source->tokenizer : of_data, output.content(), ids, OwnGeneration::kept, ExitCode::usage);
  // Conversations may have been rendered with a template other than the model's, or the model has none.
  if (has_own && is_directory(of_data)) carry_chat_template(of_data, output.content(), ExitCode::usage);
  output.publish();
  return remark;
}

}  // namespace ringtrain
