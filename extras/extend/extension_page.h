// What came of an extension, as a page and as text: verdicts, nll by position and by context, and of numbers that stand
// in a text. Numbers of different targets never share a table or a verdict.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain {

/// The evaluations whose files (NAME.json, NAME.jsonl) lie in an extension's folder; -short: of short windows.
inline constexpr std::array evaluation_names{"before",       "scaled",       "after",
                                             "before-short", "scaled-short", "after-short"};

struct ExtensionPage {
  std::string html, text;
};

/// facts: rows of a table at the top. Throws Error(usage) if a file of an evaluation is missing or has another form.
ExtensionPage extension_page(const std::string& folder, std::int64_t from, std::int64_t to,
                             const std::vector<std::vector<std::string>>& facts);

}  // namespace ringtrain
