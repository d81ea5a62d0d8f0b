// "Did you mean ...?": the known name that a misspelt one is most like. For keys of a config and flags of a program.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// Returns the number of letters to insert, delete, replace, or swap with the next to turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate most like name, or "" if none is near: at most 2 edits, or a third of the name's letters.
/// Of several equally near ones it returns the first.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace ringtrain
