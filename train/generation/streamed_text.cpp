#include "train/generation/streamed_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "framework/error.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

/// Returns how many bytes at the end of text begin an incomplete character.
std::size_t unfinished_bytes(std::string_view text) {
  while (!text.empty()) {
    const Utf8Sequence character = first_sequence(text);
    if (character.cut_off) return character.bytes;
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
  std::string storage;
  std::int64_t replaced = 0;
  return std::string(lossy_utf8(bytes, storage, &replaced));
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
