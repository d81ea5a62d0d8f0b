// The JSON of a safetensors header: any text is a list of entries or an exception. Used by safetensors.cpp alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// One tensor, as the header says and nobody has checked. Bytes count from the start of the data.
struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

/// Returns the tensors of a header, sorted by name. Throws std::runtime_error with what is wrong: no UTF-8, no JSON
/// object, a name or a member twice, a member missing or of another type, __metadata__ that is not text to text.
/// Members that the format does not know are passed over; lists and objects in them may nest 16 deep.
std::vector<SafetensorsEntry> parse_safetensors_json(std::string_view header);

}  // namespace ringtrain
