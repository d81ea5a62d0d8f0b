// Which keys of the section model say what weights there are, and which only how they are used.
#pragma once

#include <string_view>

namespace ringtrain {

/// Returns whether weights fit a model just as well after a change of this key ("model.rope_theta"): scaling and base
/// of rotary positions, lengths, window, the norms' epsilon, how new weights would be drawn.
bool is_free_with_weights(std::string_view key);

/// Returns whether a key is a section's name, or one of its keys.
bool is_or_below(std::string_view key, std::string_view section);

}  // namespace ringtrain
