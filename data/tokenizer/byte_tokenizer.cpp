#include "data/tokenizer/byte_tokenizer.h"

#include "framework/error.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

class ByteEncoder final : public Encoder {
 public:
  std::int64_t encode(std::string_view text, std::vector<std::int32_t>& ids, Preceding) override {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    ids.insert(ids.end(), bytes, bytes + text.size());
    return 0;
  }
};

class ByteTokenizer final : public Tokenizer {
 public:
  std::unique_ptr<Encoder> make_encoder(SpecialTokens) const override { return std::make_unique<ByteEncoder>(); }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) text += token_text(id);
    return text;
  }
  std::string token_text(std::int32_t id) const override {
    if (id < 0 || id >= byte_vocab_size) fail(ExitCode::data, "token {} is neither a byte nor 256", id);
    return id == ringtrain::end_of_document ? "" : std::string(1, static_cast<char>(id));
  }
  std::int64_t vocab_size() const override { return byte_vocab_size; }
  std::optional<std::int32_t> find_special(std::string_view) const override { return std::nullopt; }
  bool is_special(std::int32_t id) const override { return id == ringtrain::end_of_document; }
  std::optional<std::int32_t> end_of_document() const override { return ringtrain::end_of_document; }
  std::string_view kind() const override { return "bytes"; }
  const std::string& identity() const override { return identity_; }
  std::size_t find_cut(std::string_view text) const override { return text.size() / 2; }

 private:
  std::string identity_ = hash_bytes("bytes");
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace ringtrain
