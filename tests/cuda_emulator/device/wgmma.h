// The asynchronous products of a block's warpgroups (wgmma.mma_async). Each thread records its own; when all 128
// threads of a warpgroup wait, the products that are due are computed for all of them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <vector>

#include "cuda_emulator_hopper.h"

namespace cuda_emulator {

class Block;

class Warpgroups {
 public:
  static constexpr int threads = 128;

  explicit Warpgroups(Block& block) : block_(block) {}

  void fence();
  void issue(const WgmmaIssue& issue, float* d);
  void commit();
  void wait(int groups, const std::source_location& where);
  /// Returns the products of a thread that have not been waited for.
  std::size_t under_way(int thread) const { return threads_[static_cast<std::size_t>(thread)].products.size(); }
  /// Returns whether a product that has not been waited for reads some of these bytes.
  bool under_way_reads(const void* memory, std::size_t bytes);
  void reset(int block_threads);

 private:
  struct Product {
    WgmmaIssue issue;
    float* d;
    bool first;  // of those in flight with this d: the thread's previous d is in `kept`
  };
  struct Thread {
    bool fenced = false;                        // since other uses of registers were last allowed
    std::vector<Product> products;              // in flight, oldest first
    std::vector<std::size_t> ends;              // of the committed groups, in products
    std::map<float*, std::vector<float>> kept;  // the content of d before its first product
    std::map<float*, std::vector<float>> left;  // the content of d after finished products
  };
  struct Group {
    std::vector<int> waiting;
    std::size_t due = 0;
  };
  static std::string missing(const void* group, int thread);
  void compute(int first_thread, std::size_t products);
  static void retire(Thread& thread, std::size_t products);
  static bool keep(Thread& thread, float* d, int n);
  static bool as_left(const Thread& thread, const float* d, int n);
  void multiply(int first_thread, std::size_t product);
  void read_operand(std::uint64_t descriptor, bool transposed, int rows, float (*to)[16]);
  Thread& thread_of(int thread) { return threads_[static_cast<std::size_t>(thread)]; }

  Block& block_;
  std::vector<Thread> threads_;
  std::array<Group, 8> groups_;
};

}  // namespace cuda_emulator
