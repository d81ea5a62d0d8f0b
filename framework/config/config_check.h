// What must hold between keys, once each is valid on its own. Fills in the defaults that depend on other keys.
#pragma once

namespace ringtrain {

class ConfigProblems;
struct Config;

/// What a config is read for: to run it, or to know how a checkpoint came about, which another build may have made.
enum class ConfigUse { run, know };

/// Resolves num_key_value_heads and head_dim, and adds a problem, with all numbers at fault, for everything that does
/// not fit together or, if it is to be run, that this build cannot do. Keys that already have a problem are left alone.
void resolve_and_check(Config& config, ConfigUse use, ConfigProblems& problems);

}  // namespace ringtrain
