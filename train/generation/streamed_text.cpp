#include "train/generation/streamed_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "framework/error.h"

namespace ringtrain {

namespace {

/// What stands at the front of some bytes: a character, an ill-formed part, or the beginning of a character.
struct Character {
  enum class Kind { whole, ill_formed, unfinished } kind;
  std::size_t bytes;
};

/// Table 3-7 of the Unicode Standard.
Character character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Character::Kind::whole, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Character::Kind::ill_formed, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Character::Kind::unfinished, i};
    const unsigned char lowest = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char highest = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < lowest || byte(i) > highest) return {Character::Kind::ill_formed, i};
  }
  return {Character::Kind::whole, length};
}

/// Returns how many bytes at the end of text begin a character that is not whole yet.
std::size_t unfinished_bytes(std::string_view text) {
  while (!text.empty()) {
    const Character character = character_at(text);
    if (character.kind == Character::Kind::unfinished) return character.bytes;
    text.remove_prefix(character.bytes);
  }
  return 0;
}

}  // namespace

StreamedText::StreamedText(std::vector<std::string> stops, bool raw) : stops_(std::move(stops)), raw_(raw) {
  for (const std::string& stop : stops_) ensure(!stop.empty(), "a stop string has at least one byte");
}

std::string StreamedText::printable(std::string_view bytes) const {
  if (raw_) return std::string(bytes);
  std::string text;
  while (!bytes.empty()) {
    const Character character = character_at(bytes);
    if (character.kind == Character::Kind::whole) {
      text += bytes.substr(0, character.bytes);
    } else {
      text += "\xEF\xBF\xBD";
    }
    bytes.remove_prefix(character.bytes);
  }
  return text;
}

std::size_t StreamedText::held_for_a_stop() const {
  std::size_t held = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, pending_.size()); size > held; --size) {
      if (std::string_view(pending_).ends_with(std::string_view(stop).substr(0, size))) held = size;
    }
  }
  return held;
}

std::string StreamedText::add(std::string_view bytes) {
  ensure(!stopped_, "nothing comes after a stop string");
  pending_ += bytes;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    pending_.resize(first);
    return finish();
  }
  std::size_t ready = pending_.size() - held_for_a_stop();
  if (!raw_) ready -= unfinished_bytes(std::string_view(pending_).substr(0, ready));
  std::string text = printable(std::string_view(pending_).substr(0, ready));
  pending_.erase(0, ready);
  return text;
}

std::string StreamedText::finish() {
  return printable(std::exchange(pending_, ""));
}

}  // namespace ringtrain
