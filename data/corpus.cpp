// The files of a run: opened, verified, and matched with the model.
#include "data/corpus.h"

#include <fmt/core.h>

#include <numeric>
#include <span>

#include "framework/config/data_config.h"
#include "framework/error.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

std::unique_ptr<TokenFile> open_for_model(const TokenFileOpener& open, const std::string& path,
                                          std::int64_t vocab_size) {
  std::unique_ptr<TokenFile> file = opened_by(open, path);
  if (file->vocab_size() > vocab_size) {
    fail(ExitCode::data, "{} has tokens up to {}, but model.vocab_size is {}; it must be at least {}", path,
         file->vocab_size() - 1, vocab_size, file->vocab_size());
  }
  return file;
}

/// Throws Error(data) if two files were made with different tokenizers: their ids mean different things.
void check_tokenizers(const TokenFile& first, const TokenFile& other) {
  if (first.tokenizer_hash().empty() || other.tokenizer_hash().empty()) return;
  if (first.tokenizer_hash() == other.tokenizer_hash()) return;
  fail(ExitCode::data,
       "{} and {} were made with different tokenizers ({} and {}), so their tokens do not mean the same; make one of "
       "them again with prepare",
       first.path(), other.path(), first.tokenizer_hash(), other.tokenizer_hash());
}

}  // namespace

std::unique_ptr<TokenFile> opened_by(const TokenFileOpener& open, const std::string& name) {
  std::unique_ptr<TokenFile> file = open ? open(name) : nullptr;
  if (!file) fail(ExitCode::usage, "{}: the program's open_tokens makes no token file of this name", name);
  return file;
}

Corpus open_corpus(const DataConfig& config, std::int64_t vocab_size, const TokenFileOpener& open) {
  if (config.train.empty()) fail(ExitCode::usage, "data.train names no token file");
  Corpus corpus;
  for (const DataSource& source : config.train) {
    corpus.files.push_back(open_for_model(open, source.path, vocab_size));
    corpus.weights.push_back(source.weight);
  }
  if (!config.validation.empty()) corpus.validation_file = open_for_model(open, config.validation, vocab_size);
  for (std::size_t i = 0; i < corpus.files.size(); ++i) {  // a file that does not say whose its tokens are fits any
    for (std::size_t j = 0; j < i; ++j) check_tokenizers(*corpus.files[j], *corpus.files[i]);
    if (corpus.validation_file) check_tokenizers(*corpus.files[i], *corpus.validation_file);
  }
  return corpus;
}

std::string Corpus::hash() const {
  std::vector<std::string> hashes;
  hashes.reserve(files.size());
  for (const auto& file : files) hashes.push_back(file->hash());
  return corpus_hash(hashes, weights);
}

std::string Corpus::tokenizer_hash() const {
  for (const auto& file : files) {
    const std::string& hash = file->tokenizer_hash();
    if (hash.size() == 32 && hash.find_first_not_of("0123456789abcdef") == std::string::npos) return hash;
  }
  return "";
}

std::string corpus_hash(const std::vector<std::string>& file_hashes, const std::vector<double>& weights) {
  // Weights count as shares: scaling them all changes nothing that a run does.
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::string text;
  for (std::size_t i = 0; i < file_hashes.size(); ++i) {
    text += fmt::format("{} {:.12g}\n", file_hashes[i], weights[i] / sum);
  }
  return hash_bytes(text);
}

void Corpus::cut_at_documents(std::int64_t seq_len) {
  ensure(seq_len >= 1, "a window has at least one token");
  std::vector<std::vector<std::int64_t>>& cut = window_starts[seq_len];
  cut.clear();
  for (const auto& file : files) {
    const auto offsets =
        file->document_offsets().first(static_cast<std::size_t>(file->first_validation_document()) + 1);
    if (offsets.back() == 0) fail(ExitCode::data, "{} has 0 tokens for training", file->path());
    std::vector<std::int64_t> starts{0};
    for (std::size_t document = 0; document + 1 < offsets.size(); ++document) {
      if (offsets[document + 1] - starts.back() <= seq_len) continue;
      if (offsets[document] > starts.back()) starts.push_back(offsets[document]);
      while (offsets[document + 1] - starts.back() > seq_len) starts.push_back(starts.back() + seq_len);
    }
    starts.push_back(offsets.back());
    cut.push_back(std::move(starts));
  }
}

WindowRange Corpus::window(std::size_t file, std::int64_t window, std::int64_t seq_len) const {
  const auto cut = window_starts.find(seq_len);
  if (cut == window_starts.end()) return {window * seq_len, seq_len};
  const auto starts = std::span(cut->second[file]).subspan(static_cast<std::size_t>(window), 2);
  return {starts[0], starts[1] - starts[0]};
}

std::int64_t Corpus::window_count(std::size_t number, std::int64_t seq_len, std::int64_t* dropped) const {
  ensure(seq_len >= 1, "a window has at least one token");
  if (const auto cut = window_starts.find(seq_len); cut != window_starts.end()) {
    if (dropped) *dropped = 0;
    return std::ssize(cut->second[number]) - 1;
  }
  const TokenFile& file = *files[number];
  const auto first_validation = static_cast<std::size_t>(file.first_validation_document());
  const std::int64_t tokens = file.document_offsets()[first_validation];
  const std::int64_t windows = tokens > 0 ? (tokens - 1) / seq_len : 0;
  if (windows < 1) {
    fail(ExitCode::data,
         "{} has {} tokens for training, and one window of training.seq_len {} needs {}; use a shorter seq_len or "
         "more text",
         file.path(), tokens, seq_len, seq_len + 1);
  }
  // The last label is used, as a label alone.
  if (dropped) *dropped = tokens - 1 - windows * seq_len;
  return windows;
}

}  // namespace ringtrain
