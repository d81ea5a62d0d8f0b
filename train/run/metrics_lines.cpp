#include "train/run/metrics_lines.h"

#include <algorithm>

#include "framework/storage/strict_json.h"

namespace ringtrain {

double number_in(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : std::nan("");
}

void read_metrics_lines(const File& file, const std::function<void(const MetricsLine&)>& take) {
  constexpr std::size_t longest_line = std::size_t{32} << 20;
  const std::int64_t bytes = file.size();
  MetricsLine line;
  const auto end_line = [&](bool ended) {
    if (line.text.size() > longest_line) line.text.clear();
    line.ended = ended;
    take(line);
    line.begin = line.end;
    line.text.clear();
  };
  std::string chunk;
  for (std::int64_t at = 0; at < bytes; at += std::ssize(chunk)) {
    chunk.resize(std::min<std::int64_t>(1 << 20, bytes - at));
    file.read_at(at, chunk.data(), chunk.size());
    for (const char byte : chunk) {
      ++line.end;
      if (byte == '\n') {
        end_line(/*ended=*/true);
      } else if (line.text.size() <= longest_line) {
        line.text += byte;
      }
    }
  }
  if (line.begin < bytes) end_line(/*ended=*/false);
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
