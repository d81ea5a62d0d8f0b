#include "train/run/metrics_lines.h"

#include <algorithm>
#include <cmath>

#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

constexpr std::size_t longest_line = std::size_t{32} << 20;

}  // namespace

double number_in(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : std::nan("");
}

void read_metrics_lines(const File& file, const std::function<void(const MetricsLine&)>& take) {
  const std::int64_t bytes = file.size();
  MetricsLine line;
  bool too_long = false;
  const auto end_line = [&](std::int64_t end, bool ended) {
    line.end = end;
    line.ended = ended;
    take(line);
    line.begin = end;
    line.text.clear();
    too_long = false;
  };
  std::string chunk;
  for (std::int64_t at = 0; at < bytes; at += std::ssize(chunk)) {
    chunk.resize(std::min<std::int64_t>(1 << 20, bytes - at));
    file.read_at(at, chunk.data(), chunk.size());
    for (std::size_t from = 0; from < chunk.size();) {
      const std::size_t end = std::min(chunk.find('\n', from), chunk.size());
      too_long = too_long || line.text.size() + (end - from) > longest_line;
      if (too_long) {
        line.text.clear();
      } else {
        line.text.append(chunk, from, end - from);
      }
      if (end < chunk.size()) end_line(at + static_cast<std::int64_t>(end) + 1, /*ended=*/true);
      from = end + 1;
    }
  }
  if (line.begin < bytes) end_line(bytes, /*ended=*/false);
}

std::optional<MetricsEntry> parse_metrics_line(std::string_view text) {
  MetricsEntry entry;
  try {
    entry.json = parse_strict_json(text);
    const std::optional<std::int64_t> step = whole_number(entry.json.at("step"));
    const nlohmann::json& kind = entry.json.at("kind");
    entry.evaluation = kind == "evaluation";
    if (!step || *step < 1 || !(entry.evaluation || kind == "train")) return std::nullopt;
    entry.step = *step;
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return entry;
}

}  // namespace ringtrain
