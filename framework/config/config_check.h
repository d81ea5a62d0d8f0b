// What must hold between keys, once each is valid on its own. Fills in the defaults that depend on other keys.
#pragma once

#include <string_view>

namespace ringtrain {

class ConfigProblems;
struct Config;

/// What a config is read for: to run it in this build, to plan a run of any build, or to know how a checkpoint came
/// about.
enum class ConfigUse { run, plan, know };

/// Adds a problem for each key whose path begins with `prefix` and whose value no file could give it: by the rules that
/// read a file's values, of a config that may be made in any other way.
void check_values(const Config& config, std::string_view prefix, ConfigProblems& problems);

/// Resolves num_key_value_heads, head_dim and, but where the token files decide it, data.longer, and adds a problem,
/// with all numbers at fault, for everything that does not fit together or, if it is to be run, that this build cannot
/// do. Keys that already have a problem are left alone.
void resolve_and_check(Config& config, ConfigUse use, ConfigProblems& problems);

}  // namespace ringtrain
