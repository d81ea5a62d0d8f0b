// Rewrites regular expressions of tokenizers for PCRE2. Tokenizers run theirs with Oniguruma or with Rust's
// fancy-regex, which interpret some constructs differently from PCRE2: \w, \h, ^, set operations, and intervals that
// end in +. Constructs that mean the same to all of them are kept; anything else is refused, so no pattern silently
// changes its meaning.
#pragma once

#include <string>

namespace ringtrain {

/// Returns the pattern for PCRE2 with PCRE2_UTF and PCRE2_UCP. Throws Error(data) that begins with `where` and names
/// the construct that the engines interpret differently.
std::string pattern_for_pcre(const std::string& pattern, const std::string& where);

}  // namespace ringtrain
