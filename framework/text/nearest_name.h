// "Did you mean ...?": finds the known name nearest to a misspelled one. For keys of a config and flags of a program.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// Returns the number of edits that turn a into b: inserting, deleting, or replacing a letter, or swapping two adjacent
/// ones.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to name, or "" if none is near: at most 2 edits, or a third of the name's letters. If
/// several are equally near, it returns the first.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace ringtrain
