#include "framework/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "framework/cuda/memory.h"
#include "framework/standard_streams.h"

namespace ringtrain {

namespace {
constexpr std::size_t alignment = 64;

/// AddressSanitizer can only detect reads past the end of an (emulated) GPU's tensor if nothing extra is allocated.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool exact_ends = true;
#else
constexpr bool exact_ends = false;
#endif

std::size_t rounded(std::size_t bytes) {
  return std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
}

constexpr std::size_t huge_page = std::size_t{2} << 20;

/// Allocates memory and asks for huge pages: a product walks down columns, one page per row, which is slow with small
/// pages. Huge pages are assigned at the first touch, and a refusal changes only the speed.
void* allocate_huge(std::size_t bytes) {
  void* const data = std::aligned_alloc(huge_page, (bytes + huge_page - 1) / huge_page * huge_page);
  if (data != nullptr) madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}
}  // namespace

const char* name_of(Tag tag) {
  constexpr std::array names{"weights", "gradients", "optimizer", "activations", "ring", "workspace", "checkpoint"};
  static_assert(names.size() == tag_count);
  return names[static_cast<std::size_t>(tag)];
}

Allocator::Allocator(Device device, Mode mode) : Allocator(device, mode, HostMemory::plain) {
  if (!device.is_cpu()) host_.reset(new Allocator(Device::cpu(), mode, HostMemory::pinned));
}

Allocator::Allocator(Device device, Mode mode, HostMemory host_memory)
    : device_(device), mode_(mode), host_memory_(host_memory) {}

Allocator::~Allocator() {
  for (const Entry& entry : entries_) {
    if (!entry.live) continue;
    // The tensor would later return its memory to a destroyed allocator, so the program cannot continue.
    write_message(stderr, fmt::format("ringtrain: the tensor {} {} {} {} outlives its Allocator; declare the Allocator "
                                      "before its tensors, so that they are destroyed first\n",
                                      name_of(entry.tensor.tag), entry.tensor.name, name_of(entry.tensor.dtype),
                                      entry.tensor.shape.to_string()));
    std::abort();
  }
}

Tensor Allocator::make(Tag tag, std::string name, DType dtype, const Shape& shape) {
  constexpr std::size_t max_bytes = std::size_t{1} << 62;  // of one tensor and of all: the sum of two stays exact
  const auto elements = static_cast<std::size_t>(shape.numel());
  const std::size_t bytes = elements > max_bytes / size_of(dtype) ? max_bytes : rounded(elements * size_of(dtype));
  if (bytes >= max_bytes - current_.total) {
    fail(ExitCode::usage, "no memory holds {} {} {} {} and {} earlier bytes; reduce training.seq_len or model sizes",
         name_of(tag), name, name_of(dtype), shape.to_string(), current_.total);
  }
  void* data = nullptr;
  if (mode_ == Mode::real) {
    data = allocate(exact_ends ? std::max<std::size_t>(1, elements * size_of(dtype)) : bytes);
    if (!data && host_memory_ == HostMemory::pinned) {
      fail(ExitCode::device,
           "the NVIDIA driver cannot allocate {} bytes of pinned host memory for {} {} {} (this rank already holds {} "
           "bytes of it); free memory on this machine, raise the memory limit of this process or its container (WSL "
           "pins at most half of the memory), or offload less (training.offload)",
           bytes, name_of(tag), name, shape.to_string(), current_.total);
    }
    if (!data) {
      const std::string where = device_.is_cpu() ? "" : " on " + device_.name();
      fail(ExitCode::usage,
           "cannot allocate {} bytes{} for {} {} {} (this rank already holds {} bytes); use more sequence ranks, a "
           "smaller training.seq_len or another training.recompute",
           bytes, where, name_of(tag), name, shape.to_string(), current_.total);
    }
  }
  auto& used = current_.by_tag[static_cast<std::size_t>(tag)];
  used += bytes;
  current_.total += bytes;
  auto& peak = peak_.by_tag[static_cast<std::size_t>(tag)];
  peak = std::max(peak, used);
  peak_.total = std::max(peak_.total, current_.total);
  ++allocation_count_;
  entries_.push_back({{tag, std::move(name), dtype, shape, bytes}, true});
  return Tensor(this, entries_.size() - 1, TensorView{data, shape, dtype, device_});
}

void* Allocator::allocate(std::size_t bytes) const {
#if RINGTRAIN_CUDA
  if (!device_.is_cpu()) return cuda::allocate(device_.index, bytes);
  if (host_memory_ == HostMemory::pinned) return cuda::allocate_pinned(bytes);
#endif
  ensure(device_.is_cpu() && host_memory_ == HostMemory::plain, "only a build with CUDA asks for a GPU's memory");
  return bytes < huge_page ? std::aligned_alloc(alignment, rounded(bytes)) : allocate_huge(bytes);
}

void Allocator::free(void* data) const {
  if (data == nullptr) return;
#if RINGTRAIN_CUDA
  if (!device_.is_cpu()) return cuda::release(device_.index, data);
  if (host_memory_ == HostMemory::pinned) return cuda::release_pinned(data);
#endif
  std::free(data);
}

void Allocator::release(std::size_t index, void* data) {
  Entry& entry = entries_[index];
  entry.live = false;
  current_.by_tag[static_cast<std::size_t>(entry.tensor.tag)] -= entry.tensor.bytes;
  current_.total -= entry.tensor.bytes;
  free(data);
  while (!entries_.empty() && !entries_.back().live) entries_.pop_back();
}

std::vector<PlannedTensor> Allocator::live() const {
  std::vector<PlannedTensor> tensors;
  for (const Entry& entry : entries_) {
    if (entry.live) tensors.push_back(entry.tensor);
  }
  return tensors;
}

}  // namespace ringtrain
