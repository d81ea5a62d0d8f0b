// From token files to batches. A training sample is a window of seq_len tokens of a file's training part (plus the
// label behind it); windows do not overlap; the order is a counter-based permutation per epoch, the same on every mesh.
// Each rank reads only its own positions. Used by one rank's thread; no communication.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/token_file.h"
#include "framework/config/config.h"

namespace ringtrain {

/// One sample of the run: sequence i of all that the run consumes.
struct Sample {
  int file = 0;
  std::int64_t window = 0;        // within the file
  std::int64_t epoch = 0;         // of that file
  std::int64_t global_index = 0;  // window counted through all files, in config order: what metrics call a sample
};

/// Which window is the i-th of the run: pure function of (seed, i, the files' window counts and weights).
class Sampler {
 public:
  Sampler(std::vector<std::int64_t> windows, std::vector<double> weights, std::uint64_t seed);
  Sample sample(std::int64_t i) const;
  /// Return the windows of all files.
  std::int64_t windows() const;

 private:
  std::vector<std::int64_t> windows_, first_window_;
  std::vector<int> pattern_;  // which file each slot of a period draws from
  std::vector<std::vector<std::int64_t>>
      before_;  // [file][slot] slots of the file before this one; [period] at the end
  std::uint64_t seed_;
};

/// Return one hash over training files' hashes and weights, of which the shares count.
std::string corpus_hash(const std::vector<std::string>& file_hashes, const std::vector<double>& weights);

/// The files of a data config, open once per process and shared by its ranks.
struct Corpus {
  std::vector<std::unique_ptr<TokenFile>> files;
  std::unique_ptr<TokenFile> validation_file;  // null: files[0] serves
  std::vector<double> weights;
  /// Return one hash over all training files' hashes and weights: what a resume compares.
  std::string hash() const;
  /// Return the identity of the tokenizer whose ids these are; "" if no file says it.
  std::string tokenizer_hash() const;
  /// Return the file that evaluations score (train/evaluation/scored_part.h: which part of it).
  const TokenFile& validation() const { return validation_file ? *validation_file : *files[0]; }
};
/// Opens and verifies all files; Error(data) if one does not fit the model's vocabulary.
Corpus open_corpus(const DataConfig& config, std::int64_t vocab_size);
/// Return the number of windows of a file's training part, at least 1 (else Error(data)), and tell into *dropped (may
/// be null) how many tail tokens no window holds, the last label not counted.
std::int64_t window_count(const TokenFile& file, std::int64_t seq_len, std::int64_t* dropped);

/// How a rank's shard of every sequence is cut.
struct ShardSpec {
  Layout layout = Layout::contiguous;
  int ring_size = 1;
  int ring_rank = 0;
};

/// Fills batch with this rank's shard of the samples' windows. Packing documents: positions restart at each document
/// and at the window's start, the first token of a document is no target, has_documents is true.
void load_windows(Batch& batch, const Corpus& corpus, std::span<const Sample> samples, std::int64_t seq_len,
                  Packing packing, const ShardSpec& shard);

/// Return whether a window has a token to learn from, that is whether load_windows finds a target in it. Reads the
/// file's weights from the window's first token to its first target, no token.
bool window_has_target(const TokenFile& file, std::int64_t window, std::int64_t seq_len, Packing packing);

/// Fills batch with this rank's shard of one sequence of tokens: positions from 0, one document, no labels.
void load_sequence(Batch& batch, std::span<const std::int32_t> tokens, const ShardSpec& shard);

/// Fills batch with one token at a position, the same on every rank: what no ring cuts. No label.
void load_token(Batch& batch, std::int32_t token, std::int64_t position, const ShardSpec& shard);

/// Fills batch with this rank's shard of one span of `length` tokens from `begin` for each entry, positions from 0, one
/// document; labels are the next tokens, kept only for the last `targets` positions (weights as in the file).
void load_spans(Batch& batch, const TokenFile& file, std::span<const std::int64_t> begins, std::int64_t length,
                std::int64_t targets, const ShardSpec& shard);

}  // namespace ringtrain
