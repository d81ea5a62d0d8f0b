// Pieces that are one token: most words of a text are, and one look into this table saves merging them. A flat table of
// the short ones, made once for a tokenizer, by what merging itself gives. Immutable then; used by several threads.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizer/piece_cache.h"

namespace ringtrain {

class WholePieces {
 public:
  using Key = PieceCache::Key;

  WholePieces() : WholePieces(0) {}
  /// most: how many pieces will be put.
  explicit WholePieces(std::size_t most) : entries_(std::bit_ceil(2 * most + 2)), mask_(entries_.size() - 1) {}
  /// piece: not empty, at most PieceCache::max_bytes bytes, and put for the first time.
  void put(std::string_view piece, std::int32_t token) {
    const Key key = PieceCache::key_of(piece, piece.size());
    std::size_t at = place_of(PieceCache::mixed(key));
    while (entries_[at].key.high != 0) at = (at + 1) & mask_;
    entries_[at] = {key, token};
  }
  /// Has what find() will read brought near, while other things are done.
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&entries_[place_of(hash)]); }
  /// Returns the token of a piece, -1 if it is not known to be one. hash: PieceCache::mixed(key).
  std::int32_t find(const Key& key, std::uint64_t hash) const {
    for (std::size_t at = place_of(hash);; at = (at + 1) & mask_) {
      const Entry& entry = entries_[at];
      if (entry.key.low == key.low && entry.key.high == key.high) return entry.token;
      if (entry.key.high == 0) return -1;  // of no piece: its length is in there
    }
  }

 private:
  struct Entry {
    Key key;
    std::int32_t token = -1;
  };
  std::size_t place_of(std::uint64_t hash) const { return static_cast<std::size_t>(hash) & mask_; }

  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
};

}  // namespace ringtrain
