// Byte-pair merging (Sennrich, Haddow and Birch 2016, algorithm 1): of all adjacent symbols of a list that may be
// merged, the pair with the lowest rank is merged, the leftmost first, until none is left. Short lists are searched for
// their lowest rank repeatedly. Long ones keep the positions of each rank in a bucket, so even a megabyte of one letter
// takes about linear time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

namespace ringtrain {

/// A rule: left and right become product; the lower rank has precedence.
struct Merge {
  std::int32_t left = 0, right = 0, product = 0;
  std::uint32_t rank = 0;
};

/// The rules by pair, in one flat table. Immutable; used by several threads at once.
class MergeTable {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  struct Found {
    std::uint32_t rank = none;  // none: these two do not merge
    std::int32_t product = 0;
  };

  MergeTable() = default;
  /// If a pair has two rules, the last one counts, as in the reference programs. Symbols are not negative.
  explicit MergeTable(const std::vector<Merge>& merges);
  Found find(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) return {};
    const std::uint64_t key = key_of(left, right);
    for (std::size_t at = slot_of(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return {slot.rank, slot.product};
      if (slot.key == empty) return {};
    }
  }
  /// Returns the largest rank plus one.
  std::size_t ranks() const { return ranks_; }

 private:
  static constexpr std::uint64_t empty = ~0ull;
  struct Slot {
    std::uint64_t key = empty;
    std::uint32_t rank = none;
    std::int32_t product = 0;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15ull >> shift_);
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0, ranks_ = 0;
  int shift_ = 0;
};

/// Merges lists of symbols, with reused scratch memory. Used by one thread.
class Merger {
 public:
  /// The table must outlive the merger.
  explicit Merger(const MergeTable& table) : table_(table) {}
  /// Merges in place until no pair can be merged.
  void merge(std::vector<std::int32_t>& symbols);
  /// Returns how many pairs of long lists have been looked up so far, which determines their cost.
  std::int64_t lookups() const { return lookups_; }

 private:
  using Found = MergeTable::Found;
  static constexpr std::size_t max_short = 96;
  static constexpr std::uint32_t nowhere = MergeTable::none;

  void merge_long(std::vector<std::int32_t>& symbols);

  /// Positions in ascending order, with equal steps between them.
  struct Steps {
    std::uint32_t first = 0, step = 0, count = 0;
    std::uint32_t last() const { return first + step * (count - 1); }
  };
  /// The positions of one rank, each that of a left symbol, to be processed in ascending order. A run of one letter has
  /// them at equal steps, which take no memory.
  struct Bucket {
    std::vector<Steps> steps;  // ascending; those before `next` have been processed
    std::size_t next = 0;
    std::vector<std::uint32_t> late;  // added out of order: a heap with the first on top
    std::uint32_t rank = 0;
    bool queued = false;

    bool empty() const { return next == steps.size() && late.empty(); }
    void put(std::uint32_t slot);
    std::uint32_t take();
  };
  /// Records that the pair of a position and the next one has a rank; MergeTable::none is ignored.
  void put(std::uint32_t rank, std::uint32_t slot);
  std::uint32_t make_bucket(std::uint32_t rank);
  /// Merges the pairs of a rank, until none is left or one of a lower rank has appeared.
  void merge_bucket(std::uint32_t rank, std::vector<std::int32_t>& symbols);
  /// Returns the position of the symbol before that of a position, or nowhere for the first.
  std::uint32_t previous(std::uint32_t slot) const {
    if (slot == 0) return nowhere;
    const std::uint32_t link = links_[slot - 1];
    return link == slot ? slot - 1 : link;  // a symbol of one position, or the end of a longer one
  }
  Found look_up(std::int32_t left, std::int32_t right) {
    ++lookups_;
    return table_.find(left, right);
  }

  const MergeTable& table_;
  std::int64_t lookups_ = 0;
  std::vector<Found> found_;  // of each symbol and the next one, for short lists
  // For long lists. A symbol is at the first of its positions. That position links to the first position of the next
  // symbol; the symbol's last position, if different, links back to the first.
  std::vector<std::uint32_t> links_;
  std::vector<std::uint32_t> index_of_;  // [ranks] of a rank's bucket; reset to none between two calls
  std::vector<Bucket> buckets_;
  // Ranks with unprocessed positions; each at most once.
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ranks_;
};

}  // namespace ringtrain
