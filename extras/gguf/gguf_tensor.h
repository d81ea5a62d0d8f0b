// Tensors of a GGUF file: where they lie, and their element types, plain or in blocks of quantized numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// A type that is read. Blocks of Q8_0 and Q4_0 hold one float16 scale, those of Q4_1 also a float16 minimum.
struct GgufType {
  std::uint32_t number;  // in the file
  std::string_view name;
  std::int64_t elements, bytes;  // of a block; a plain type has blocks of 1 element
};

/// Returns the type with a number, null if it is not read.
const GgufType* find_gguf_type(std::uint32_t number);
/// Returns the name of any type, read or not.
std::string gguf_type_name(std::uint32_t number);

/// Writes the `count` numbers of whole blocks to `to`, exactly. from may have any alignment.
void decode(const GgufType& type, const char* from, std::int64_t count, double* to);

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;   // null: not read
  std::string type_name;            // for messages
  std::vector<std::int64_t> shape;  // outermost dimension first, row-major; the file has it the other way round
  std::int64_t offset = 0;          // bytes, from the file's start
  std::int64_t bytes = 0;           // 0 if the type is not read
};

}  // namespace ringtrain
