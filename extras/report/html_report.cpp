#include "extras/report/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "extras/report/page_parts.h"
#include "framework/allocator.h"
#include "framework/config/read_config.h"
#include "framework/config/training_stages.h"
#include "framework/counted.h"
#include "framework/error.h"
#include "framework/profile/progress.h"
#include "framework/storage/files.h"
#include "framework/storage/strict_json.h"
#include "layers/model_parameters.h"
#include "train/run/metrics_lines.h"

namespace ringtrain {

namespace {

using nlohmann::json;

// --- The run's facts.

std::string model_text(const ModelConfig& model) {
  const std::int64_t heads = model.num_attention_heads, groups = model.num_key_value_heads;
  return fmt::format("{}, {} of width {}, {}{}, vocabulary {}", name_of(model.architecture),
                     counted(model.num_hidden_layers, "layer"), model.hidden_size, counted(heads, "head"),
                     groups > 0 && groups != heads ? fmt::format(" ({} for keys and values)", groups) : "",
                     model.vocab_size);
}

std::string data_text(const DataConfig& data) {
  std::string text;
  for (const DataSource& source : data.train) text += (text.empty() ? "" : ", ") + source.path;
  return text;
}

std::string batch_text(const Config& config) {
  std::string text;
  for (int stage = 0; stage < stage_count(config.training); ++stage) {
    const TrainingConfig training = config_of_stage(config, stage).training;
    if (stage > 0) text += fmt::format("; from step {}: ", first_step_of(config.training, stage));
    text += fmt::format("{} tokens, {} per step", training.seq_len, counted(training.global_batch_size, "sequence"));
  }
  return text;
}

/// Returns names and texts, the same names for every run; "" for an unknown fact.
Rows facts_of(const ShownRun& shown) {
  const std::optional<Config>& config = shown.config;
  const json start = shown.metrics.starts.empty() ? json::object() : shown.metrics.starts.back();
  Rows rows{{"model", config ? model_text(config->model) : ""},
            {"parameters", config ? four_digits(static_cast<double>(make_parameter_table(config->model).count())) : ""},
            {"data", config ? data_text(config->data) : ""},
            {"sequence, batch", config ? batch_text(*config) : ""},
            {"folder", shown.folder}};
  for (const char* name : {"mesh", "layout", "ranks", "host", "device", "build"}) {
    rows.push_back({name, text_in(start, name)});
  }
  rows.push_back({"cores", four_digits(number_in(start, "cores"))});
  return rows;
}

/// Returns a table with a row for each known fact and a column for each run.
std::string what_ran(const ShownRuns& runs) {
  Rows rows{{""}};
  std::vector<Rows> facts;
  for (const ShownRun& shown : runs) {
    rows[0].push_back(runs.size() == 1 ? "" : shown.name);
    facts.push_back(facts_of(shown));
  }
  for (std::size_t i = 0; i < facts[0].size(); ++i) {
    std::vector<std::string> row{facts[0][i][0]};
    for (const Rows& of_run : facts) row.push_back(of_run[i][1].empty() ? "-" : of_run[i][1]);
    if (std::ranges::count(row, "-") < std::ssize(runs)) rows.push_back(std::move(row));
  }
  return heading("What ran") + table(rows, "facts");
}

// --- Memory.

/// Returns the memory of the rank with the most, by tag; "" if no line has it.
std::string memory_part(const ShownRun& shown) {
  if (!shown.metrics.peaks.is_array()) return "";
  const auto& peaks = shown.metrics.peaks.get_ref<const json::array_t&>();
  const auto total = [](const json& peak) { return std::max(-1.0, number_in(peak, "total")); };  // -1: none
  const auto highest = std::ranges::max_element(peaks, {}, total);
  if (highest == peaks.end() || total(*highest) < 0) return "";
  Rows rows{{"", "peak memory"}};
  const auto add = [&](const char* name) {
    const double bytes = number_in(*highest, name);
    if (std::isfinite(bytes)) rows.push_back({name, human_bytes(bytes)});
  };
  for (int tag = 0; tag < tag_count; ++tag) add(name_of(static_cast<Tag>(tag)));
  add("total");
  return heading("Memory") + table(rows) +
         remark(fmt::format("Rank {}, which has the highest peak of {}.", highest - peaks.begin(),
                            counted(std::ssize(peaks), "rank")));
}

// --- Training.

std::string curves(const ShownRuns& runs) {
  struct Curve {
    const char *title, *unit;
    std::string_view field;
    double scale;
    bool marked;
  };
  std::vector<ChartMark> marks;
  for (const ShownRun& shown : runs) {
    for (const RunEvent& event : events_of(shown)) marks.push_back({static_cast<double>(event.row->step), event.kind});
  }
  std::string figures;
  for (const Curve& curve :
       {Curve{"Loss", "nats per token", "loss", 1, true}, Curve{"Gradient norm", "", "grad_norm", 1, true},
        Curve{"Learning rate", "", "lr", 1, false}, Curve{"Tokens per second", "", "tokens_per_second", 1, true},
        Curve{"MFU", "% of the peak", "mfu", 100, true},
        Curve{"Loss", "standard deviations from the steps before", "loss_z", 1, true},
        Curve{"Gradient norm", "standard deviations from the steps before", "grad_norm_z", 1, true},
        Curve{"Waiting for the ring", "seconds of rank 0 per step", "ring_wait_seconds", 1, false}}) {
    Chart chart{.title = curve.title, .unit = curve.unit, .smooth = curve.field != "lr"};
    if (curve.marked) chart.marks = marks;
    for (const ShownRun& shown : runs) {
      ChartSeries series{runs.size() > 1 ? shown.name : "", points_of(shown, curve.field)};
      for (ChartPoint& point : series.points) point.y *= curve.scale;
      chart.series.push_back(std::move(series));
    }
    figures += chart_figure(chart);
  }
  std::string words =
      "By step; the last value is next to each name. A thick line is an average over a fiftieth of the steps.";
  for (const auto& [name, mark, what] : mark_kinds) {
    if (std::ranges::count(marks, name, &ChartMark::kind) > 0) words += fmt::format(" {}: {}.", mark, what);
  }
  return heading("Training") + remark(words) + figure_grid(figures);
}

std::string events_part(const ShownRun& shown) {
  constexpr std::size_t most = 40;
  const std::vector<RunEvent> events = events_of(shown);
  if (events.empty()) return "";
  Rows rows{{"step", "what happened", "loss", "gradient norm"}};
  for (std::size_t i = 0; i < std::min(most, events.size()); ++i) {
    const auto& [row, kind, detail] = events[i];
    const std::string_view words = std::ranges::find(mark_kinds, kind, &MarkKind::name)->words;
    rows.push_back({fmt::format("{}", row->step), fmt::format("{}{}", words, detail),
                    four_digits(row->numbers.at("loss")), four_digits(row->numbers.at("grad_norm"))});
  }
  return heading(fmt::format("Events: {}", events.size())) + table(rows, "events") +
         (events.size() > most ? remark(fmt::format("The first {} of {}.", most, events.size())) : "");
}

/// Returns a chart of a rank's waits for the messages of each hop, for the last step that has them.
std::string ring_part(const ShownRun& shown) {
  const json& ring = shown.metrics.ring;
  if (!ring.is_object()) return "";
  Chart chart{.title = "Waiting by hop", .unit = "seconds; the last value is the wait at the end", .x_name = "hop"};
  std::string imbalance;
  for (const char* name : {"forward", "backward"}) {
    const json pass = ring.value(name, json::object());
    ChartSeries series{name, {}};
    for (const json& wait : pass.value("hop_wait_seconds", json::array())) {
      const auto hop = static_cast<double>(series.points.size());
      if (wait.is_number()) series.points.push_back({hop, wait.get<double>()});
    }
    imbalance += fmt::format(" {} {},", name, four_digits(number_in(pass, "time_imbalance")));
    chart.series.push_back(std::move(series));
  }
  imbalance.back() = '.';
  return heading(fmt::format("The ring in step {}", json_text(ring.value("step", json())))) +
         remark("The busiest rank's time over the mean:" + imbalance) + figure_grid(chart_figure(chart));
}

// --- Configs.

std::string config_part(const ShownRuns& runs) {
  if (std::ranges::any_of(runs, [](const ShownRun& shown) { return !shown.config; })) return "";
  const bool two = runs.size() > 1;
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): every run has a config here
  const auto found = differences(two ? *runs[0].config : Config{}, *runs.back().config);
  Rows rows{{"key", two ? runs[0].name : "default", two ? runs[1].name : "value"}};
  for (const auto& [key, before, after] : found) rows.push_back({key, before, after});
  const std::string title = heading(two ? "What differs in their configs" : "Config, where it is not the default");
  return title + (found.empty() ? "<p>Nothing.</p>\n" : table(rows, "facts"));
}

std::string page_of_one(const ShownRuns& runs) {
  const ShownRun& run = runs[0];
  return fmt::format("<h1>{}</h1>\n", escaped(run.name)) + tiles(run) + "<div class=\"halves\">\n<div>" +
         what_ran(runs) + "</div>\n<div>" + memory_part(run) + "</div>\n</div>\n" + curves(runs) + events_part(run) +
         evaluation_part(runs) + ring_part(run) + config_part(runs);
}

std::string page_of_two(const ShownRuns& runs) {
  return fmt::format("<h1><span class=\"sa\">{}</span> and <span class=\"sb\">{}</span></h1>\n", escaped(runs[0].name),
                     escaped(runs[1].name)) +
         comparison(runs[0], runs[1]) + config_part(runs) + what_ran(runs) + curves(runs) + evaluation_part(runs);
}

}  // namespace

RunReport html_report(ShownRuns runs) {
  ensure(!runs.empty() && runs.size() <= 2, "a page has one run or two");
  RunReport report;
  for (ShownRun& shown : runs) {
    const std::string path = shown.folder + "/metrics.jsonl";
    shown.name = file_name(shown.folder);
    shown.metrics = read_run_metrics(path);
    if (shown.metrics.skipped == 0) continue;
    report.warning += fmt::format("{}{}:{}: the page leaves out {} without metrics of a run; this is the first",
                                  report.warning.empty() ? "" : "; ", path, shown.metrics.first_skipped,
                                  counted(shown.metrics.skipped, "line"));
  }
  const bool two = runs.size() > 1;
  if (two && runs[0].name == runs[1].name) {
    for (ShownRun& shown : runs) shown.name = shown.folder;
  }
  report.page = page_head(report_head, two ? runs[0].name + " and " + runs[1].name : runs[0].name);
  if (!report.warning.empty()) report.page += "<p class=\"warn\">" + escaped(report.warning) + ".</p>\n";
  report.page += (two ? page_of_two(runs) : page_of_one(runs)) + "</body></html>\n";
  return report;
}

}  // namespace ringtrain
