// The tagged allocator: all tensor memory of one rank comes from one Allocator, under a tag and a name.
// In plan mode it records sizes and returns tensors without storage. The constructors that will allocate a run thus
// also report what it needs, so the plan cannot drift from the run. Used by one thread: its rank's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/tensor.h"

namespace ringtrain {

enum class Tag : int { weights, gradients, optimizer, activations, ring, workspace, checkpoint };
inline constexpr int tag_count = 7;
/// Returns a tag's name, as it appears in plans and metrics.
const char* name_of(Tag tag);

/// Bytes by tag, and the high-water mark of their sum.
struct MemoryUse {
  std::array<std::size_t, tag_count> by_tag{};
  std::size_t total = 0;
  /// Returns the bytes of a tag.
  std::size_t operator[](Tag tag) const { return by_tag[static_cast<std::size_t>(tag)]; }
};

/// One named allocation of a rank's memory plan.
struct PlannedTensor {
  Tag tag;
  std::string name;
  DType dtype;
  Shape shape;
  std::size_t bytes;  // with alignment
};

class Allocator final : public TensorOwner {
 public:
  enum class Mode { real, plan };
  /// Makes tensors in a device's memory; in plan mode it only records them.
  explicit Allocator(Device device, Mode mode = Mode::real);
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  /// All tensors must have been released; otherwise the process ends (SIGABRT) with a message that names one of them.
  ~Allocator();

  /// Returns a tensor of uninitialized memory (fresh pages: not resident until written), aligned to 64 bytes or more.
  /// In plan mode its data is null. Throws Error(usage) that names the tag, the name, and the sizes when the device has
  /// no more memory, and Error(device) when the driver cannot pin that much host memory.
  Tensor make(Tag tag, std::string name, DType dtype, const Shape& shape);

  /// Returns the allocator of host tensors that the device reads or writes: this one on a CPU; otherwise one of pinned
  /// memory, which a GPU reads and writes directly. The latter keeps its own records.
  Allocator& host() { return host_ ? *host_ : *this; }
  /// The same, for a constant allocator.
  const Allocator& host() const { return host_ ? *host_ : *this; }

  /// Returns whether its tensors have memory (real) or not (plan).
  Mode mode() const { return mode_; }
  /// Returns whether it is in plan mode.
  bool planning() const { return mode_ == Mode::plan; }
  /// Returns the device of its tensors.
  Device device() const { return device_; }
  /// Returns the bytes that are currently allocated, with alignment.
  const MemoryUse& current() const { return current_; }
  /// Returns the peak of each tag and of their sum.
  const MemoryUse& peak() const { return peak_; }
  /// Returns how often make() was called, including calls on the host's allocator. If the count does not change over
  /// steps, a step allocates nothing.
  std::int64_t allocation_count() const { return allocation_count_ + (host_ ? host_->allocation_count_ : 0); }
  /// Returns the tensors that are currently allocated, in the order of allocation.
  std::vector<PlannedTensor> live() const;

 private:
  void release(std::size_t entry, void* data) override;
  struct Entry {
    PlannedTensor tensor;
    bool live;
  };
  enum class HostMemory { plain, pinned };
  Allocator(Device device, Mode mode, HostMemory host_memory);
  /// Returns storage, or null if there is no more memory.
  void* allocate(std::size_t bytes) const;
  void free(void* data) const;

  Device device_;
  Mode mode_;
  HostMemory host_memory_;
  MemoryUse current_, peak_;
  std::int64_t allocation_count_ = 0;
  std::vector<Entry> entries_;
  std::unique_ptr<Allocator> host_;  // null on a CPU
};

}  // namespace ringtrain
