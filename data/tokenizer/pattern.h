// Regular expressions of tokenizers, written out for PCRE2. Tokenizers run theirs with Oniguruma or with Rust's
// fancy-regex, which read some constructs in other ways than PCRE2: \w, \h, ^, set operations, intervals that end in +.
// What all of them read alike goes through, and anything else is refused: no pattern means something else in silence.
#pragma once

#include <string>

namespace ringtrain {

/// Returns the pattern for PCRE2 with PCRE2_UTF and PCRE2_UCP. Throws Error(data) that begins with `where` and names
/// what the engines read in different ways.
std::string pattern_for_pcre(const std::string& pattern, const std::string& where);

}  // namespace ringtrain
