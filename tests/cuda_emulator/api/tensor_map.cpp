// Creates and walks tensor maps.
#include "api/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "api/driver.h"
#include "api/runtime.h"
#include "cuda_emulator_device.h"
#include "device/block.h"

namespace {

using cuda_emulator::TensorMap;

constexpr std::uint64_t mark = 0x74656e736f726d70u;

constexpr std::uint64_t swizzle_span = 128;  // bytes

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const std::uint64_t element = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? 2 : 4;
  if (reinterpret_cast<std::uintptr_t>(map) % 64 != 0 || rank < 1 || rank > 5 || address == nullptr ||
      reinterpret_cast<std::uintptr_t>(address) % 16 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool steps = false;
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (sizes[i] < 1 || sizes[i] > std::uint64_t{1} << 32 || box[i] < 1 || box[i] > 256 || element_strides[i] < 1 ||
        element_strides[i] > 8) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] >= std::uint64_t{1} << 40))
      return CUDA_ERROR_INVALID_VALUE;
    steps = steps || (i > 0 && element_strides[i] != 1);
  }
  const std::uint64_t row = box[0] * element;
  const bool swizzles = swizzle != CU_TENSOR_MAP_SWIZZLE_NONE;
  if (row % 16 != 0 || (swizzles && row > swizzle_span)) return CUDA_ERROR_INVALID_VALUE;
  if (cuda_emulator::runtime().devices.compute_capability < 90 || steps || (swizzles && row != swizzle_span)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  TensorMap made{};
  made.mark = mark;
  made.address = static_cast<char*>(address);
  made.type = static_cast<std::uint8_t>(type);
  made.rank = static_cast<std::uint8_t>(rank);
  made.swizzle = static_cast<std::uint8_t>(swizzle);
  made.element_bytes = static_cast<std::uint8_t>(element);
  made.box.fill(1);
  for (cuuint32_t i = 0; i < rank; ++i) {
    made.last[i] = static_cast<std::uint32_t>(sizes[i] - 1);
    made.box[i] = static_cast<std::uint16_t>(box[i]);
    if (i > 0) made.strides[i - 1] = strides[i - 1];
  }
  static_assert(sizeof(made) <= sizeof(*map));
  *map = {};
  std::memcpy(map, &made, sizeof(made));
  return CUDA_SUCCESS;
}

namespace cuda_emulator {

void* driver_function(const char* name) {
  if (std::strcmp(name, "cuTensorMapEncodeTiled") == 0) return reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  return nullptr;
}

TensorMap decode(Block& block, const CUtensorMap& map) {
  TensorMap held;
  std::memcpy(&held, &map, sizeof(held));
  if (held.mark != mark) block.fail("TMA was given a tensor map that cuTensorMapEncodeTiled has not made");
  if (held.rank != 4) block.fail(fmt::format("4 coordinates for a tensor map of rank {}", held.rank));
  std::size_t extent = (std::size_t{held.last[0]} + 1) * held.element_bytes;
  for (std::size_t i = 1; i < held.rank; ++i) extent += held.last[i] * held.strides[i - 1];
  const Memory& memory = runtime().memory;
  if (memory.find(held.address) == nullptr || !memory.whole(held.address, extent)) {
    block.fail(fmt::format("a tensor map describes {} bytes at {}, which are no device memory", extent,
                           static_cast<void*>(held.address)));
  }
  return held;
}

std::size_t TensorMap::rows() const {
  return std::size_t{box[1]} * box[2] * box[3] * box[4];
}

namespace {

// Calls visit(row of the box, global address of its first element inside the tensor, that element's offset in the row,
// bytes inside) for each row that is inside.
template <class Visit>
void for_each_row(const TensorMap& map, const Coordinates& at, Visit visit) {
  const std::int64_t size = std::int64_t{map.last[0]} + 1;
  const std::int64_t begin = std::max<std::int64_t>(0, -std::int64_t{at[0]});
  const std::int64_t end = std::min<std::int64_t>(map.box[0], size - at[0]);
  if (begin >= end) return;
  const std::size_t rows = map.rows();
  for (std::size_t row = 0; row < rows; ++row) {
    std::size_t rest = row;
    char* global = map.address + (at[0] + begin) * map.element_bytes;
    bool inside = true;
    for (std::size_t i = 1; i < map.rank; ++i) {
      const std::int64_t position = at[i] + static_cast<std::int64_t>(rest % map.box[i]);
      rest /= map.box[i];
      inside = inside && position >= 0 && position <= map.last[i];
      if (inside) global += position * static_cast<std::int64_t>(map.strides[i - 1]);
    }
    if (inside) {
      visit(row, global, static_cast<std::size_t>(begin) * map.element_bytes,
            static_cast<std::size_t>(end - begin) * map.element_bytes);
    }
  }
}

// Calls visit(offset in the box, address in shared memory) for each 16 bytes.
template <class Visit>
void for_each_chunk(const TensorMap& map, const void* shared, Visit visit) {
  const std::uint32_t base = shared_address(shared);
  const auto bytes = static_cast<std::uint32_t>(map.box_bytes());
  for (std::uint32_t offset = 0; offset < bytes; offset += 16) {
    visit(offset, static_cast<char*>(shared_pointer(swizzled(base + offset, map.swizzle))));
  }
}

}  // namespace

void read_box(const TensorMap& map, const Coordinates& at, std::span<char> to) {
  std::fill(to.begin(), to.end(), 0);
  for_each_row(map, at, [&](std::size_t row, const char* global, std::size_t offset, std::size_t bytes) {
    std::memcpy(&to[row * map.row_bytes() + offset], global, bytes);
  });
}

void add_box(const TensorMap& map, const Coordinates& at, std::span<const char> from) {
  for_each_row(map, at, [&](std::size_t row, char* global, std::size_t offset, std::size_t bytes) {
    const char* source = &from[row * map.row_bytes() + offset];
    for (std::size_t i = 0; i < bytes; i += sizeof(float)) {
      float x, y;
      std::memcpy(&x, source + i, sizeof(float));
      std::memcpy(&y, global + i, sizeof(float));
      y += x;
      std::memcpy(global + i, &y, sizeof(float));
    }
  });
}

void to_shared(const TensorMap& map, std::span<const char> from, void* shared) {
  for_each_chunk(map, shared, [&](std::size_t offset, char* to) { std::memcpy(to, &from[offset], 16); });
}

void from_shared(const TensorMap& map, const void* shared, std::span<char> to) {
  for_each_chunk(map, shared, [&](std::size_t offset, const char* from) { std::memcpy(&to[offset], from, 16); });
}

}  // namespace cuda_emulator
