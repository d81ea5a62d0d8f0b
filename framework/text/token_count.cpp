#include "framework/text/token_count.h"

#include <limits>

#include "framework/text/text_reader.h"

namespace ringtrain {

std::optional<std::int64_t> token_count(std::string_view text) {
  std::int64_t unit = 1;
  if (text.ends_with('K') || text.ends_with('k')) unit = 1024;
  if (text.ends_with('M') || text.ends_with('m')) unit = 1024 * 1024;
  if (unit > 1) text.remove_suffix(1);
  if (text.size() > 1 && text.front() == '0') return std::nullopt;  // YAML 1.1 would read it as octal
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::optional<std::int64_t> count = number_of<std::int64_t>(text);
  return count && *count >= 0 && *count <= most / unit ? std::optional(*count * unit) : std::nullopt;
}

}  // namespace ringtrain
