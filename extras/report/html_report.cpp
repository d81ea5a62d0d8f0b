#include "extras/report/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "extras/report/evaluate_part.h"
#include "extras/report/page_parts.h"
#include "extras/report/shown_run.h"
#include "framework/config/read_config.h"
#include "framework/config/training_stages.h"
#include "framework/counted.h"
#include "framework/error.h"
#include "framework/profile/progress.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using nlohmann::json;

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

// --- What ran.

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

std::string machine_text(const json& start) {
  std::string text = text_in(start, "host");
  if (const std::string device = text_in(start, "device"); !device.empty()) text += (text.empty() ? "" : ": ") + device;
  if (const double cores = number_in(start, "cores"); cores > 0) text += fmt::format(", {:.0f} cores", cores);
  return or_dash(text);
}

std::string mesh_text(const json& start) {
  std::string text = text_in(start, "mesh");
  for (const char* more : {"layout", "ranks"}) {
    if (const std::string part = text_in(start, more); !part.empty()) text += ", " + part;
  }
  return or_dash(text);
}

std::string duration_text(const ShownRun& shown) {
  return human_duration(training_seconds(shown)) + " in steps";
}

/// Returns a table with a row for each fact and a column for each run.
std::string what_ran(const ShownRuns& runs) {
  Rows rows{{""}};
  for (const ShownRun& shown : runs) rows[0].push_back(runs.size() == 1 ? "" : shown.name);
  const auto add = [&](const std::string& name, const auto& text_of) {
    rows.push_back({name});
    for (const ShownRun& shown : runs) rows.back().push_back(or_dash(text_of(shown)));
    if (std::ranges::all_of(rows.back().begin() + 1, rows.back().end(), [](const auto& text) { return text == "-"; })) {
      rows.pop_back();
    }
  };
  const auto of_config = [&](const auto& text_of) {
    return [=](const ShownRun& shown) { return shown.run.config ? text_of(*shown.run.config) : std::string(); };
  };
  const auto of_start = [&](const auto& text_of) {
    return
        [=](const ShownRun& shown) { return shown.metrics.starts.empty() ? "" : text_of(shown.metrics.starts.back()); };
  };
  add("model", of_config([](const Config& config) { return model_text(config.model); }));
  add("parameters", [](const ShownRun& shown) {
    return shown.run.parameters > 0 ? four_digits(static_cast<double>(shown.run.parameters)) : "";
  });
  add("data", of_config([](const Config& config) { return data_text(config.data); }));
  add("sequence, batch", of_config([](const Config& config) {
        std::string text;
        for (int stage = 0; stage < stage_count(config.training); ++stage) {
          const TrainingConfig training = config_of_stage(config, stage).training;
          if (stage > 0) text += fmt::format("; from step {}: ", first_step_of(config.training, stage));
          text +=
              fmt::format("{} tokens, {} a step", training.seq_len, counted(training.global_batch_size, "sequence"));
        }
        return text;
      }));
  add("mesh", of_start(mesh_text));
  add("machine", of_start(machine_text));
  add("build", of_start([](const json& start) { return text_in(start, "build"); }));
  add("duration", duration_text);
  add("folder", [](const ShownRun& shown) { return shown.run.folder; });
  return heading("What ran") + table(rows, "facts");
}

std::string tiles(const ShownRuns& runs) {
  struct Tile {
    std::string name;
    std::string (*text)(const ShownRun&);
  };
  const auto steps_text = [](const ShownRun& shown) {
    const std::int64_t planned = shown.run.config ? shown.run.config->training.steps : 0;
    return planned > 0 ? fmt::format("{} of {}", shown.last().step, planned) : fmt::format("{}", shown.last().step);
  };
  std::string html = "<div class=\"tiles\">\n";
  for (const Tile& tile :
       {Tile{"loss, smoothed", [](const ShownRun& shown) { return four_digits(last_loss(shown)); }},
        Tile{"steps", steps_text},
        Tile{"tokens", [](const ShownRun& shown) { return four_digits(shown.last().tokens); }},
        Tile{"time in steps", [](const ShownRun& shown) { return human_duration(training_seconds(shown)); }},
        Tile{"tokens a second, median",
             [](const ShownRun& shown) { return four_digits(median(shown, &StepRow::tokens_per_second)); }},
        Tile{"MFU, median", [](const ShownRun& shown) {
               const double mfu = median(shown, &StepRow::mfu);
               return std::isfinite(mfu) ? four_digits(100 * mfu) + "%" : std::string("-");
             }}}) {
    std::vector<std::string> values;
    for (const ShownRun& shown : runs) values.push_back(tile.text(shown));
    if (std::ranges::all_of(values, [](const std::string& value) { return value == "-"; })) continue;
    html += fmt::format("<div><b>{}</b>", escaped(values[0]));
    if (values.size() > 1) html += fmt::format("<b class=\"sb\">{}</b>", escaped(values[1]));
    html += fmt::format("<span>{}</span></div>\n", tile.name);
  }
  return html + "</div>\n";
}

// --- Planned and measured.

/// Returns the rank that held the most, of peaks as metrics have them; -1 if they are none.
std::ptrdiff_t fullest_rank(const json& peaks) {
  if (!peaks.is_array()) return -1;
  std::ptrdiff_t fullest = -1;
  double most = -1;
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    if (!peaks[rank].is_object() || !(number_in(peaks[rank], "total") > most)) continue;
    most = number_in(peaks[rank], "total");
    fullest = static_cast<std::ptrdiff_t>(rank);
  }
  return fullest;
}

std::string bytes_text(double bytes) {
  return std::isfinite(bytes) ? human_bytes(bytes) : "-";
}

/// Returns what stands beside what was planned: memory of the fullest rank, times if there is a plan of them.
std::string planned_and_measured(const ShownRun& shown) {
  Rows rows{{"", "planned", "measured"}};
  const auto add = [&](const char* name, const std::string& planned, const std::string& measured) {
    rows.push_back({name, planned, measured});
  };
  if (shown.run.config) {
    const TrainingConfig& training = shown.run.config->training;
    add("steps", fmt::format("{}", training.steps), fmt::format("{}", shown.last().step));
    add("tokens", four_digits(static_cast<double>(tokens_done(training, training.steps))),
        four_digits(shown.last().tokens));
  }
  if (const std::optional<PlannedTimes>& plan = shown.run.plan) {
    const auto planned = [](double value, double scale) { return value > 0 ? four_digits(scale * value) : "-"; };
    add("seconds a step, median", planned(plan->step_seconds, 1), four_digits(median(shown, &StepRow::seconds)));
    add("tokens a second, median", planned(plan->tokens_per_second, 1),
        four_digits(median(shown, &StepRow::tokens_per_second)));
    add("MFU, median, %", planned(plan->mfu, 100), four_digits(100 * median(shown, &StepRow::mfu)));
  }
  const std::ptrdiff_t rank = fullest_rank(shown.metrics.peaks);
  std::string remark;
  if (rank >= 0) {
    const json& peak = shown.metrics.peaks[static_cast<std::size_t>(rank)];
    const std::vector<MemoryUse>& planned = shown.run.planned;
    const bool known = planned.size() == shown.metrics.peaks.size();
    const auto row = [&](const std::string& name, const auto& bytes_of) {
      const double measured = number_in(peak, name.c_str());
      const std::string foreseen = known ? bytes_text(static_cast<double>(bytes_of(planned[rank]))) : "-";
      if (std::isfinite(measured)) add(("memory: " + name).c_str(), foreseen, bytes_text(measured));
    };
    for (int tag = 0; tag < tag_count; ++tag) {
      row(name_of(static_cast<Tag>(tag)), [&](const MemoryUse& use) { return use[static_cast<Tag>(tag)]; });
    }
    row("total", [](const MemoryUse& use) { return use.total; });
    remark = shown.metrics.peaks.size() == 1
                 ? "Memory of the one rank."
                 : fmt::format("Memory of rank {}, which of {} ranks held the most.", rank, shown.metrics.peaks.size());
  }
  if (shown.run.plan) remark += fmt::format(" Times as planned for {}.", or_dash(shown.run.plan->hardware));
  if (rows.size() == 1) return "";
  return heading("Planned and measured") + table(rows) + "<p class=\"soft\">" + escaped(remark) + "</p>\n";
}

// --- Training.

void add_marks(const ShownRun& shown, std::vector<ChartMark>& marks) {
  for (const StepRow& row : shown.metrics.steps) {
    const auto x = static_cast<double>(row.step);
    if (row.started && &row != &shown.metrics.steps.front()) marks.push_back({x, "resume"});
    if (row.spike) marks.push_back({x, "spike"});
    if (row.empty) marks.push_back({x, "empty"});
    if (!row.empty && (!std::isfinite(row.loss) || !std::isfinite(row.grad_norm))) marks.push_back({x, "nonfinite"});
  }
}

std::string curves(const ShownRuns& runs) {
  struct Curve {
    const char *title, *unit;
    double StepRow::*field;
    double scale;
    bool marked;
  };
  std::string html = heading("Training");
  std::vector<ChartMark> marks;
  for (const ShownRun& shown : runs) add_marks(shown, marks);
  std::string figures;
  bool averaged = false;
  for (const Curve& one :
       {Curve{"Loss", "nats a token", &StepRow::loss, 1, true},
        Curve{"Gradient norm", "", &StepRow::grad_norm, 1, true}, Curve{"Learning rate", "", &StepRow::lr, 1, false},
        Curve{"Tokens a second", "", &StepRow::tokens_per_second, 1, true},
        Curve{"MFU", "% of the peak", &StepRow::mfu, 100, true},
        Curve{"Loss", "standard deviations from the steps before", &StepRow::loss_z, 1, true},
        Curve{"Gradient norm", "standard deviations likewise", &StepRow::grad_norm_z, 1, true},
        Curve{"Waiting for the ring", "seconds of rank 0, a step", &StepRow::ring_wait_seconds, 1, false}}) {
    Chart chart{.title = one.title, .unit = one.unit, .smooth = one.field != &StepRow::lr};
    if (one.marked) chart.marks = marks;
    for (const ShownRun& shown : runs) {
      ChartSeries series{runs.size() > 1 ? shown.name : "", points_of(shown, one.field)};
      for (ChartPoint& point : series.points) point.y *= one.scale;
      averaged = averaged || series.points.size() >= 40;
      chart.series.push_back(std::move(series));
    }
    figures += chart_figure(chart);
  }
  html += "<p class=\"soft\">By step; the last value stands beside each name.";
  if (averaged) html += " Thick: an average over a fiftieth of the steps; thin: each step.";
  for (const MarkKind& kind : mark_kinds) {
    if (std::ranges::count(marks, kind.name, &ChartMark::kind) > 0) html += fmt::format(" {}.", kind.legend);
  }
  return html + "</p>\n<div class=\"charts\">\n" + figures + "</div>\n";
}

std::string events(const ShownRun& shown) {
  constexpr std::size_t most = 40;
  Rows rows{{"step", "what happened", "loss", "gradient norm"}};
  std::size_t count = 0;
  const auto add = [&](const StepRow& row, const std::string& what) {
    if (++count <= most) {
      rows.push_back({fmt::format("{}", row.step), what, four_digits(row.loss), four_digits(row.grad_norm)});
    }
  };
  std::size_t start = 0;
  for (const StepRow& row : shown.metrics.steps) {
    if (row.started) {
      while (start < shown.metrics.starts.size() && shown.metrics.starts[start].value("step", json()) != row.step)
        ++start;
      const json begun = start < shown.metrics.starts.size() ? shown.metrics.starts[start] : json::object();
      if (&row != &shown.metrics.steps.front()) {
        add(row, fmt::format("resumed: mesh {} on {}", mesh_text(begun), machine_text(begun)));
      }
    }
    if (row.spike) add(row, "loss spike");
    if (row.empty) {
      add(row, "skipped: nothing to learn from");
    } else if (!std::isfinite(row.loss) || !std::isfinite(row.grad_norm)) {
      add(row, "skipped: loss or gradient norm is no number");
    }
  }
  if (count == 0) return "";
  std::string html =
      heading(fmt::format("Events{}", count == 1 ? "" : fmt::format(": {}", count))) + table(rows, "events");
  if (count > most) html += fmt::format("<p class=\"soft\">The first {} of {}.</p>\n", most, count);
  return html;
}

/// Returns the waits of the last step that has them, a row for each hop.
std::string ring_table(const ShownRun& shown) {
  const json& ring = shown.metrics.ring;
  if (!ring.is_object()) return "";
  const auto pass = [&](const char* name) { return ring.value(name, json::object()); };
  const json forward = pass("forward").value("hop_wait_seconds", json::array()),
             backward = pass("backward").value("hop_wait_seconds", json::array());
  Rows rows{{"", "forward", "backward"}};
  rows.push_back({"busiest rank's time over the mean", four_digits(number_in(pass("forward"), "time_imbalance")),
                  four_digits(number_in(pass("backward"), "time_imbalance"))});
  constexpr std::size_t most = 32;
  const std::size_t hops = std::max(forward.size(), backward.size());
  for (std::size_t hop = 0; hop < hops; ++hop) {
    if (hop >= most && hop + 1 < hops) continue;
    const auto seconds = [&](const json& waits) {
      return hop < waits.size() && waits[hop].is_number() ? four_digits(waits[hop].get<double>()) : "-";
    };
    const std::string name = hop + 1 == hops ? "waited at the end, s" : fmt::format("waited for hop {}, s", hop);
    rows.push_back({name, seconds(forward), seconds(backward)});
  }
  std::string html = heading(fmt::format("The ring in step {}", json_text(ring.value("step", json())))) + table(rows);
  if (hops > most + 1) html += fmt::format("<p class=\"soft\">Of {} hops, the first {}.</p>\n", hops - 1, most);
  return html;
}

// --- Configs, and two runs beside each other.

std::string config_part(const ShownRuns& runs) {
  if (std::ranges::any_of(runs, [](const ShownRun& shown) { return !shown.run.config; })) return "";
  const bool two = runs.size() > 1;
  const auto found = differences(two ? *runs[0].run.config : Config{}, *runs.back().run.config);
  Rows rows{two ? std::vector<std::string>{"key", runs[0].name, runs[1].name}
                : std::vector<std::string>{"key", "value"}};
  for (const ConfigDifference& one : found) {
    rows.push_back(two ? std::vector{one.key, one.before, one.after} : std::vector{one.key, one.after});
  }
  const std::string title = heading(two ? "What differs in their configs" : "Config, where it is not the default");
  return title + (found.empty() ? "<p>Nothing.</p>\n" : table(rows, "facts"));
}

std::string comparison(const ShownRun& a, const ShownRun& b) {
  Rows rows{{"", a.name, b.name, "change"}};
  const auto add = [&](const std::string& name, double of_a, double of_b) {
    if (!std::isfinite(of_a) && !std::isfinite(of_b)) return;
    rows.push_back({name, four_digits(of_a), four_digits(of_b), signed_digits(of_b - of_a)});
  };
  const auto medians = [&](const std::string& name, double StepRow::*field) {
    add(name + ", median", median(a, field), median(b, field));
  };
  add("loss, smoothed", last_loss(a), last_loss(b));
  std::map<std::int64_t, double> losses;  // of the steps that both have
  for (const StepRow& row : a.metrics.steps) losses.emplace(row.step, row.loss);
  for (auto row = b.metrics.steps.rbegin(); row != b.metrics.steps.rend(); ++row) {
    const auto same = losses.find(row->step);
    if (same == losses.end()) continue;
    add(fmt::format("loss of step {}, the last of both", row->step), same->second, row->loss);
    break;
  }
  add("tokens", a.last().tokens, b.last().tokens);
  add("seconds in steps", training_seconds(a), training_seconds(b));
  medians("seconds a step", &StepRow::seconds);
  medians("tokens a second", &StepRow::tokens_per_second);
  medians("MFU", &StepRow::mfu);
  const auto nll_of = [](const ShownRun& shown) {
    std::map<double, double> values;
    if (shown.metrics.evaluations.empty()) return values;
    for (const ChartPoint& point : by_length(shown.metrics.evaluations.back(), "nll", "ci95")) {
      values.emplace(point.x, point.y);
    }
    return values;
  };
  const std::map<double, double> of_a = nll_of(a), of_b = nll_of(b);
  for (const auto& [length, value] : of_a) {
    if (const auto other = of_b.find(length); other != of_b.end()) {
      add(fmt::format("nll at {:.0f} tokens, last evaluation", length), value, other->second);
    }
  }
  return heading("Beside each other") + table(rows);
}

std::string name_of_folder(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

RunReport html_report(const std::vector<ReportedRun>& folders) {
  ensure(!folders.empty() && folders.size() <= 2, "a page has one run or two");
  RunReport report;
  ShownRuns runs;
  for (const ReportedRun& run : folders) {
    const std::string path = run.folder + "/metrics.jsonl";
    runs.push_back({run, read_run_metrics(path), name_of_folder(run.folder)});
    const RunMetrics& metrics = runs.back().metrics;
    if (metrics.skipped == 0) continue;
    report.warning +=
        fmt::format("{}{}:{}: {} no metrics of a run, and left out of the page", report.warning.empty() ? "" : "; ",
                    path, metrics.first_skipped,
                    metrics.skipped == 1 ? std::string("this line is")
                                         : fmt::format("this line and {} after it are", metrics.skipped - 1));
  }
  const bool two = runs.size() > 1;
  if (two && runs[0].name == runs[1].name) {
    for (ShownRun& shown : runs) shown.name = shown.run.folder;
  }
  const std::string title = two ? runs[0].name + " and " + runs[1].name : runs[0].name;
  std::string html = page_head(report_head, title);
  html += two ? fmt::format("<h1><span class=\"sa\">{}</span> and <span class=\"sb\">{}</span></h1>\n",
                            escaped(runs[0].name), escaped(runs[1].name))
              : fmt::format("<h1>{}</h1>\n", escaped(title));
  if (!report.warning.empty()) html += "<p class=\"warn\">" + escaped(report.warning) + ".</p>\n";
  html += tiles(runs);
  if (two) html += comparison(runs[0], runs[1]) + config_part(runs);
  if (two) {
    html += what_ran(runs);
  } else {
    html += "<div class=\"halves\">\n<div>" + what_ran(runs) + "</div>\n<div>" + planned_and_measured(runs[0]) +
            "</div>\n</div>\n";
  }
  html += curves(runs);
  if (!two) html += events(runs[0]);
  html += evaluation_part(runs);
  for (const ShownRun& shown : runs) {
    if (!shown.run.evaluation_path.empty()) html += evaluate_part(shown.run.evaluation_path, shown.run.evaluation);
  }
  if (!two) html += ring_table(runs[0]) + config_part(runs);
  report.page = html + "</body></html>\n";
  return report;
}

}  // namespace ringtrain
