#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>

#include "framework/error.h"

namespace ringtrain {

MergeTable::MergeTable(const std::vector<Merge>& merges) {
  if (merges.empty()) return;
  const std::size_t size = std::bit_ceil(merges.size() * 2);
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  for (const Merge& merge : merges) {
    ensure(merge.left >= 0 && merge.right >= 0 && merge.product >= 0, "symbols are not negative");
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t at = place_of(key);
    while (slots_[at].key != empty && slots_[at].key != key) at = (at + 1) & mask_;
    if (merge.rank < slots_[at].rank) slots_[at] = {key, merge.rank, merge.product};
  }
}

BytePairs::BytePairs(const MergeTable& table, const std::array<std::int32_t, 256>& symbols) : found_(65536) {
  for (std::size_t left = 0; left < 256; ++left) {
    for (std::size_t right = 0; right < 256; ++right) {
      if (symbols[left] < 0 || symbols[right] < 0) continue;
      found_[left << 8 | right] = table.find(symbols[left], symbols[right]);
    }
  }
}

void Merger::merge(std::vector<std::int32_t>& symbols) {
  if (symbols.size() > max_short) return merge_long(symbols);
  found_.resize(symbols.size());
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) found_[i] = table_.find(symbols[i], symbols[i + 1]);
  merge_found(symbols);
}

void Merger::merge_bytes(std::string_view bytes, const BytePairs& pairs, std::vector<std::int32_t>& symbols) {
  if (symbols.size() > max_short) return merge_long(symbols);
  ensure(bytes.size() == symbols.size(), "a symbol a byte");
  found_.resize(symbols.size());
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) found_[i] = pairs.find(bytes[i], bytes[i + 1]);
  merge_found(symbols);
}

void Merger::merge_found(std::vector<std::int32_t>& symbols) {
  std::size_t count = symbols.size();
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (found_[i].rank < found_[best].rank) best = i;
    }
    if (found_[best].rank == MergeTable::none) break;
    symbols[best] = found_[best].product;
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              symbols.begin() + static_cast<std::ptrdiff_t>(count),
              symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    if (best + 2 < count) {
      std::copy(found_.begin() + static_cast<std::ptrdiff_t>(best) + 2,
                found_.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                found_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    --count;
    if (best > 0) found_[best - 1] = table_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) found_[best] = table_.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

void Merger::Bucket::put(std::uint32_t place) {
  if (next == places.size() || places.back() <= place) {
    places.push_back(place);
    return;
  }
  late.push_back(place);
  std::ranges::push_heap(late, std::greater<>());
}

std::uint32_t Merger::Bucket::take() {
  if (late.empty() || (next < places.size() && places[next] <= late.front())) return places[next++];
  std::ranges::pop_heap(late, std::greater<>());
  const std::uint32_t place = late.back();
  late.pop_back();
  return place;
}

std::size_t Merger::bucket_of(std::uint32_t rank) {
  const auto [entry, is_new] = index_of_.try_emplace(rank, buckets_.size());
  if (is_new) buckets_.emplace_back();
  return entry->second;
}

void Merger::merge_long(std::vector<std::int32_t>& symbols) {
  constexpr std::uint32_t nowhere = MergeTable::none;
  ensure(symbols.size() < nowhere, "a piece has fewer than 2^32 symbols");
  const auto count = static_cast<std::uint32_t>(symbols.size());
  previous_.resize(count);
  next_.resize(count);
  index_of_.clear();
  buckets_.clear();
  // Ranks with places that are still to be looked at; each at most once.
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ranks;
  std::uint32_t last_rank = nowhere;  // neighbours often have the same rank: a run of one letter
  std::size_t last_bucket = 0;
  // Notes that place and what follows it merge. Return their rank.
  const auto note = [&](std::uint32_t place) {
    const std::uint32_t rank = table_.find(symbols[place], symbols[next_[place]]).rank;
    if (rank == nowhere) return rank;
    if (rank != last_rank) {
      last_bucket = bucket_of(rank);
      last_rank = rank;
    }
    Bucket& bucket = buckets_[last_bucket];
    if (!bucket.queued) {
      bucket.queued = true;
      ranks.push(rank);
    }
    bucket.put(place);
    return rank;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    previous_[i] = i == 0 ? nowhere : i - 1;
    next_[i] = i + 1 == count ? nowhere : i + 1;
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) note(i);

  constexpr std::int32_t gone = -1;  // of a symbol that was merged into the one before it
  while (!ranks.empty()) {
    const std::uint32_t rank = ranks.top();
    const std::size_t index = index_of_.at(rank);
    bool lower = false;  // whether a merge has made a pair of a lower rank, which goes first
    while (!lower && !buckets_[index].empty()) {
      const std::uint32_t place = buckets_[index].take();
      if (symbols[place] == gone || next_[place] == nowhere) continue;
      const std::uint32_t right = next_[place];
      const Found found = table_.find(symbols[place], symbols[right]);
      if (found.rank != rank) continue;  // one of the two has been merged meanwhile
      symbols[place] = found.product;
      symbols[right] = gone;
      next_[place] = next_[right];
      if (next_[right] != nowhere) previous_[next_[right]] = place;
      if (previous_[place] != nowhere) lower = note(previous_[place]) < rank;
      if (next_[place] != nowhere) lower = note(place) < rank || lower;
    }
    Bucket& bucket = buckets_[index];
    if (!bucket.empty()) continue;  // go on here later: the rank is still queued
    bucket.places.clear();
    bucket.next = 0;
    bucket.queued = false;
    // Lower ranks may have come before this one in the queue: only the top is taken away.
    if (ranks.top() == rank) {
      ranks.pop();
    } else {
      bucket.queued = true;  // empty, and passed over when its turn comes
    }
  }
  std::erase(symbols, gone);
}

}  // namespace ringtrain
