// Writes a token file document by document, with a buffer of fixed size. The file is written under a temporary name and
// gets its own name only when it is complete: fsync, hash, manifest, rename, fsync of the folder. An existing file is
// never touched, and only one process at a time writes a path (framework/output/output_file.h). Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/output/output_file.h"
#include "framework/storage/hdf5_file.h"

namespace ringtrain {

/// What must be known before the first token. A token file's datasets are contiguous, so their sizes are fixed first.
struct TokenFilePlan {
  std::int64_t vocab_size = 0;
  std::int64_t tokens = 0;  // including one end token per document
  std::int64_t documents = 0;
  std::int64_t first_validation_document = 0;  // documents before it are for training
  bool weights = false;
  std::string source_hashes;  // the attribute of that name, or a dataset of its bytes if it is too long
  Hdf5Attributes attributes;  // for other programs, which open the file as HDF5; in addition to those of the format
  std::int32_t end_of_document = -1;             // the token that ends a document; -1: the vocabulary's last
  std::optional<std::int32_t> document_start{};  // the token that begins each document; -1: none; nothing: unknown
  std::vector<std::int64_t> document_bytes{};    // of the text of each document; empty: unknown
  std::string tokenizer_hash{};                  // the tokenizer's identity; "": unknown
  std::optional<std::int64_t> byte_count{};      // of the text of all tokens; nothing: unknown
};

class TokenFileWriter {
 public:
  /// Throws Error(usage) if `path` exists, another process is writing it, its folder is not writable, or the disk does
  /// not have enough space. A writer that does not finish leaves nothing behind.
  TokenFileWriter(const std::string& path, const TokenFilePlan& plan);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  /// Adds tokens to the current document; weights has the same number, or none if the plan has none.
  void append(std::span<const std::int32_t> tokens, std::span<const float> weights = {});
  /// Adds the end token.
  void end_document(float weight = 1);
  /// Seals the file, which must have the planned content. Returns its hash.
  std::string finish();

  /// Throws Error(usage) unless a new file can be made at `path`. Programs check this before they start.
  static void check_output(const std::string& path);

 private:
  void put(std::int32_t token, float weight);
  void flush();

  OutputFile output_, manifest_;
  TokenFilePlan plan_;
  Hdf5Writer file_;
  std::int64_t written_ = 0, documents_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<float> weights_;
  std::vector<std::uint16_t> narrow_;
  std::vector<std::int64_t> offsets_;
};

}  // namespace ringtrain
