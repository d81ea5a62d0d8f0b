// metrics.jsonl as it lies on a disk: line by line, bounded, whatever it holds.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "framework/storage/files.h"

namespace ringtrain {

/// A line of a file, and where it stands.
struct MetricsLine {
  std::int64_t begin = 0, end = 0;  // bytes of the file, its '\n' included
  std::string text;                 // without its end; none of a line that is longer than any of a run (32 MiB)
  bool ended = true;
};
/// Calls take(line) for each line of a file as long as it is now. Throws as File::read_at does.
void read_metrics_lines(const File& file, const std::function<void(const MetricsLine&)>& take);

/// What a line says if train wrote it.
struct MetricsEntry {
  std::int64_t step = 0;  // from 1 on
  bool evaluation = false;
  nlohmann::json json;  // the whole object: nothing else of it is checked
};
/// Returns an object's number; NaN if it has none of that name.
double number_in(const nlohmann::json& object, const char* name);

/// Returns what a line says; nothing of any other text.
std::optional<MetricsEntry> parse_metrics_line(std::string_view text);

}  // namespace ringtrain
