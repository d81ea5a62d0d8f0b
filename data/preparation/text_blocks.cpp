#include "data/preparation/text_blocks.h"

#include <algorithm>

#include "framework/error.h"

namespace ringtrain {

constexpr std::size_t read_bytes = 1 << 18;
constexpr std::size_t text_block_bytes = 1 << 20;

std::optional<TextBlock> BlockReader::next() {
  while (source_ < sources_.size()) {
    if (!stream_) {
      stream_ = TextStream::open(sources_[source_].path);
      buffer_.clear();
      begin_ = 0;
      line_ = 0;
      at_end_ = begun_ = false;
    }
    if (line_end_ > 0) return next_text();  // the next part of a long line
    if (sources_[source_].lines) {
      if (std::optional<TextBlock> block = next_line()) return block;
    } else if (fill(1) || !begun_) {
      return next_text();
    }
    close();
  }
  return std::nullopt;
}

void BlockReader::close() {
  if (stream_->hash() != sources_[source_].hash) {
    fail(ExitCode::data, "{} changed while it was being read; run prepare again", sources_[source_].path);
  }
  bytes_before_ += stream_->file_bytes_read();
  stream_.reset();
  ++source_;
}

/// Reads until the buffer has `wanted` bytes or the stream ends. Returns whether it has any.
bool BlockReader::fill(std::size_t wanted) {
  if (begin_ > 0 && (begin_ == buffer_.size() || begin_ >= text_block_bytes)) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  while (!at_end_ && buffer_.size() - begin_ < wanted) {
    const std::size_t had = buffer_.size();
    buffer_.resize(had + read_bytes);
    const std::size_t read = stream_->read(buffer_.data() + had, read_bytes);
    buffer_.resize(had + read);
    at_end_ = read == 0;
  }
  return buffer_.size() > begin_;
}

TextBlock BlockReader::take(std::size_t bytes) {
  TextBlock block;
  block.source = source_;
  block.line = line_;
  block.text = buffer_.substr(begin_, bytes);
  begin_ += bytes;
  return block;
}

/// Returns the part of the current text, or of the file, that is in the buffer.
std::string_view BlockReader::held() const {
  const std::size_t end = line_end_ > 0 ? text_end_ : buffer_.size();
  return std::string_view(buffer_).substr(begin_, end - begin_);
}

std::optional<TextBlock> BlockReader::next_line() {
  const std::string& path = sources_[source_].path;
  std::size_t looked_at = 0;
  while (true) {
    fill(looked_at + 1);
    const std::size_t end = held().find('\n', looked_at);
    const std::size_t bytes = end == std::string_view::npos ? held().size() : end + 1;
    if (bytes > max_line_bytes) {
      fail(ExitCode::data, "{}:{}: the line has more than {} bytes; split its document in two", path, line_ + 1,
           max_line_bytes);
    }
    if (end == std::string_view::npos && !at_end_) {
      looked_at = bytes;
      continue;
    }
    if (bytes == 0) return std::nullopt;
    ++line_;
    if (bytes > max_block_bytes) return next_long_line(bytes);
    TextBlock block = take(bytes);
    block.json = true;
    while (block.text.ends_with('\n') || block.text.ends_with('\r')) block.text.pop_back();
    if (block.text.find_first_not_of(" \t") != std::string::npos) return block;
    looked_at = 0;
  }
}

/// Extracts the text from a line of this many bytes, and returns its first block.
TextBlock BlockReader::next_long_line(std::size_t bytes) {
  line_end_ = begin_ + bytes;
  std::int64_t replaced = 0;
  std::string broken;
  try {
    const LineTexts texts = take_texts({buffer_.data() + begin_, bytes}, rules_);
    prompt_bytes_ = texts.prompt_bytes;
    text_end_ = begin_ + texts.bytes;
    replaced = texts.replaced;
  } catch (const std::exception& error) {
    broken = error.what();
    text_end_ = begin_;
  }
  begun_ = false;
  TextBlock block = next_text();
  block.replaced = replaced;
  block.broken = std::move(broken);
  return block;
}

TextBlock BlockReader::next_text() {
  const bool begins = !begun_, is_line = line_end_ > 0;
  begun_ = true;
  for (std::size_t wanted = text_block_bytes;; wanted *= 2) {
    if (!is_line) fill(wanted + 1);
    std::size_t end = held().size();
    if (end > wanted) {
      end = tokenizer_.find_cut(held().substr(0, wanted));
      if (end == 0 && wanted < max_block_bytes) continue;
      if (end == 0) {
        fail(ExitCode::data, "{}{}: this tokenizer cannot cut {} bytes of text anywhere; split the document",
             sources_[source_].path, is_line ? fmt::format(":{}", line_) : "", wanted);
      }
    }
    const bool ends = is_line ? end == held().size() : at_end_ && end == held().size();
    TextBlock block = take(end);
    block.begins = begins;
    block.ends = ends;
    block.prompt_bytes = std::min(end, prompt_bytes_);
    prompt_bytes_ -= block.prompt_bytes;
    if (is_line && ends) {
      begin_ = line_end_;
      text_end_ = line_end_ = 0;
    }
    return block;
  }
}

}  // namespace ringtrain
