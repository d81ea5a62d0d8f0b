#include "train/engine/memory_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "framework/error.h"
#include "framework/profile/progress.h"

namespace ringtrain {

namespace {

/// Tensors of one tag whose names differ in numbers alone ("layers.3.input") and that have one shape: one line.
struct Line {
  Tag tag;
  std::string name;
  DType dtype;
  Shape shape;
  std::size_t bytes = 0;
  std::int64_t count = 0;
};

/// Returns a name with * for every run of digits.
std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit || !pattern.ends_with('*')) pattern += is_digit ? '*' : c;
  }
  return pattern;
}

std::vector<Line> lines_of(const RankPlan& plan) {
  std::vector<Line> lines;
  for (const PlannedTensor& tensor : plan.tensors) {
    const std::string pattern = pattern_of(tensor.name);
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& line) {
      return line.tag == tensor.tag && line.name == pattern && line.shape == tensor.shape && line.dtype == tensor.dtype;
    });
    if (same != lines.end()) {
      same->bytes += tensor.bytes;
      ++same->count;
    } else {
      lines.push_back({tensor.tag, pattern, tensor.dtype, tensor.shape, tensor.bytes, 1});
    }
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.tag < b.tag; });
  return lines;
}

std::string text_of(const RankPlan& plan) {
  std::string text;
  const auto add = [&](const char* name, std::size_t bytes) {
    text += fmt::format("  {:<13} {:>15} bytes  {:>10}\n", name, bytes, human_bytes(static_cast<double>(bytes)));
  };
  const std::vector<Line> lines = lines_of(plan);
  for (int i = 0; i < tag_count; ++i) {
    const Tag tag = static_cast<Tag>(i);
    add(name_of(tag), plan.peak[tag]);
    for (const Line& line : lines) {
      if (line.tag != tag) continue;
      text += fmt::format("    {:<11} {:>15}        {} {} {}{}\n", "", line.bytes, line.name, name_of(line.dtype),
                          line.shape.to_string(), line.count > 1 ? fmt::format(" x {}", line.count) : "");
    }
  }
  add("total", plan.peak.total);
  if (plan.host.total > 0) add("host besides", plan.host.total);
  return text;
}

/// Returns "0, 1, 2"; of many the first few and how many more.
std::string names_of(const std::vector<int>& ranks) {
  constexpr std::size_t most = 64, few = 8;
  const auto shown = std::span(ranks).first(ranks.size() <= most ? ranks.size() : few);
  const std::size_t more = ranks.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

std::string memory_report(const std::vector<RankPlan>& plans) {
  std::string report;
  std::size_t ranks = 0;
  for (const RankPlan& plan : plans) {
    ranks += plan.ranks.size();
    report += fmt::format("memory of {} {}\n{}", plan.ranks.size() > 1 ? "each of the ranks" : "rank",
                          names_of(plan.ranks), text_of(plan));
  }
  return report + fmt::format("memory of all {} ranks: {} bytes, {}\n", ranks, total_bytes(plans),
                              human_bytes(static_cast<double>(total_bytes(plans))));
}

std::size_t total_bytes(const std::vector<RankPlan>& plans) {
  std::size_t sum = 0;
  for (const RankPlan& plan : plans) sum += plan.ranks.size() * plan.peak.total;
  return sum;
}

void require_memory(const std::vector<RankPlan>& plans, std::int64_t available, const std::string& where) {
  const std::size_t needed = total_bytes(plans);
  if (needed <= static_cast<std::size_t>(std::max<std::int64_t>(available, 0))) return;
  const RankPlan& largest = *std::max_element(
      plans.begin(), plans.end(), [](const RankPlan& a, const RankPlan& b) { return a.peak.total < b.peak.total; });
  std::set<int> ranks;  // each once, though it may have several plans
  for (const RankPlan& plan : plans) ranks.insert(plan.ranks.begin(), plan.ranks.end());
  std::string tags;
  for (int i = 0; i < tag_count; ++i) {
    const Tag tag = static_cast<Tag>(i);
    tags += fmt::format("{}{} {}", i ? ", " : "", name_of(tag), human_bytes(static_cast<double>(largest.peak[tag])));
  }
  fail(ExitCode::usage,
       "the plan does not fit: {} ranks need {} ({} bytes) together, but {} ({} bytes){} are available; rank {} needs "
       "{} ({}); use a smaller training.seq_len, training.micro_batch_size or training.loss_chunk, a "
       "training.recompute that keeps less, training.shard: weights, a smaller mesh.data or model (see --dry-run)",
       ranks.size(), human_bytes(static_cast<double>(needed)), needed, human_bytes(static_cast<double>(available)),
       available, where, largest.ranks.front(), human_bytes(static_cast<double>(largest.peak.total)), tags);
}

}  // namespace ringtrain
