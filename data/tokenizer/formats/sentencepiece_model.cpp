#include "data/tokenizer/formats/sentencepiece_model.h"

#include <cstring>

#include "data/tokenizer/formats/pieces.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

constexpr std::size_t max_pieces = 1 << 22;

/// One field of a protocol buffer's message (protobuf.dev, "Encoding").
struct Field {
  std::uint32_t number = 0;
  std::uint64_t value = 0;  // of a varint or a fixed number
  std::string_view bytes;   // of what has a length
};

/// Walks the fields of a message.
class Message {
 public:
  Message(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  /// Reads the next field. Returns false at the end.
  bool next(Field& field) {
    if (bytes_.empty()) return false;
    const std::uint64_t key = varint();
    field = Field{};
    field.number = static_cast<std::uint32_t>(key >> 3);
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = fixed(4);
        break;
      default:
        damaged();
    }
    return true;
  }

 private:
  [[noreturn]] void damaged() const {
    fail(ExitCode::data, "{} is no tokenizer file that this program knows, or a damaged SentencePiece model", path_);
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) damaged();
    const std::string_view taken = bytes_.substr(0, static_cast<std::size_t>(count));
    bytes_.remove_prefix(taken.size());
    return taken;
  }
  std::uint64_t fixed(std::size_t count) {
    std::uint64_t value = 0;
    std::memcpy(&value, take(count).data(), count);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }

  std::string_view bytes_;
  const std::string& path_;
};

Piece read_piece(std::string_view bytes, const std::string& path) {
  Piece piece;
  Message message(bytes, path);
  for (Field field; message.next(field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) {
      const auto bits = static_cast<std::uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, sizeof bits);
    }
    if (field.number == 3) piece.type = field.value;
  }
  return piece;
}

/// What of the settings matters to encoding.
struct Settings {
  std::uint64_t model_type = 1;  // 1 unigram, 2 BPE
  bool byte_fallback = false;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  bool whitespace_as_suffix = false, charsmap = false;
  std::string normaliser;
};

void read_trainer(std::string_view bytes, const std::string& path, Settings& settings) {
  Message message(bytes, path);
  for (Field field; message.next(field);) {
    if (field.number == 3) settings.model_type = field.value;
    if (field.number == 24) settings.whitespace_as_suffix = field.value != 0;
    if (field.number == 35) settings.byte_fallback = field.value != 0;
  }
}

void read_normaliser(std::string_view bytes, const std::string& path, Settings& settings) {
  Message message(bytes, path);
  for (Field field; message.next(field);) {
    if (field.number == 1) settings.normaliser = field.bytes;
    if (field.number == 2) settings.charsmap = !field.bytes.empty();
    if (field.number == 3) settings.add_dummy_prefix = field.value != 0;
    if (field.number == 4) settings.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) settings.escape_whitespaces = field.value != 0;
  }
}

void check(const Settings& settings, const std::string& path) {
  const auto refuse = [&](const char* what) {
    fail(ExitCode::data, "{} {}, which this program does not do; see docs/hugging-face.md for what it does", path,
         what);
  };
  if (settings.model_type != 2) refuse("is no BPE model (its model_type is another)");
  if (settings.charsmap) refuse(("normalises by a table (" + settings.normaliser + ")").c_str());
  if (settings.remove_extra_whitespaces) refuse("removes extra white space");
  if (!settings.escape_whitespaces) refuse("does not escape white space");
  if (settings.whitespace_as_suffix) refuse("treats white space as a suffix");
}

}  // namespace

BpeSpec read_sentencepiece_model(std::string_view bytes, const std::string& path) {
  std::vector<Piece> pieces;
  Settings settings;
  Message model(bytes, path);
  for (Field field; model.next(field);) {
    if (field.number == 1) pieces.push_back(read_piece(field.bytes, path));
    if (field.number == 2) read_trainer(field.bytes, path, settings);
    if (field.number == 3) read_normaliser(field.bytes, path, settings);
    if (pieces.size() > max_pieces) fail(ExitCode::data, "{} has more than {} pieces", path, max_pieces);
  }
  if (pieces.empty()) fail(ExitCode::data, "{} holds no pieces: it is no tokenizer file that this program knows", path);
  check(settings, path);
  return spec_of_pieces(pieces, {.byte_fallback = settings.byte_fallback, .space_in_front = settings.add_dummy_prefix},
                        path);
}

}  // namespace ringtrain
