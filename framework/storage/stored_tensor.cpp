#include "framework/storage/stored_tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "framework/dtype.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/half.h"
#include "framework/storage/plain_text.h"

namespace ringtrain {

static_assert(std::endian::native == std::endian::little, "files of weights are little-endian, and read as they are");

namespace {

template <class T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Widens or rounds elements that are stored as T.
template <class T, class Real>
void decode_as(const char* from, std::int64_t count, Real* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<Real>(widened(load<T>(from + i * std::int64_t{sizeof(T)})));
  }
}

template <class Real>
void decode_float16(const char* from, std::int64_t count, Real* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Real>(float16_value(load<std::uint16_t>(from + 2 * i)));
}

template <class Real>
std::uint16_t half_bits(StoredType type, Real value) {
  return type == StoredType::float16 ? float16_bits(value) : bfloat16_bits(value);
}

}  // namespace

std::int64_t stored_bytes(StoredType type, std::int64_t elements) {
  ensure(type != StoredType::unsupported, "a tensor of an unsupported type has no known size");
  return elements * (type == StoredType::float64 ? 8 : type == StoredType::float32 ? 4 : 2);
}

template <class Real>
void decode(StoredType type, const char* from, std::int64_t count, Real* to) {
  if (type == StoredType::float64) return decode_as<double>(from, count, to);
  if (type == StoredType::float32) return decode_as<float>(from, count, to);
  if (type == StoredType::float16) return decode_float16(from, count, to);
  ensure(type == StoredType::bfloat16, "a tensor of an unsupported type is not read");
  decode_as<BFloat16>(from, count, to);
}

template <class Real>
void encode(StoredType type, const Real* from, std::int64_t count, char* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (type == StoredType::float32) {
      const auto value = static_cast<float>(from[i]);
      std::memcpy(to + 4 * i, &value, 4);
    } else {
      const std::uint16_t bits = half_bits(type, from[i]);
      std::memcpy(to + 2 * i, &bits, 2);
    }
  }
}

template void decode(StoredType, const char*, std::int64_t, float*);
template void decode(StoredType, const char*, std::int64_t, double*);
template void encode(StoredType, const float*, std::int64_t, char*);
template void encode(StoredType, const double*, std::int64_t, char*);

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::uint64_t product = 1;  // for [2^62, 2, 0] it exceeds the range of a signed number
  for (const std::int64_t size : shape) product *= static_cast<std::uint64_t>(size);
  return static_cast<std::int64_t>(product);
}

const StoredTensor* StoredTensors::find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

void StoredTensors::add_file(const File& file) {
  files.push_back(file.path());
  stamps.push_back(file.stamp());
}

File StoredTensors::open(std::size_t file) const {
  File opened = File::open(files[file], ExitCode::checkpoint);
  require_unchanged(opened, stamps[file]);
  return opened;
}

void StoredTensorReader::read_bytes(std::int64_t offset, std::int64_t bytes) {
  // The system's own read-ahead leaves a disk of 1.6 GB/s idle for more than half of the time (measured).
  constexpr std::int64_t ahead = std::int64_t{16} << 20;
  const bool goes_on = offset == end_;
  end_ = offset + bytes;
  if (!goes_on) {
    prefetched_ = end_;
  } else if (prefetched_ < end_ + ahead / 2) {
    const std::int64_t from = std::max(prefetched_, end_);
    prefetched_ = end_ + ahead;
    file_.prefetch(from, prefetched_ - from);
  }
  bytes_.resize(bytes);
  file_.read_at(offset, bytes_.data(), bytes_.size());
}

template <class Real>
void StoredTensorReader::read(const StoredTensor& tensor, std::int64_t begin, std::int64_t count, Real* to) {
  if (tensor.type == StoredType::unsupported) {
    fail(ExitCode::checkpoint, "{}: {} is of type {}, which cannot be read; convert it to F32, F16 or BF16",
         tensors_.files[tensor.file], plain_text(tensor.name), plain_text(tensor.type_name));
  }
  if (!file_.is_open() || opened_ != tensor.file) {
    file_ = tensors_.open(tensor.file);
    opened_ = tensor.file;
    end_ = -1;
  }
  constexpr std::int64_t most = std::int64_t{1} << 17;
  while (count > 0) {
    const std::int64_t part = std::min(count, most);
    read_bytes(tensor.offset + stored_bytes(tensor.type, begin), stored_bytes(tensor.type, part));
    decode(tensor.type, bytes_.data(), part, to);
    begin += part;
    count -= part;
    to += part;
  }
  require_unchanged(file_, tensors_.stamps[tensor.file]);
}

template void StoredTensorReader::read(const StoredTensor&, std::int64_t, std::int64_t, float*);
template void StoredTensorReader::read(const StoredTensor&, std::int64_t, std::int64_t, double*);

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace ringtrain
