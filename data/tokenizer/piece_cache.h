// A thread's cache of pieces: texts repeat their words, and a lookup is far cheaper than merging. The table has a fixed
// size, and a new piece replaces the one in its slot; the result of a lookup does not depend on the cache's content. It
// holds only short pieces of few tokens: an entry is 32 bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace ringtrain {

class PieceCache {
 public:
  static constexpr std::size_t max_bytes = 15, max_tokens = 3;

  /// A piece of at most max_bytes bytes, in a form that is fast to compare.
  struct Key {
    std::uint64_t low = 0, high = 0;  // its bytes, then zeros; the last byte is its length
  };
  /// Returns the key of a piece. readable: the number of readable bytes from its start.
  static Key key_of(std::string_view piece, std::size_t readable) {
    Key key;
    if (readable >= 16) {
      std::memcpy(&key.low, piece.data(), 8);
      std::memcpy(&key.high, piece.data() + 8, 8);
      const std::size_t bits = piece.size() * 8;
      key.low &= bits >= 64 ? ~0ull : (1ull << bits) - 1;
      key.high &= bits <= 64 ? 0 : (1ull << (bits - 64)) - 1;
    } else {
      std::memcpy(&key.low, piece.data(), std::min<std::size_t>(8, piece.size()));
      if (piece.size() > 8) std::memcpy(&key.high, piece.data() + 8, piece.size() - 8);
    }
    key.high |= static_cast<std::uint64_t>(piece.size()) << 56;
    return key;
  }

  struct Entry {
    Key key;  // all zeros: empty; no piece has this key
    std::int32_t count = 0;
    std::int32_t tokens[max_tokens] = {};
  };

  PieceCache() : entries_(std::size_t{1} << slot_bits) {}
  /// Returns the slot of a key: its entry, or the one that it would replace.
  Entry& at(const Key& key) {
    const std::uint64_t both = (key.low ^ (key.high * 0x9E3779B97F4A7C15ull)) * 0xD6E8FEB86659FD93ull;
    return entries_[(both ^ both >> 32) * 0xD6E8FEB86659FD93ull >> (64 - slot_bits)];
  }
  static bool holds(const Entry& entry, const Key& key) {
    return entry.key.low == key.low && entry.key.high == key.high;
  }
  /// Stores these tokens in an entry if they fit. Returns whether they do.
  static bool put(Entry& entry, const Key& key, std::span<const std::int32_t> tokens) {
    if (tokens.size() > max_tokens) return false;
    entry.key = key;
    entry.count = static_cast<std::int32_t>(tokens.size());
    std::ranges::copy(tokens, entry.tokens);
    return true;
  }

 private:
  static constexpr int slot_bits = 16;  // 2 MiB
  std::vector<Entry> entries_;
};

}  // namespace ringtrain
