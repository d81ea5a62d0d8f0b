// The tagged allocator: all tensor memory of one rank comes from one Allocator, under a tag and a name.
// In plan mode it records sizes and hands out tensors without storage, so that the very constructors that will allocate
// a run also state what it needs: the plan cannot drift from the run. Used by one thread: its rank's.
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
/// Returns a tag's name, as plans and metrics have it.
const char* name_of(Tag tag);

/// Bytes by tag, and their sum's own high-water mark.
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
  /// Makes tensors of a device's memory; in plan mode records them alone.
  explicit Allocator(Device device, Mode mode = Mode::real);
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  /// Every tensor has been released before: else the process ends (SIGABRT) with a sentence that names one.
  ~Allocator();

  /// Returns a tensor of uninitialised memory (fresh pages: not resident until written), aligned to 64 bytes or more.
  /// In plan mode its data is null. Throws Error(usage) naming tag, name and sizes when the device has no more memory,
  /// Error(device) when the driver cannot pin so much of the host's.
  Tensor make(Tag tag, std::string name, DType dtype, const Shape& shape);

  /// Returns where tensors of the host come from that the device's work reads or writes: this one itself on a CPU; else
  /// one of pinned memory, which a GPU reads and writes by itself, with books of its own.
  Allocator& host() { return host_ ? *host_ : *this; }
  /// The same, of a constant one.
  const Allocator& host() const { return host_ ? *host_ : *this; }

  /// Returns whether its tensors have memory.
  Mode mode() const { return mode_; }
  /// Returns whether they have none.
  bool planning() const { return mode_ == Mode::plan; }
  /// Returns where its tensors lie.
  Device device() const { return device_; }
  /// Returns the bytes that are allocated now, with alignment.
  const MemoryUse& current() const { return current_; }
  /// Returns the most that there ever were, of each tag and of all together.
  const MemoryUse& peak() const { return peak_; }
  /// Returns how often make() was called, the host's included: unchanged over steps shows that a step allocates
  /// nothing.
  std::int64_t allocation_count() const { return allocation_count_ + (host_ ? host_->allocation_count_ : 0); }
  /// Returns what is allocated now, in the order of allocation.
  std::vector<PlannedTensor> live() const;

 private:
  void release(std::size_t entry, void* data) override;
  struct Entry {
    PlannedTensor tensor;
    bool live;
  };
  enum class HostMemory { plain, pinned };
  Allocator(Device device, Mode mode, HostMemory host_memory);
  /// Returns storage, or null if there is no more.
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
