// The token files of a data config, open once per process and shared by its ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "framework/config/choices.h"

namespace ringtrain {

struct DataConfig;  // framework/config/config.h

/// Returns one hash over what decides the order of the data: training files' hashes, the shares of their weights, and
/// which tokens of long documents are left out.
std::string corpus_hash(const std::vector<std::string>& file_hashes, const std::vector<double>& weights,
                        LongDocuments longer);

/// A training window's place in its file. Fewer tokens than a sequence has: the others are filled up, and no targets.
struct WindowRange {
  std::int64_t begin = 0, tokens = 0;
};

/// The windows of a file's training part that hold its documents whole, but for those longer than a window.
struct WholeWindows {
  std::vector<WindowRange> windows;
  std::int64_t documents = 0, longer = 0;  // of the training part, and those of them longer than a window
  std::int64_t lost_tokens = 0;            // which no window holds
};

/// The files of a data config, open once per process and shared by its ranks.
struct Corpus {
  std::vector<std::unique_ptr<TokenFile>> files;
  std::unique_ptr<TokenFile> validation_file;  // null: files[0] serves
  std::vector<double> weights;
  LongDocuments longer = LongDocuments::cut;  // never automatic
  /// By seq_len, [files] of cut_at_documents().
  std::map<std::int64_t, std::vector<WholeWindows>> whole_windows;

  /// Cuts each training part into windows that hold documents whole, if they have at most seq_len tokens: one after the
  /// other, as many as fit. `longer` says what the windows have of other documents. Until then windows of this length
  /// are seq_len tokens each. Throws Error(data) if a file has none.
  void cut_at_documents(std::int64_t seq_len);
  /// Returns the number of windows of a file's training part, at least 1 (else Error(data)); tells into *dropped (may
  /// be null) how many tail tokens no window holds, the last label not counted.
  std::int64_t window_count(std::size_t file, std::int64_t seq_len, std::int64_t* dropped) const;
  /// Returns where a window of a file's training part lies.
  WindowRange window(std::size_t file, std::int64_t window, std::int64_t seq_len) const;
  /// Returns corpus_hash() of these files: what a resume compares.
  std::string hash() const;
  /// Returns the identity of the tokenizer whose ids these are; "" if no file says it.
  std::string tokenizer_hash() const;
  /// Returns the file that evaluations score (train/evaluation/scored_part.h: which part of it).
  const TokenFile& validation() const { return validation_file ? *validation_file : *files[0]; }
};
/// Returns the token file of a name, open.
using TokenFileOpener = std::function<std::unique_ptr<TokenFile>(const std::string& name)>;
/// Returns what an opener makes of a name. Throws Error(usage) if that is nothing.
std::unique_ptr<TokenFile> opened_by(const TokenFileOpener& open, const std::string& name);
/// Opens and verifies all files; Error(data) if one does not fit the model's vocabulary. open: what the config's names
/// stand for.
Corpus open_corpus(const DataConfig& config, std::int64_t vocab_size, const TokenFileOpener& open = TokenFile::open);

}  // namespace ringtrain
