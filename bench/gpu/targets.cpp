#include "bench/gpu/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

namespace ringtrain::bench {

namespace {

enum class Better { higher, lower };

/// Returns whether parameters contain all of `wanted` with these values.
bool has(const Json& parameters, const Json& wanted) {
  return std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& item) {
    return parameters.contains(item.key()) && parameters[item.key()] == item.value();
  });
}

struct Found {
  double value;
  std::string note;
};
std::optional<Found> find(const Json& report, const std::string& group, const std::string& name, const Json& wanted) {
  if (report.is_null()) return std::nullopt;
  for (const Json& row : report["rows"]) {
    if (row["group"] == group && row["name"] == name && has(row["parameters"], wanted)) {
      return Found{row["value"].get<double>(), row.value("note", std::string())};
    }
  }
  return std::nullopt;
}

class Table {
 public:
  void add(const std::string& what, double must, double aim, Better better, const std::optional<Found>& found) {
    Json row{{"what", what}, {"must", must}, {"aim", aim}, {"measured", nullptr}, {"verdict", "not measured"}};
    if (found) {
      const auto reaches = [&](double bound) {
        return better == Better::higher ? found->value >= bound : found->value <= bound;
      };
      row["measured"] = found->value;
      row["verdict"] = reaches(aim) ? "aim reached" : reaches(must) ? "reached" : "MISSED";
      if (!found->note.empty()) row["note"] = found->note;
      verdicts_.missed += reaches(must) ? 0 : 1;
    } else {
      ++verdicts_.unmeasured;
    }
    verdicts_.rows.push_back(row);
  }
  /// Prints a figure without a target.
  void print(const std::string& what, const std::optional<Found>& found) {
    if (!found) return;
    verdicts_.rows.push_back(
        {{"what", what}, {"must", nullptr}, {"aim", nullptr}, {"measured", found->value}, {"verdict", ""}});
  }
  Verdicts take() { return std::move(verdicts_); }

 private:
  Verdicts verdicts_;
};

std::string number(const Json& value) {
  return value.is_null() ? "" : fmt::format("{:.4g}", value.get<double>());
}

/// Returns the faster of the baseline's backends for a shape.
std::optional<Found> fastest_baseline(const Json& baseline, const std::string& direction, const Json& shape) {
  std::optional<Found> best;
  for (const char* const backend : {"cudnn", "flash"}) {
    const auto found = find(baseline, "sdpa", std::string(backend) + " " + direction, shape);
    if (found && (!best || found->value > best->value)) best = found;
  }
  return best;
}

}  // namespace

Verdicts judge(const Json& bench, const Json& baseline) {
  Table table;
  const Json shape{{"causal", true}, {"D", 128}, {"S", 8192}, {"H", 16}, {"G", 16}};
  table.add("attention forward, head 128, causal, 8K, TFLOP/s", 450, 660, Better::higher,
            find(bench, "attention", "forward", shape));
  table.add("attention backward, head 128, causal, 8K, TFLOP/s", 350, 575, Better::higher,
            find(bench, "attention", "backward", shape));
  for (const int G : {16, 8}) {
    Json at = shape;
    at["G"] = G;
    table.add(fmt::format("deterministic backward over the default one, G {}", G), 0.85, 0.95, Better::higher,
              find(bench, "attention", "deterministic over default", at));
  }
  for (const auto& [name, context, aim] :
       {std::tuple{"8K", 8192, 50.0}, {"64K", 65536, 48.0}, {"256K", 262144, 48.0}}) {
    table.add(fmt::format("1B model, MFU at {}, %", name), 35, aim, Better::higher,
              find(bench, "scaling", "MFU", {{"context", context}}));
  }
  std::optional<Found> longest;
  for (const Json& row : bench["rows"]) {
    if (row["name"] != "plan fits" || row["value"] == 0.0) continue;
    const auto context = row["parameters"]["context"].get<double>();
    if (!longest || context > longest->value) longest = Found{context, "by its plan: see \"timed step\" for what ran"};
  }
  table.add("longest context of the 1B model that fits the card, tokens", 1 << 20, 1 << 21, Better::higher, longest);
  for (const int ranks : {2, 4, 8}) {
    const bool long_shards = ranks < 8;
    table.add(fmt::format("ring of {} on one card over one rank, pass, same tokens", ranks), long_shards ? 1.05 : 1.15,
              long_shards ? 1.02 : 1.05, Better::lower, find(bench, "ring", "pass over one rank", {{"ranks", ranks}}));
  }
  for (const char* const direction : {"forward", "backward"}) {
    for (const int S : {2048, 8192, 32768}) {
      Json at = shape;
      at["S"] = S;
      const auto ours = find(bench, "attention", direction, at), theirs = fastest_baseline(baseline, direction, at);
      if (!ours || !theirs) continue;
      table.print(fmt::format("attention {}, head 128, causal, S {}: over PyTorch's faster SDPA", direction, S),
                  Found{ours->value / theirs->value, ""});
    }
  }
  return table.take();
}

std::string text_of(const Verdicts& verdicts) {
  std::string text = fmt::format("{:<76} {:>10} {:>10} {:>10}  {}\n", "what", "must", "aim", "measured", "verdict");
  for (const Json& row : verdicts.rows) {
    text += fmt::format("{:<76} {:>10} {:>10} {:>10}  {}{}\n", row["what"].get<std::string>(), number(row["must"]),
                        number(row["aim"]), number(row["measured"]), row["verdict"].get<std::string>(),
                        row.contains("note") ? "  # " + row["note"].get<std::string>() : "");
  }
  return text;
}

}  // namespace ringtrain::bench
