#include "data/preparation/token_spill.h"

#include <unistd.h>

#include <algorithm>

namespace ringtrain {

constexpr std::size_t buffer_tokens = 1 << 18;

TokenSpill::TokenSpill(const std::string& neighbor, std::int64_t vocab_size) {
  ensure(vocab_size < std::int64_t{weightless}, "an id leaves room for a flag");
  const std::string path = unique_name(neighbor, "partial");
  file_ = File::create(path, ExitCode::usage);
  ::unlink(path.c_str());  // its content remains until it is closed
  buffer_.reserve(buffer_tokens);
}

void TokenSpill::append(std::span<const std::int32_t> tokens, std::span<const float> weights, std::int64_t text_bytes) {
  ensure(weights.empty() || weights.size() == tokens.size(), "a weight for every token, or none at all");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    auto token = static_cast<std::uint32_t>(tokens[i]);
    if (!weights.empty() && weights[i] == 0) {
      token |= weightless;
      has_weights_ = true;
      ++current_weightless_;
    }
    if (buffer_.size() == buffer_tokens) flush();
    buffer_.push_back(token);
  }
  current_bytes_ += text_bytes;
}

void TokenSpill::flush() {
  file_.write_at(written_ * std::int64_t{sizeof(std::uint32_t)}, buffer_.data(),
                 buffer_.size() * sizeof(std::uint32_t));
  written_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void TokenSpill::end_document() {
  ends_.push_back(written_ + static_cast<std::int64_t>(buffer_.size()));
  bytes_.push_back(current_bytes_);
  weightless_tokens_ += current_weightless_;
  current_bytes_ = current_weightless_ = 0;
}

void TokenSpill::drop_document() {
  current_bytes_ = current_weightless_ = 0;
  const std::int64_t kept = tokens();
  if (kept >= written_) {
    buffer_.resize(kept - written_);
  } else {
    buffer_.clear();
    written_ = kept;
  }
}

void TokenSpill::for_document(std::int64_t document, const Body& body) {
  if (!buffer_.empty()) flush();
  constexpr std::int64_t slice = 1 << 16;
  std::vector<std::uint32_t> raw(std::min(slice, length(document)));
  std::vector<std::int32_t> tokens(raw.size());
  std::vector<float> weights(has_weights_ ? raw.size() : 0);
  for (std::int64_t at = begin_of(document); at < end_of(document);) {
    const auto count = static_cast<std::size_t>(std::min(slice, end_of(document) - at));
    file_.read_at(at * std::int64_t{sizeof(std::uint32_t)}, raw.data(), count * sizeof(std::uint32_t));
    for (std::size_t i = 0; i < count; ++i) {
      tokens[i] = static_cast<std::int32_t>(raw[i] & ~weightless);
      if (has_weights_) weights[i] = raw[i] & weightless ? 0.0f : 1.0f;
    }
    body({tokens.data(), count}, {weights.data(), has_weights_ ? count : 0});
    at += static_cast<std::int64_t>(count);
  }
}

}  // namespace ringtrain
