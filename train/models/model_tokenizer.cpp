#include "train/models/model_tokenizer.h"

#include "framework/error.h"
#include "framework/output/output_folder.h"
#include "framework/storage/files.h"
#include "train/models/carried_tokenizer.h"

namespace ringtrain {

namespace {

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
