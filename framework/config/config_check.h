// Checks conditions between keys, once each key is valid by itself. Fills in the defaults that depend on other keys.
#pragma once

#include <string_view>

namespace ringtrain {

class ConfigProblems;
struct Config;

/// Why a config is read: to run it in this build, to plan a run of any build, or to find out how a checkpoint was made.
enum class ConfigUse { run, plan, know };

/// Adds a problem for each key whose path begins with `prefix` and whose value a file could not contain. It applies the
/// rules that read a file's values to a config that was made in any other way.
void check_values(const Config& config, std::string_view prefix, ConfigProblems& problems);

/// Resolves num_key_value_heads, head_dim, and data.longer (unless the token files decide it). Adds a problem, with all
/// numbers involved, for everything that does not fit together or, if the config is to be run, that this build cannot
/// do. Does not touch keys that already have a problem.
void resolve_and_check(Config& config, ConfigUse use, ConfigProblems& problems);

}  // namespace ringtrain
