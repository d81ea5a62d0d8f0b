// Stores documents on the disk in the order in which they are tokenized, until their number and order are known: a
// token file's datasets are laid out before its documents are shuffled and written. The file has no name, so nothing of
// it remains, however the process ends.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "framework/storage/files.h"

namespace ringtrain {

/// Used by one thread.
class TokenSpill {
 public:
  /// neighbor: the path of the output; the spill is in the same folder. Throws Error(usage) if it cannot be made.
  TokenSpill(const std::string& neighbor, std::int64_t vocab_size);

  /// Adds tokens to the current document; weights has the same number, or none for 1 each.
  void append(std::span<const std::int32_t> tokens, std::span<const float> weights, std::int64_t text_bytes);
  void end_document();
  /// Discards the current document.
  void drop_document();

  std::int64_t documents() const { return static_cast<std::int64_t>(ends_.size()); }
  std::int64_t tokens() const { return ends_.empty() ? 0 : ends_.back(); }
  std::int64_t length(std::int64_t document) const { return end_of(document) - begin_of(document); }
  std::int64_t text_bytes(std::int64_t document) const { return bytes_[document]; }
  std::int64_t current_bytes() const { return current_bytes_; }  // of the current document's text
  /// Returns whether any token has a weight below 1.
  bool has_weights() const { return has_weights_; }
  /// Returns how many tokens of whole documents have weight 0.
  std::int64_t weightless_tokens() const { return weightless_tokens_; }

  /// Called with (tokens, weights) for a document in slices; weights are empty unless has_weights().
  using Body = std::function<void(std::span<const std::int32_t> tokens, std::span<const float> weights)>;
  void for_document(std::int64_t document, const Body& body);

 private:
  std::int64_t begin_of(std::int64_t document) const {
    return document == 0 ? 0 : ends_[static_cast<std::size_t>(document) - 1];
  }
  std::int64_t end_of(std::int64_t document) const { return ends_[document]; }
  void flush();

  /// The bit of a token on the disk that marks weight 0; the other bits are its id.
  static constexpr std::uint32_t weightless = 1u << 31;

  File file_;
  std::int64_t written_ = 0, current_bytes_ = 0;
  std::int64_t weightless_tokens_ = 0, current_weightless_ = 0;
  bool has_weights_ = false;
  std::vector<std::uint32_t> buffer_;
  std::vector<std::int64_t> ends_, bytes_;
};

}  // namespace ringtrain
