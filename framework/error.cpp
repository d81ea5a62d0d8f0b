#include "framework/error.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ringtrain {

namespace {

/// Returns whether a file is one of the library's own sources, by the name with which it was compiled.
bool is_our_own(std::string_view file) {
  constexpr std::string_view here = "framework/error.cpp";
  std::string_view root = CallerLine::current().file_name();
  if (!root.ends_with(here)) return false;
  root.remove_suffix(here.size());
  if (!file.starts_with(root)) return false;
  file.remove_prefix(root.size());
  constexpr std::array<std::string_view, 7> floors{"framework/", "data/",      "kernels/", "parallel/",
                                                   "layers/",    "reference/", "train/"};
  return std::ranges::any_of(floors, [&](std::string_view floor) { return file.starts_with(floor); });
}

}  // namespace

void refuse_call(const CallerLine& line, const std::string& sentence) {
  if (is_our_own(line.file_name())) {
    fail(ExitCode::internal, "{}:{}: internal error: {}", line.file_name(), line.line(), sentence);
  }
  fail(ExitCode::usage, "{}:{}: {}", line.file_name(), line.line(), sentence);
}

}  // namespace ringtrain
