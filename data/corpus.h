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

/// Returns one hash of everything that decides the order of the data: training files' hashes, the shares of their
/// weights, and which tokens of long documents are left out.
std::string corpus_hash(const std::vector<std::string>& file_hashes, const std::vector<double>& weights,
                        LongDocuments longer);

/// A training window's range in its file. If it has fewer tokens than a sequence, padding without targets is added.
struct WindowRange {
  std::int64_t begin = 0, tokens = 0;
};

/// The windows of a file's training part that hold its documents whole, except documents longer than a window.
struct WholeWindows {
  std::vector<WindowRange> windows;
  std::int64_t documents = 0, longer = 0;  // in the training part; longer: those longer than a window
  std::int64_t lost_tokens = 0;            // in no window
};

/// The files of a data config, open once per process and shared by its ranks.
struct Corpus {
  std::vector<std::unique_ptr<TokenFile>> files;
  std::unique_ptr<TokenFile> validation_file;  // null: files[0] is used
  std::vector<double> weights;
  LongDocuments longer = LongDocuments::cut;  // never automatic
  /// By seq_len: the results of cut_at_documents(), [files].
  std::map<std::int64_t, std::vector<WholeWindows>> whole_windows;

  /// Cuts each training part into windows that hold whole documents of at most seq_len tokens, in order, as many as
  /// fit. `longer` says which tokens of other documents the windows hold. Without this call, windows of this length
  /// have seq_len tokens each. Throws Error(data) if a file has no window.
  void cut_at_documents(std::int64_t seq_len);
  /// Returns the number of windows of a file's training part, at least 1 (otherwise Error(data)). Sets *dropped (may be
  /// null) to the number of tail tokens that are in no window, without the last label.
  std::int64_t window_count(std::size_t file, std::int64_t seq_len, std::int64_t* dropped) const;
  /// Returns the range of a window of a file's training part.
  WindowRange window(std::size_t file, std::int64_t window, std::int64_t seq_len) const;
  /// Returns corpus_hash() of these files, which a resume compares.
  std::string hash() const;
  /// Returns the identity of the tokenizer that made these ids; "" if no file names it.
  std::string tokenizer_hash() const;
  /// Returns the file that evaluations score (train/evaluation/scored_part.h selects the part).
  const TokenFile& validation() const { return validation_file ? *validation_file : *files[0]; }
};
/// Returns the open token file for a name.
using TokenFileOpener = std::function<std::unique_ptr<TokenFile>(const std::string& name)>;
/// Returns the opener's file for a name. Throws Error(usage) if it is null.
std::unique_ptr<TokenFile> opened_by(const TokenFileOpener& open, const std::string& name);
/// Opens and verifies all files; Error(data) if one does not fit the model's vocabulary. open: opens the files that the
/// config names.
Corpus open_corpus(const DataConfig& config, std::int64_t vocab_size, const TokenFileOpener& open = TokenFile::open);

}  // namespace ringtrain
