// A thread's memory of the pieces it has seen: texts repeat their words, and looking one up is far cheaper than merging
// it. A table of fixed size, where a piece replaces the one that had its place; what a lookup returns does not depend
// on what the cache holds. Short pieces of few tokens only: an entry is 32 bytes.
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

  /// A piece of at most max_bytes bytes, as the cache compares it.
  struct Key {
    std::uint64_t low = 0, high = 0;  // its bytes, then zeros; the last byte is its length
  };
  /// Returns the key of a piece. readable: how many bytes may be read from its start on.
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
    Key key;  // all zeros: empty, as no piece is
    std::int32_t count = 0;
    std::int32_t tokens[max_tokens] = {};
  };

  PieceCache() : entries_(std::size_t{1} << slot_bits) {}
  /// Returns the place of a key: its entry, or the one that it would replace.
  Entry& at(const Key& key) {
    const std::uint64_t both = (key.low ^ (key.high * 0x9E3779B97F4A7C15ull)) * 0xD6E8FEB86659FD93ull;
    return entries_[(both ^ both >> 32) * 0xD6E8FEB86659FD93ull >> (64 - slot_bits)];
  }
  static bool holds(const Entry& entry, const Key& key) {
    return entry.key.low == key.low && entry.key.high == key.high;
  }
  /// Returns whether an entry can hold these tokens, and has them then.
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
