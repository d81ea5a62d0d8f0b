// Source files as blocks of text that can be tokenized one by one, in any order and by any thread: lines of JSONL
// files, and texts cut where a cut changes no token. Memory does not grow with the files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/preparation/sources.h"
#include "data/preparation/text_stream.h"
#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

/// The longest stretch that is held at once: a line of JSONL, or a text without a place where it can be cut.
inline constexpr std::size_t max_block_bytes = std::size_t{16} << 20;

/// Returns whether a file of this name holds a document a line (.jsonl, .ndjson, compressed or not).
bool is_json_lines(std::string_view path);

struct TextBlock {
  std::size_t source = 0;  // index into the list of sources
  std::string text;
  bool json = false;                // one line of JSONL: a whole document
  std::int64_t line = 0;            // of JSONL, from 1
  bool begins = true, ends = true;  // the document
};

/// Reads the blocks of all sources, in their order. Used by one thread.
class BlockReader {
 public:
  /// Both must outlive the reader.
  BlockReader(const std::vector<Source>& sources, const Tokenizer& tokenizer)
      : sources_(sources), tokenizer_(tokenizer) {}
  /// Returns the next block, nothing after the last. Throws Error(data) that names the file (and line) if it is
  /// damaged, changed since it was found, or holds a stretch beyond max_block_bytes.
  std::optional<TextBlock> next();
  /// Returns how many bytes of the source files have been read.
  std::int64_t bytes_read() const { return bytes_before_ + (stream_ ? stream_->file_bytes_read() : 0); }

 private:
  bool fill(std::size_t wanted);
  std::optional<TextBlock> next_line();
  TextBlock next_text();
  TextBlock take(std::size_t bytes);
  void close();

  const std::vector<Source>& sources_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<TextStream> stream_;
  std::size_t source_ = 0;
  std::int64_t bytes_before_ = 0, line_ = 0;
  std::string buffer_;
  std::size_t begin_ = 0;  // of what the buffer still holds
  bool at_end_ = false;    // the stream has no more
  bool begun_ = false;     // of the current text, a block was returned
};

}  // namespace ringtrain
