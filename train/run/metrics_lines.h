// metrics.jsonl as it is on disk: read line by line, with a limit, whatever it contains.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "framework/storage/files.h"

namespace ringtrain {

/// A line of a file, and its offsets.
struct MetricsLine {
  std::int64_t begin = 0, end = 0;  // bytes of the file, including the '\n'
  std::string text;                 // without its end; empty for a line longer than any that a run writes (32 MiB)
  bool ended = true;
};
/// Calls take(line) for each line of the file, up to its current length. Throws like File::read_at.
void read_metrics_lines(const File& file, const std::function<void(const MetricsLine&)>& take);

/// The contents of a line that train wrote.
// NOLINTNEXTLINE(bugprone-exception-escape): the JSON library's assertions
struct MetricsEntry {
  std::int64_t step = 0;  // from 1
  bool evaluation = false;
  nlohmann::json json;  // the whole object: nothing else in it is checked
};
/// Returns an object's number; NaN if it has none of that name.
double number_in(const nlohmann::json& object, const char* name);

/// Returns a line's contents; nothing for any other text.
std::optional<MetricsEntry> parse_metrics_line(std::string_view text);

}  // namespace ringtrain
