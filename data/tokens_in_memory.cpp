#include "data/tokens_in_memory.h"

#include <algorithm>
#include <utility>

#include "framework/counted.h"
#include "framework/error.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

/// Throws Error(data) for invalid sizes that check_tokens() does not check.
void check_sizes(const std::string& name, const MemoryTokens& t) {
  if (t.vocab_size < 2 || t.vocab_size > INT32_MAX) {
    fail(ExitCode::data, "{}: a vocabulary must have 2 to {} tokens, but this one has {}", name, INT32_MAX,
         t.vocab_size);
  }
  if (!t.weights.empty() && t.weights.size() != t.tokens.size()) {
    fail(ExitCode::data, "{}: {} weights for {} tokens", name, t.weights.size(), t.tokens.size());
  }
  if (t.offsets.size() < 2) fail(ExitCode::data, "{}: it holds no document", name);
}

template <class T>
void add_to(Hasher& hasher, const std::vector<T>& values) {
  const std::int64_t size = std::ssize(values);
  hasher.update(&size, sizeof size);
  hasher.update(values.data(), values.size() * sizeof(T));
}

class TokensInMemory final : public TokenFile {
 public:
  TokensInMemory(const std::string& name, MemoryTokens tokens) : name_(name), memory_(std::move(tokens)) {
    check_sizes(name_, memory_);
    check_tokens(*this);
    if (first_validation_document() < 1) {
      fail(ExitCode::data, "{}: it has {}, {} of them for validation; leave at least one for training", name_,
           counted(std::ssize(memory_.offsets) - 1, "document"), memory_.validation_documents);
    }
    Hasher hasher;
    hasher.update(&memory_.vocab_size, sizeof memory_.vocab_size);
    hasher.update(&memory_.validation_documents, sizeof memory_.validation_documents);
    add_to(hasher, memory_.tokens);
    add_to(hasher, memory_.offsets);
    add_to(hasher, memory_.weights);
    hash_ = hasher.digest();
  }

  const std::string& path() const override { return name_; }
  std::int64_t vocab_size() const override { return memory_.vocab_size; }
  std::int32_t end_of_document() const override { return last_token(memory_.vocab_size); }
  const std::string& tokenizer_hash() const override { return no_tokenizer_; }
  double bytes_per_token(std::int64_t) const override { return 0; }
  std::int64_t token_count() const override { return std::ssize(memory_.tokens); }
  bool has_weights() const override { return !memory_.weights.empty(); }
  std::span<const std::int64_t> document_offsets() const override { return memory_.offsets; }
  std::int64_t first_validation_document() const override {
    return std::ssize(memory_.offsets) - 1 - memory_.validation_documents;
  }
  const std::string& hash() const override { return hash_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    std::copy_n(memory_.tokens.begin() + begin, out.size(), out.begin());
  }
  void read_weights(std::int64_t begin, std::span<float> out) const override {
    if (memory_.weights.empty()) {
      std::ranges::fill(out, 1.0F);
    } else {
      std::copy_n(memory_.weights.begin() + begin, out.size(), out.begin());
    }
  }

 private:
  std::string name_, hash_, no_tokenizer_;
  MemoryTokens memory_;
};

}  // namespace

std::unique_ptr<TokenFile> tokens_in_memory(const std::string& name, MemoryTokens tokens) {
  return std::make_unique<TokensInMemory>(name, std::move(tokens));
}

}  // namespace ringtrain
