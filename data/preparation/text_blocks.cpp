#include "data/preparation/text_blocks.h"

#include "framework/error.h"

namespace ringtrain {

namespace {
constexpr std::size_t read_bytes = 1 << 18;
constexpr std::size_t text_block_bytes = 1 << 20;
}  // namespace

bool is_json_lines(std::string_view path) {
  const std::string_view name = without_compression(path);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

std::optional<TextBlock> BlockReader::next() {
  while (source_ < sources_.size()) {
    if (!stream_) {
      stream_ = TextStream::open(sources_[source_].path);
      buffer_.clear();
      begin_ = 0;
      line_ = 0;
      at_end_ = begun_ = false;
    }
    if (is_json_lines(sources_[source_].path)) {
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

/// Reads until the buffer holds `wanted` bytes or the stream ends. Returns whether it holds any.
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
  block.text = buffer_.substr(begin_, bytes);
  begin_ += bytes;
  return block;
}

std::optional<TextBlock> BlockReader::next_line() {
  const std::string& path = sources_[source_].path;
  std::size_t looked_at = 0;
  while (true) {
    fill(looked_at + 1);
    const std::string_view held = std::string_view(buffer_).substr(begin_);
    const std::size_t end = held.find('\n', looked_at);
    if (end == std::string_view::npos && !at_end_) {
      if (held.size() > max_block_bytes) {
        fail(ExitCode::data, "{}:{}: a line of more than {} bytes; cut its document in two", path, line_ + 1,
             max_block_bytes);
      }
      looked_at = held.size();
      continue;
    }
    if (held.empty()) return std::nullopt;
    TextBlock block = take(end == std::string_view::npos ? held.size() : end + 1);
    block.json = true;
    block.line = ++line_;
    while (block.text.ends_with('\n') || block.text.ends_with('\r')) block.text.pop_back();
    if (block.text.find_first_not_of(" \t") != std::string::npos) return block;
    looked_at = 0;
  }
}

TextBlock BlockReader::next_text() {
  const bool begins = !begun_;
  begun_ = true;
  for (std::size_t wanted = text_block_bytes;; wanted *= 2) {
    fill(wanted + 1);
    const std::string_view held = std::string_view(buffer_).substr(begin_);
    std::size_t end = held.size();
    if (held.size() > wanted) {
      end = tokenizer_.find_cut(held.substr(0, wanted));
      if (end == 0 && wanted < max_block_bytes) continue;
      if (end == 0) {
        fail(ExitCode::data,
             "{}: {} bytes in a row hold no place where a text may be cut for this tokenizer; split the file",
             sources_[source_].path, wanted);
      }
    }
    TextBlock block = take(end);
    block.begins = begins;
    block.ends = at_end_ && begin_ == buffer_.size();
    return block;
  }
}

}  // namespace ringtrain
