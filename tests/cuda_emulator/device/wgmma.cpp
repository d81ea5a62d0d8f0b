// wgmma: descriptors, operands in shared memory, fragments. An operand is stored in shared memory according to the PTX
// ISA with the swizzle of 128 bytes: chunks of 16 bytes (8 elements), eight of them per line.
//   K-major:   row r, chunk c of k:   (r % 8) 8 + (r / 8) stride + c
//   MN-major:  chunk c of rows, k:    c % 8 + (c / 8) leading + (k % 8) 8 + (k / 8) stride
// The address of a chunk, start included, is then swizzled by its own bits.
#include "device/wgmma.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "api/tensor_map.h"
#include "cuda_emulator_device.h"
#include "device/block.h"
#include "device/mma.h"

namespace cuda_emulator {

namespace {

constexpr std::uint32_t window = 1u << 18;             // addresses that a descriptor can hold
constexpr std::uint32_t chunk = 16, line = 8 * chunk;  // bytes

struct Descriptor {
  std::uint32_t start, leading, stride;  // bytes
};

Descriptor decode(Block& block, std::uint64_t bits) {
  if ((bits >> 49 & 7u) != 0) block.fail("wgmma: a descriptor with a base offset is not emulated");
  if (bits >> 62 != 1) block.fail("wgmma: a swizzle other than that of 128 bytes is not emulated");
  const auto field = [&](int at) { return static_cast<std::uint32_t>(bits >> at & 0x3fffu) << 4; };
  return {field(0), field(16), field(32)};
}

// Calls visit(row, k, address) for each chunk of 8 elements of an operand: along k, or, transposed, along rows.
template <class Visit>
void for_each_chunk(const Descriptor& at, bool transposed, int rows, Visit visit) {
  for (int row = 0; row < rows; row += transposed ? 8 : 1) {
    for (int k = 0; k < 16; k += transposed ? 1 : 8) {
      const auto r = static_cast<std::uint32_t>(transposed ? row / 8 : row), s = static_cast<std::uint32_t>(k);
      const std::uint32_t offset = transposed ? r % 8 * chunk + r / 8 * at.leading + s % 8 * line + s / 8 * at.stride
                                              : r % 8 * line + r / 8 * at.stride + s / 8 * chunk;
      visit(row, k, swizzled((at.start + offset) % window, 3));
    }
  }
}

bool same(const WgmmaIssue& x, const WgmmaIssue& y) {
  return x.n == y.n && x.transpose_a == y.transpose_a && x.transpose_b == y.transpose_b &&
         x.accumulate == y.accumulate && x.a_in_registers == y.a_in_registers && x.a_descriptor == y.a_descriptor &&
         x.b_descriptor == y.b_descriptor;
}

}  // namespace

void Warpgroups::reset(int block_threads) {
  threads_.resize(std::max(threads_.size(), static_cast<std::size_t>(block_threads)));
  for (int t = 0; t < block_threads; ++t) {
    Thread& thread = thread_of(t);
    thread.fenced = false;
    thread.products.clear();
    thread.ends.clear();
    thread.kept.clear();
    thread.left.clear();
  }
  for (Group& group : groups_) group.waiting.clear();
}

void Warpgroups::fence() {
  thread_of(block_.thread()).fenced = true;
}

void Warpgroups::issue(const WgmmaIssue& issue, float* d) {
  Thread& thread = thread_of(block_.thread());
  // Sums left by products and only touched by products since need no fence. Registers of a are considered new.
  if (!thread.fenced && (issue.a_in_registers || !as_left(thread, d, issue.n / 2))) {
    block_.fail("wgmma without wgmma_fence behind other uses of its registers");
  }
  const bool first = keep(thread, d, issue.n / 2);
  thread.products.push_back({issue, d, first});
}

void Warpgroups::commit() {
  Thread& thread = thread_of(block_.thread());
  thread.ends.push_back(thread.products.size());
}

void Warpgroups::wait(int groups, const std::source_location& where) {
  Thread& thread = thread_of(block_.thread());
  if (thread.ends.size() <= static_cast<std::size_t>(groups)) return;
  const std::size_t due = thread.ends[thread.ends.size() - 1 - static_cast<std::size_t>(groups)];
  const int first_thread = block_.thread() / threads * threads;
  if (block_.threads() < first_thread + threads) block_.fail("wgmma needs a whole warpgroup of 128 threads", where);
  Group& group = groups_[static_cast<std::size_t>(first_thread / threads)];
  if (!group.waiting.empty() && group.due != due) {
    block_.fail(fmt::format("wgmma_wait for {} products, while others of the warpgroup wait for {}", due, group.due),
                where);
  }
  group.due = due;
  group.waiting.push_back(block_.thread());
  if (group.waiting.size() < threads) {
    block_.wait({"wgmma_wait", where, missing, &group});
    return;
  }
  compute(first_thread, due);
  for (const int other : group.waiting) {
    if (other != block_.thread()) block_.wake(other);
  }
  group.waiting.clear();
  block_.give_way();
}

std::string Warpgroups::missing(const void* object, int) {
  return fmt::format("{} of 128 threads have come", static_cast<const Group*>(object)->waiting.size());
}

// Whether d is in flight, or as finished products left it.
bool Warpgroups::as_left(const Thread& thread, const float* d, int n) {
  auto* const key = const_cast<float*>(d);
  if (thread.kept.contains(key)) return true;
  const auto left = thread.left.find(key);
  return left != thread.left.end() && left->second.size() == static_cast<std::size_t>(n) &&
         std::memcmp(left->second.data(), d, left->second.size() * sizeof(float)) == 0;
}

// Computes the oldest products of the warpgroup, for all of its threads.
void Warpgroups::compute(int first_thread, std::size_t products) {
  block_.writes().thread_stops();
  for (int t = first_thread; t < first_thread + threads; ++t) {
    Thread& thread = thread_of(t);
    if (thread.products.size() < products) {
      block_.fail(fmt::format("thread {} of the warpgroup has issued {} products where others wait for {}",
                              t - first_thread, thread.products.size(), products));
    }
    for (std::size_t p = 0; p < products; ++p) {
      const Product& mine = thread.products[p];
      if (!same(mine.issue, thread_of(first_thread).products[p].issue)) {
        block_.fail(fmt::format("product {} of thread {} of the warpgroup is another than that of thread 0", p,
                                t - first_thread));
      }
      if (!mine.first) continue;
      std::vector<float>& before = thread.kept[mine.d];
      const bool untouched = std::all_of(mine.d, mine.d + before.size(), [](float x) {
        std::uint32_t bits;
        std::memcpy(&bits, &x, sizeof(bits));
        return bits == 0xffffffffu;
      });
      if (!untouched) {
        block_.fail(
            fmt::format("thread {} of the warpgroup wrote sums of a product that was under way", t - first_thread));
      }
      std::copy(before.begin(), before.end(), mine.d);
    }
  }
  for (std::size_t p = 0; p < products; ++p) multiply(first_thread, p);
  for (int t = first_thread; t < first_thread + threads; ++t) {
    Thread& thread = thread_of(t);
    for (std::size_t p = 0; p < products; ++p) {
      const Product& mine = thread.products[p];
      if (mine.first) thread.left[mine.d].assign(mine.d, mine.d + mine.issue.n / 2);
    }
    retire(thread, products);
    thread.fenced = false;
  }
}

// Drops the oldest products of a thread. If younger ones add to their sums, the current values are kept, and the
// registers are poisoned again.
void Warpgroups::retire(Thread& thread, std::size_t products) {
  for (std::size_t p = 0; p < products; ++p) thread.kept.erase(thread.products[p].d);
  thread.products.erase(thread.products.begin(), thread.products.begin() + static_cast<std::ptrdiff_t>(products));
  std::erase_if(thread.ends, [&](std::size_t end) { return end <= products; });
  for (std::size_t& end : thread.ends) end -= products;
  for (Product& product : thread.products) {
    if (!thread.kept.contains(product.d)) product.first = keep(thread, product.d, product.issue.n / 2);
  }
}

// Keeps d and poisons it, unless that was already done. Returns whether it was not.
bool Warpgroups::keep(Thread& thread, float* d, int n) {
  const auto [kept, first] = thread.kept.try_emplace(d);
  if (first) {
    kept->second.assign(d, d + n);
    std::memset(d, 0xff, kept->second.size() * sizeof(float));
  }
  return first;
}

void Warpgroups::read_operand(std::uint64_t bits, bool transposed, int rows, float (*to)[16]) {
  for_each_chunk(decode(block_, bits), transposed, rows, [&](int row, int k, std::uint32_t address) {
    // The chunk must end at the end of dynamic shared memory or earlier.
    shared_pointer(address + chunk);
    const void* const from = shared_pointer(address);
    block_.writes().check_read("wgmma", from, chunk);
    std::array<std::uint16_t, 8> elements;
    std::memcpy(elements.data(), from, chunk);
    for (int i = 0; i < 8; ++i) {
      float& element = transposed ? to[row + i][k] : to[row][k + i];
      element = low_bf16(elements[static_cast<std::size_t>(i)]);
    }
  });
}

bool Warpgroups::under_way_reads(const void* memory, std::size_t bytes) {
  const std::uint32_t begin = shared_address(memory), end = begin + static_cast<std::uint32_t>(bytes);
  bool read = false;
  const auto look = [&](std::uint64_t descriptor, bool transposed, int rows) {
    for_each_chunk(decode(block_, descriptor), transposed, rows,
                   [&](int, int, std::uint32_t address) { read = read || (address < end && address + chunk > begin); });
  };
  const Thread* longest = nullptr;  // the thread of a warpgroup that has issued the most
  for (std::size_t t = 0; t < static_cast<std::size_t>(block_.threads()); ++t) {
    if (t % threads == 0) longest = nullptr;
    if (longest == nullptr || threads_[t].products.size() > longest->products.size()) longest = &threads_[t];
    if ((t + 1) % threads != 0) continue;
    for (const Product& product : longest->products) {
      const WgmmaIssue& issue = product.issue;
      if (!issue.a_in_registers) look(issue.a_descriptor, issue.transpose_a, 64);
      look(issue.b_descriptor, issue.transpose_b, issue.n);
      if (read) return true;
    }
  }
  return false;
}

void Warpgroups::multiply(int first_thread, std::size_t p) {
  const WgmmaIssue& issue = thread_of(first_thread).products[p].issue;
  const int n = issue.n;
  static float a[64][16], b_rows[256][16], b[16][256], d[64][256];  // guarded by the runtime's lock, like all of this
  if (issue.a_in_registers) {
    for (int t = 0; t < threads; ++t) {
      const int warp = t / 32, g = t % 32 / 4, in_group = t % 4;
      const WgmmaIssue& mine = thread_of(first_thread + t).products[p].issue;
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * warp + g + 8 * (i % 2), k = 2 * in_group + 8 * (i / 2);
        a[row][k] = low_bf16(mine.a[i]);
        a[row][k + 1] = high_bf16(mine.a[i]);
      }
    }
  } else {
    read_operand(issue.a_descriptor, issue.transpose_a, 64, a);
  }
  read_operand(issue.b_descriptor, issue.transpose_b, n, b_rows);
  for (int column = 0; column < n; ++column) {
    for (int k = 0; k < 16; ++k) b[k][column] = b_rows[column][k];
  }
  const auto for_each_sum = [&](auto visit) {
    for (int t = 0; t < threads; ++t) {
      const int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
      float* mine = thread_of(first_thread + t).products[p].d;
      for (int j = 0; j < n / 8; ++j) {
        for (int i = 0; i < 4; ++i) visit(mine[4 * j + i], d[row + 8 * (i / 2)][8 * j + column + i % 2]);
      }
    }
  };
  for_each_sum([&](float mine, float& sum) { sum = issue.accumulate ? mine : 0.0f; });
  for (int row = 0; row < 64; ++row) {
    for (int k = 0; k < 16; ++k) {
      const float x = a[row][k];
      for (int column = 0; column < n; ++column) d[row][column] += x * b[k][column];
    }
  }
  for_each_sum([&](float& mine, float sum) { mine = sum; });
}

std::uint64_t wgmma_descriptor(const void* shared, std::uint32_t leading_bytes, std::uint32_t stride_bytes,
                               int swizzle) {
  Block& block = running();
  const std::uint32_t address = shared_address(shared);
  if (address >= window) block.fail("a descriptor of memory that is no dynamic shared memory is not emulated");
  if (address % 16 != 0 || leading_bytes % 16 != 0 || stride_bytes % 16 != 0) {
    block.fail(fmt::format("a descriptor of {} with offsets of {} and {} bytes: all must be multiples of 16", shared,
                           leading_bytes, stride_bytes));
  }
  return std::uint64_t{address >> 4} | std::uint64_t{(leading_bytes & 0x3ffffu) >> 4} << 16 |
         std::uint64_t{(stride_bytes & 0x3ffffu) >> 4} << 32 | static_cast<std::uint64_t>(swizzle) << 62;
}

void wgmma_fence() {
  running().warpgroups().fence();
}
void wgmma_commit() {
  running().warpgroups().commit();
}
void wgmma_wait_groups(int groups, Where where) {
  running().warpgroups().wait(groups, where);
}
void wgmma_issue(const WgmmaIssue& issue, float* d) {
  running().need_hopper("wgmma");
  running().warpgroups().issue(issue, d);
}

}  // namespace cuda_emulator
