// The files of a run: opens and verifies them, and checks that they match the model.
#include "data/corpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "framework/config/data_config.h"
#include "framework/error.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

std::unique_ptr<TokenFile> open_for_model(const TokenFileOpener& open, const std::string& path,
                                          std::int64_t vocab_size) {
  std::unique_ptr<TokenFile> file = opened_by(open, path);
  if (file->vocab_size() > vocab_size) {
    fail(ExitCode::data,
         "{} has token ids up to {}, but model.vocab_size is {}; set it to {} or more, or prepare the text with the "
         "model's tokenizer",
         path, file->vocab_size() - 1, vocab_size, file->vocab_size());
  }
  return file;
}

/// Throws Error(data) if two files were made with different tokenizers: their ids mean different things.
void check_tokenizers(const TokenFile& first, const TokenFile& other) {
  if (first.tokenizer_hash().empty() || other.tokenizer_hash().empty()) return;
  if (first.tokenizer_hash() == other.tokenizer_hash()) return;
  fail(ExitCode::data,
       "{} and {} were made with different tokenizers ({} and {}), so their token ids mean different things; make one "
       "of them again with the other's tokenizer",
       first.path(), other.path(), first.tokenizer_hash(), other.tokenizer_hash());
}

/// Adds a document's windows. A document that fits goes into the last window if it begins where that window ends.
void add_document(WholeWindows& whole, const WindowRange& document, std::int64_t seq_len, LongDocuments longer) {
  std::vector<WindowRange>& windows = whole.windows;
  if (document.tokens <= seq_len) {
    const bool joins = !windows.empty() && windows.back().begin + windows.back().tokens == document.begin &&
                       windows.back().tokens + document.tokens <= seq_len;
    if (!joins) windows.push_back({document.begin, 0});
    windows.back().tokens += document.tokens;
    return;
  }
  ++whole.longer;
  const std::int64_t kept = longer == LongDocuments::drop       ? 0
                            : longer == LongDocuments::truncate ? seq_len
                                                                : document.tokens;
  whole.lost_tokens += document.tokens - kept;
  for (std::int64_t at = 0; at < kept; at += seq_len) {
    windows.push_back({document.begin + at, std::min(seq_len, kept - at)});
  }
}

}  // namespace

std::unique_ptr<TokenFile> opened_by(const TokenFileOpener& open, const std::string& name) {
  std::unique_ptr<TokenFile> file = open ? open(name) : nullptr;
  if (!file) fail(ExitCode::usage, "{}: the program's open_tokens returned no token file for this name", name);
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
  for (std::size_t i = 0; i < corpus.files.size(); ++i) {  // a file that does not name its tokenizer fits any
    for (std::size_t j = 0; j < i; ++j) check_tokenizers(*corpus.files[j], *corpus.files[i]);
    if (corpus.validation_file) check_tokenizers(*corpus.files[i], *corpus.validation_file);
  }
  return corpus;
}

std::string Corpus::hash() const {
  std::vector<std::string> hashes;
  hashes.reserve(files.size());
  for (const auto& file : files) hashes.push_back(file->hash());
  return corpus_hash(hashes, weights, longer);
}

std::string Corpus::tokenizer_hash() const {
  for (const auto& file : files) {
    const std::string& hash = file->tokenizer_hash();
    if (hash.size() == 32 && hash.find_first_not_of("0123456789abcdef") == std::string::npos) return hash;
  }
  return "";
}

std::string corpus_hash(const std::vector<std::string>& file_hashes, const std::vector<double>& weights,
                        LongDocuments longer) {
  // Weights are shares: scaling all of them changes nothing in a run.
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::string text;
  for (std::size_t i = 0; i < file_hashes.size(); ++i) {
    text += fmt::format("{} {:.12g}\n", file_hashes[i], weights[i] / sum);
  }
  if (longer != LongDocuments::cut) text += fmt::format("longer {}\n", name_in(long_documents_names, longer));
  return hash_bytes(text);
}

void Corpus::cut_at_documents(std::int64_t seq_len) {
  ensure(seq_len >= 1, "a window has at least one token");
  std::vector<WholeWindows>& files_windows = whole_windows[seq_len];
  files_windows.clear();
  for (const auto& file : files) {
    const auto offsets =
        file->document_offsets().first(static_cast<std::size_t>(file->first_validation_document()) + 1);
    if (offsets.back() == 0) fail(ExitCode::data, "{} has no tokens for training, only for validation", file->path());
    WholeWindows& whole = files_windows.emplace_back();
    whole.documents = std::ssize(offsets) - 1;
    for (std::size_t document = 0; document + 1 < offsets.size(); ++document) {
      add_document(whole, {offsets[document], offsets[document + 1] - offsets[document]}, seq_len, longer);
    }
    if (!whole.windows.empty()) continue;
    fail(ExitCode::data,
         "{}: each of its documents has more than training.seq_len = {} tokens, and data.longer drop leaves none; use "
         "a longer seq_len, or data.longer truncate",
         file->path(), seq_len);
  }
}

WindowRange Corpus::window(std::size_t file, std::int64_t window, std::int64_t seq_len) const {
  const auto whole = whole_windows.find(seq_len);
  if (whole == whole_windows.end()) return {window * seq_len, seq_len};
  return whole->second[file].windows[static_cast<std::size_t>(window)];
}

std::int64_t Corpus::window_count(std::size_t number, std::int64_t seq_len, std::int64_t* dropped) const {
  ensure(seq_len >= 1, "a window has at least one token");
  if (const auto whole = whole_windows.find(seq_len); whole != whole_windows.end()) {
    if (dropped) *dropped = 0;
    return std::ssize(whole->second[number].windows);
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
  // The last token is only used as a label.
  if (dropped) *dropped = tokens - 1 - windows * seq_len;
  return windows;
}

}  // namespace ringtrain
