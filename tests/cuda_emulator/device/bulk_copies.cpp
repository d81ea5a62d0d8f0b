// TMA and bulk copies: when they read and write.
#include "device/bulk_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "api/settings.h"
#include "cuda_emulator_hopper.h"
#include "device/block.h"

namespace cuda_emulator {

// --- Loads ---------------------------------------------------------------------------------------------------------

void BulkLoads::issue(void* shared, const TensorMap& map, std::uint64_t* barrier, const Coordinates& at) {
  block_.mbarriers().check_for_copy(barrier);
  if (block_.warpgroups().under_way_reads(shared, map.box_bytes())) {
    block_.fail("a load by TMA to shared memory that a product under way reads: the product may come too late");
  }
  loads_.push_back({shared, map, barrier, at});
  if (settings().copies == CopyLanding::early) {
    const Load load = loads_.back();
    loads_.pop_back();
    land(load);
  }
}

bool BulkLoads::land_one_awaited() {
  const auto awaited = [&](const Load& load) { return block_.mbarriers().awaited(load.barrier); };
  const auto found = std::find_if(loads_.begin(), loads_.end(), awaited);
  if (found == loads_.end()) return false;
  const Load load = *found;
  loads_.erase(found);
  land(load);
  return true;
}

void BulkLoads::land(const Load& load) {
  std::vector<char> box(load.map.box_bytes());
  read_box(load.map, load.at, box);
  block_.writes().before_copy();
  to_shared(load.map, box, load.shared);
  block_.writes().after_copy(load.shared, box.size());
  block_.mbarriers().complete(load.barrier, static_cast<std::uint32_t>(box.size()));
}

// --- Stores --------------------------------------------------------------------------------------------------------

void BulkStores::reset() {
  open_.clear();
  groups_.clear();
}

void BulkStores::issue(Store store) {
  if (settings().copies == CopyLanding::early) {
    read(store);
    write(store);
    return;
  }
  open_.push_back(std::move(store));
}

void BulkStores::add(const TensorMap& map, const void* shared, const Coordinates& at) {
  issue({shared, map, at, {}});
}

void BulkStores::commit() {
  groups_.push_back({std::exchange(open_, {}), false});
}

void BulkStores::read(Store& store) {
  store.bytes.resize(store.map.box_bytes());
  from_shared(store.map, store.shared, store.bytes);
}

void BulkStores::write(const Store& store) {
  add_box(store.map, store.at, store.bytes);
}

void BulkStores::wait_read(std::size_t groups) {
  for (std::size_t i = 0; i + groups < groups_.size(); ++i) {
    if (groups_[i].read) continue;
    for (Store& store : groups_[i].stores) read(store);
    groups_[i].read = true;
  }
}

void BulkStores::wait_complete(std::size_t groups) {
  wait_read(groups);
  if (groups_.size() <= groups) return;
  const auto end = groups_.end() - static_cast<std::ptrdiff_t>(groups);
  for (auto group = groups_.begin(); group != end; ++group) {
    for (const Store& store : group->stores) write(store);
  }
  groups_.erase(groups_.begin(), end);
}

std::size_t BulkStores::unread() const {
  return open_.size() + static_cast<std::size_t>(
                            std::count_if(groups_.begin(), groups_.end(), [](const Group& g) { return !g.read; }));
}

// --- Device functions ----------------------------------------------------------------------------------------------

namespace {

void check_tile(Block& block, const void* shared) {
  if (reinterpret_cast<std::uintptr_t>(shared) % 128 != 0) {
    block.fail(fmt::format("TMA at {}: a tile in shared memory must be aligned to 128 bytes", shared));
  }
}

void load(void* shared, const CUtensorMap* map, std::uint64_t* barrier, const Coordinates& at) {
  Block& block = running();
  block.need_hopper("TMA");
  check_tile(block, shared);
  block.loads().issue(shared, decode(block, *map), barrier, at);
}

// Threads have written shared memory at least once, and must have fenced these writes.
void add(const CUtensorMap* map, const void* shared, const Coordinates& at) {
  Block& block = running();
  block.need_hopper("TMA");
  check_tile(block, shared);
  if (!block.proxy_fenced()) block.fail("TMA reads shared memory, but no thread has called fence_proxy_async");
  const TensorMap decoded = decode(block, *map);
  if (decoded.type != CU_TENSOR_MAP_DATA_TYPE_FLOAT32) block.fail("tma_reduce_add is emulated for float alone");
  block.writes().thread_stops();
  block.writes().check_read("TMA", shared, decoded.box_bytes());
  block.stores().add(decoded, shared, at);
}

}  // namespace

void tma_prefetch(const CUtensorMap* map) {
  CUtensorMap copy;  // an unreadable map is detected here
  std::memcpy(&copy, map, sizeof(copy));
}

void tma_load_4d(void* shared, const CUtensorMap* map, std::uint64_t* barrier, int c0, int c1, int c2, int c3) {
  load(shared, map, barrier, {c0, c1, c2, c3});
}
void tma_reduce_add_4d(const CUtensorMap* map, const void* shared, int c0, int c1, int c2, int c3) {
  add(map, shared, {c0, c1, c2, c3});
}

void fence_proxy_async() {
  running().fence_proxy();
}
void tma_store_commit() {
  running().stores().commit();
}
void bulk_wait_read(int groups) {
  running().stores().wait_read(static_cast<std::size_t>(groups));
}
void bulk_wait_complete(int groups) {
  running().stores().wait_complete(static_cast<std::size_t>(groups));
}

}  // namespace cuda_emulator
