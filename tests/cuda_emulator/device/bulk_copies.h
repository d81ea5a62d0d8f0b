// Copies by TMA and in bulk. Loads belong to the block and land on an mbarrier; reductions belong to a thread, in
// groups.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "api/tensor_map.h"

namespace cuda_emulator {

class Block;

class BulkLoads {
 public:
  explicit BulkLoads(Block& block) : block_(block) {}

  void issue(void* shared, const TensorMap& map, std::uint64_t* barrier, const Coordinates& at);
  /// Lands the oldest load for which a thread waits. Returns false if there is none.
  bool land_one_awaited();
  std::size_t under_way() const { return loads_.size(); }
  void reset() { loads_.clear(); }

 private:
  struct Load {
    void* shared;
    TensorMap map;
    std::uint64_t* barrier;
    Coordinates at;
  };
  void land(const Load& load);

  Block& block_;
  std::deque<Load> loads_;
};

/// The reductions of one thread.
class BulkStores {
 public:
  /// Adds the box in shared memory to the tensor, of float.
  void add(const TensorMap& map, const void* shared, const Coordinates& at);
  void commit();
  void wait_read(std::size_t groups);
  void wait_complete(std::size_t groups);
  /// Returns how many groups, or stores without a group, have not read their shared memory yet.
  std::size_t unread() const;
  /// Writes what has been read.
  void finish() { wait_complete(0); }
  void reset();

 private:
  struct Store {
    const void* shared;
    TensorMap map;
    Coordinates at;
    std::vector<char> bytes;  // read from shared memory
  };
  struct Group {
    std::vector<Store> stores;
    bool read = false;
  };
  void issue(Store store);
  static void read(Store& store);
  static void write(const Store& store);

  std::vector<Store> open_;
  std::vector<Group> groups_;
};

}  // namespace cuda_emulator
