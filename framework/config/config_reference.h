// The page of all config keys, made from their table: docs/configuration.md, and what `train --help-config` prints.
#pragma once

#include <string>

namespace ringtrain {

/// Returns the page as Markdown: a section each, and for each key its default, the values it takes, and its meaning.
std::string config_reference();

}  // namespace ringtrain
