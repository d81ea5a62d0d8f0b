// Reads source files as blocks of text that can be tokenized independently, in any order and by any thread: lines of
// JSONL files, and texts that are cut only where a cut changes no token. Memory does not grow with the files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/preparation/json_documents.h"
#include "data/preparation/sources.h"
#include "data/preparation/text_stream.h"
#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

/// The longest block: a line of JSONL that is passed on unchanged, or a text without a position where it can be cut.
inline constexpr std::size_t max_block_bytes = std::size_t{16} << 20;
/// The longest line of JSONL. If a line is longer than max_block_bytes, the reader itself extracts the text, in place,
/// and cuts it into blocks. This needs the memory of the line while it is read, at most twice its bytes, and the
/// blocks.
inline constexpr std::size_t max_line_bytes = std::size_t{256} << 20;

struct TextBlock {
  std::size_t source = 0;  // index into the list of sources
  std::string text;
  bool json = false;                // one unchanged line of JSONL: a whole document
  std::int64_t line = 0;            // of JSONL, from 1; 0: not JSONL
  bool begins = true, ends = true;  // whether it begins and ends its document
  std::size_t prompt_bytes = 0;     // at the text's beginning; they are not learned
  std::int64_t replaced = 0;        // unpaired surrogates of a long line
  std::string broken;               // the problem of a line, "" if none is known; the reader only checks long ones
};

/// Reads the blocks of all sources, in their order. Used by one thread.
class BlockReader {
 public:
  /// All must outlive the reader.
  BlockReader(const std::vector<Source>& sources, const Tokenizer& tokenizer, const JsonRules& rules)
      : sources_(sources), tokenizer_(tokenizer), rules_(rules) {}
  /// Returns the next block, or nothing after the last. Throws Error(data) that names the file (and line) if it is
  /// damaged, has changed since it was found, or contains a stretch beyond max_block_bytes or a line beyond
  /// max_line_bytes.
  std::optional<TextBlock> next();
  /// Returns how many bytes of the source files have been read.
  std::int64_t bytes_read() const { return bytes_before_ + (stream_ ? stream_->file_bytes_read() : 0); }

 private:
  bool fill(std::size_t wanted);
  std::string_view held() const;
  std::optional<TextBlock> next_line();
  TextBlock next_long_line(std::size_t bytes);
  TextBlock next_text();
  TextBlock take(std::size_t bytes);
  void close();

  const std::vector<Source>& sources_;
  const Tokenizer& tokenizer_;
  const JsonRules& rules_;
  std::unique_ptr<TextStream> stream_;
  std::size_t source_ = 0;
  std::int64_t bytes_before_ = 0, line_ = 0;
  std::string buffer_;
  std::size_t begin_ = 0;  // of the unread part of the buffer
  bool at_end_ = false;    // the stream has ended
  bool begun_ = false;     // a block of the current text was returned
  // For a long line whose text is being cut: the ends of the text and the line in the buffer (line_end_ is 0 if there
  // is none), and how much of the remaining text is prompt.
  std::size_t text_end_ = 0, line_end_ = 0, prompt_bytes_ = 0;
};

}  // namespace ringtrain
