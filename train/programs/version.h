// The output of `--version`: which ringtrain this is, from which commit, and how it was built.
#pragma once

#include <string>

namespace ringtrain {

/// Returns two lines without a newline at the end: "ringtrain 0.2.0 (commit 0123456789ab)" and the build's options. The
/// commit is "unknown" if the sources were not a git checkout, and ends in "+" if files differed from it.
std::string version_text();

}  // namespace ringtrain
