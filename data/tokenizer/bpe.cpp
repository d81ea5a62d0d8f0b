#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <bit>

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
    ranks_ = std::max(ranks_, merge.rank + std::size_t{1});
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t at = slot_of(key);
    while (slots_[at].key != empty && slots_[at].key != key) at = (at + 1) & mask_;
    slots_[at] = {key, merge.rank, merge.product};
  }
}

void Merger::merge(std::vector<std::int32_t>& symbols) {
  if (symbols.size() > max_short) return merge_long(symbols);
  found_.resize(symbols.size());
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) found_[i] = table_.find(symbols[i], symbols[i + 1]);
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

void Merger::Bucket::put(std::uint32_t slot) {
  if (next == steps.size()) {
    steps.clear();
    next = 0;
    steps.push_back({slot, 0, 1});
    return;
  }
  Steps& end = steps.back();
  const std::uint32_t last = end.last();
  if (slot > last && (end.count == 1 || slot - last == end.step)) {
    end.step = slot - last;
    ++end.count;
  } else if (slot > last) {
    steps.push_back({slot, 0, 1});
  } else if (slot < last) {
    late.push_back(slot);
    std::ranges::push_heap(late, std::greater<>());
  }
}

std::uint32_t Merger::Bucket::take() {
  if (late.empty() || (next < steps.size() && steps[next].first <= late.front())) {
    Steps& front = steps[next];
    const std::uint32_t slot = front.first;
    front.first += front.step;
    if (--front.count == 0) ++next;
    return slot;
  }
  std::ranges::pop_heap(late, std::greater<>());
  const std::uint32_t slot = late.back();
  late.pop_back();
  return slot;
}

std::uint32_t Merger::make_bucket(std::uint32_t rank) {
  buckets_.emplace_back().rank = rank;
  return index_of_[rank] = static_cast<std::uint32_t>(buckets_.size() - 1);
}

void Merger::put(std::uint32_t rank, std::uint32_t slot) {
  if (rank == MergeTable::none) return;
  const std::uint32_t index = index_of_[rank];
  Bucket& bucket = buckets_[index != nowhere ? index : make_bucket(rank)];
  if (!bucket.queued) {
    bucket.queued = true;
    ranks_.push(rank);
  }
  bucket.put(slot);
}

void Merger::merge_bucket(std::uint32_t rank, std::vector<std::int32_t>& symbols) {
  constexpr std::int32_t gone = -1;  // marks a symbol that was merged into the one before it
  const auto count = static_cast<std::uint32_t>(symbols.size());
  const std::uint32_t index = index_of_[rank];
  bool lower = false;  // whether a merge has made a pair of a lower rank, which is merged first
  // The last merged slot, if its new pair is not recorded yet: the next merge often changes that pair.
  std::uint32_t pending = nowhere, pending_rank = nowhere;
  while (!lower && !buckets_[index].empty()) {
    const std::uint32_t slot = buckets_[index].take();
    const std::uint32_t right = links_[slot];
    if (symbols[slot] == gone || right == count) continue;
    const Found found = look_up(symbols[slot], symbols[right]);
    if (found.rank != rank) continue;  // one of the two has been merged since
    const std::uint32_t left = previous(slot), after = links_[right];
    if (pending != nowhere && pending != left) put(pending_rank, pending);
    pending = nowhere;
    symbols[slot] = found.product;
    symbols[right] = gone;
    links_[after - 1] = slot;
    links_[slot] = after;
    if (left != nowhere) {
      const std::uint32_t made = look_up(symbols[left], symbols[slot]).rank;
      put(made, left);
      lower = made < rank;
    }
    if (after == count) continue;
    const std::uint32_t made = look_up(symbols[slot], symbols[after]).rank;
    lower = lower || made < rank;
    if (made > rank) {
      pending = slot;
      pending_rank = made;
    } else {
      put(made, slot);
    }
  }
  if (pending != nowhere) put(pending_rank, pending);
}

void Merger::merge_long(std::vector<std::int32_t>& symbols) {
  ensure(symbols.size() < nowhere, "a piece has fewer than 2^32 symbols");
  const auto count = static_cast<std::uint32_t>(symbols.size());
  index_of_.resize(table_.ranks(), nowhere);
  links_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) links_[i] = i + 1;
  for (std::uint32_t i = 0; i + 1 < count; ++i) put(look_up(symbols[i], symbols[i + 1]).rank, i);
  while (!ranks_.empty()) {
    const std::uint32_t rank = ranks_.top();
    merge_bucket(rank, symbols);
    Bucket& bucket = buckets_[index_of_[rank]];
    // Continue here later: the rank is still queued. Lower ranks may have been queued before this one. Only the top is
    // removed; otherwise an empty bucket stays queued, and is skipped when its turn comes.
    if (!bucket.empty() || ranks_.top() != rank) continue;
    bucket.queued = false;
    ranks_.pop();
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i < count; i = links_[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
  for (const Bucket& bucket : buckets_) index_of_[bucket.rank] = nowhere;
  buckets_.clear();
}

}  // namespace ringtrain
