// The page of all config keys, generated from their table: docs/configuration.md, and what `train --help-config`
// prints.
#pragma once

#include <string>

namespace ringtrain {

/// Returns the page as Markdown: one section each, and for each key its default, its possible values, and its meaning.
std::string config_reference();

}  // namespace ringtrain
