// What `--version` prints: which ringtrain this is, of which commit, and how it was built.
#pragma once

#include <string>

namespace ringtrain {

/// Returns two lines without a newline at the end: "ringtrain 0.2.0 (commit 0123456789ab)" and the build's options. The
/// commit is "unknown" where the sources were no git checkout, and ends in "+" where files differed from it.
std::string version_text();

}  // namespace ringtrain
