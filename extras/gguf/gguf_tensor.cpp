#include "extras/gguf/gguf_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "framework/storage/half.h"
#include "framework/storage/stored_tensor.h"

namespace ringtrain {

namespace {

constexpr std::int64_t block = 32;
constexpr std::uint32_t q4_0 = 2, q4_1 = 3, q8_0 = 8;
constexpr std::array types{GgufType{0, "F32", 1, 4},
                           GgufType{1, "F16", 1, 2},
                           GgufType{q4_0, "Q4_0", block, 2 + block / 2},
                           GgufType{q4_1, "Q4_1", block, 4 + block / 2},
                           GgufType{q8_0, "Q8_0", block, 2 + block},
                           GgufType{28, "F64", 1, 8},
                           GgufType{30, "BF16", 1, 2}};

constexpr std::array<std::pair<std::uint32_t, std::string_view>, 8> unread_types{
    {{6, "Q5_0"}, {7, "Q5_1"}, {10, "Q2_K"}, {11, "Q3_K"}, {12, "Q4_K"}, {13, "Q5_K"}, {14, "Q6_K"}, {15, "Q8_K"}}};

/// Returns the type of safetensors that a plain type is.
StoredType plain_type(const GgufType& type) {
  if (type.name == "F32") return StoredType::float32;
  if (type.name == "F64") return StoredType::float64;
  return type.name == "F16" ? StoredType::float16 : StoredType::bfloat16;
}

double float16_at(const char* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return static_cast<double>(float16_value(bits));
}

/// A block of 4-bit numbers: byte i holds element i in its low half and element i + 16 in its high half.
void decode_nibbles(const char* from, double scale, double low, double* to) {
  for (std::int64_t i = 0; i < block / 2; ++i) {
    const auto byte = static_cast<unsigned char>(from[i]);
    to[i] = (byte & 0xFU) * scale + low;
    to[i + block / 2] = (byte >> 4) * scale + low;
  }
}

}  // namespace

const GgufType* find_gguf_type(std::uint32_t number) {
  const auto* const known = std::ranges::find(types, number, &GgufType::number);
  return known == types.end() ? nullptr : known;
}

std::string gguf_type_name(std::uint32_t number) {
  if (const GgufType* const known = find_gguf_type(number)) return std::string(known->name);
  for (const auto& [unread, name] : unread_types) {
    if (unread == number) return std::string(name);
  }
  return fmt::format("number {} of GGUF", number);
}

void decode(const GgufType& type, const char* from, std::int64_t count, double* to) {
  if (type.elements == 1) return decode(plain_type(type), from, count, to);
  for (const double* const end = to + count; to < end; to += block, from += type.bytes) {
    const double scale = float16_at(from);
    if (type.number == q8_0) {
      for (std::int64_t i = 0; i < block; ++i) to[i] = scale * static_cast<signed char>(from[2 + i]);
    } else if (type.number == q4_0) {
      decode_nibbles(from + 2, scale, -8 * scale, to);
    } else {
      decode_nibbles(from + 4, scale, float16_at(from + 2), to);
    }
  }
}

}  // namespace ringtrain
