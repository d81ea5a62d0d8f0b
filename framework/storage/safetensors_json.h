// The JSON of a safetensors header: any text yields a list of entries or an exception. Used only by safetensors.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// One tensor as the header describes it, unchecked. Bytes count from the start of the data.
struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

/// Returns the tensors of a header, sorted by name. Throws std::runtime_error that describes the problem: text that is
/// not UTF-8 or not a JSON object, a duplicate name or member, a member that is missing or has another type, or
/// __metadata__ that does not map text to text. Members that the format does not define are skipped; lists and objects
/// in them may be nested 16 deep.
std::vector<SafetensorsEntry> parse_safetensors_json(std::string_view header);

}  // namespace ringtrain
