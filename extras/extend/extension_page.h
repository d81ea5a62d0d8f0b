// The results of an extension, as a page and as text: verdicts, nll by position and by context, and nll of numbers in a
// text. Numbers for different targets are never in the same table or verdict.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain {

/// The evaluations whose files (NAME.json, NAME.jsonl) are in an extension's folder; -short: of short windows.
inline constexpr std::array evaluation_names{"before",       "scaled",       "after",
                                             "before-short", "scaled-short", "after-short"};

struct ExtensionPage {
  std::string html, text;
};

/// facts: rows of a table at the top. Throws Error(usage) if a file of an evaluation is missing or invalid.
ExtensionPage extension_page(const std::string& folder, std::int64_t from, std::int64_t to,
                             const std::vector<std::vector<std::string>>& facts);

}  // namespace ringtrain
