// The page of `report` for a run with evaluations, on two ranks: well-formed markup, in which every number equals its
// source (metrics.jsonl, or the plan) in four digits; a browser that opens it asks nobody for anything, and shows all
// of it on every screen.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "framework/config/config.h"
#include "framework/config/read_config.h"
#include "framework/profile/progress.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"
#include "tests/extras/report/strict_markup.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"
#include "train/engine/rank_state.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;
using Cells = std::vector<std::vector<std::string>>;

std::string content(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Returns the number that a cell says, "12.35K" as 12350; NaN where it says none.
double number_of(std::string cell) {
  double unit = 1;
  for (const auto& [letter, factor] : std::map<char, double>{{'K', 1e3}, {'M', 1e6}, {'G', 1e9}, {'%', 0.01}}) {
    if (cell.ends_with(letter)) unit = factor;
  }
  if (unit != 1) cell.pop_back();
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  return end == cell.c_str() + cell.size() && !cell.empty() ? value * unit : std::nan("");
}
/// Expects that a cell is a value of the metrics in four digits; "-" where there is none.
void expect_value(const std::string& cell, const json& source) {
  if (!source.is_number()) {
    EXPECT_EQ(cell, "-");
    return;
  }
  EXPECT_NEAR(number_of(cell), source.get<double>(), 0.00051 * std::abs(source.get<double>())) << cell;
}
json field(const json& line, const std::string& name) {
  return line.contains(name) ? line[name] : json();
}
/// Returns the first element of a name after the h2 of these words.
const Element* after_heading(const Element& within, const std::string& heading, const std::string& name) {
  for (std::size_t i = 0; i < within.children.size(); ++i) {
    if (within.children[i]->name == "h2" && within.children[i]->text == heading) {
      for (std::size_t next = i + 1; next < within.children.size(); ++next) {
        if (within.children[next]->name == name) return within.children[next].get();
      }
    }
    if (const Element* found = after_heading(*within.children[i], heading, name)) return found;
  }
  return nullptr;
}
/// Returns the cells of a page's table after a heading.
Cells table(const Element& root, const std::string& heading) {
  Cells cells;
  const Element* const found = after_heading(root, heading, "table");
  EXPECT_TRUE(found) << "no table " << heading;
  for (const Element* row : found ? found->all("tr") : std::vector<const Element*>{}) {
    cells.emplace_back();
    for (const auto& cell : row->children) cells.back().push_back(cell->text);
  }
  return cells;
}

class ReportPage : public FolderTest {
 protected:
  void run(const std::string& command) const {
    const int code = std::system(("cd '" + folder + "' && " + command + " >>log 2>&1").c_str());
    ASSERT_EQ(code, 0) << command << "\n" << content(at("log"));
  }
  void make_run() {
    const std::string bin = "'" + binary_folder() + "/";
    run(bin + "prepare' --synthetic recall --documents 40 --length 400 --output corpus.h5");
    const std::string command =
        bin + "train' --output run --set mesh.sequence=2 --set mesh.data=1 --set mesh.layout=contiguous ";
    run(command + "--config '" + source_folder() +
        "/configs/tiny.yaml' --set metrics.peak_flops=2e9 --set training.steps=26 --set evaluation.interval=13 --set "
        "checkpoint.interval=0 --set training.seq_len=66 --set evaluation.target_blocks=2 --set "
        "'evaluation.context_lengths=[16, 32]' --stop-after 13");
    run(command + "--resume --set training.loss_chunk=512");
    run(bin + "plan' --config run/config.yaml --output plan.json");
    run(bin + "report' run --plan plan.json");
    std::ifstream file(at("run/metrics.jsonl"));
    for (std::string text; std::getline(file, text);) {
      const json line = json::parse(text);
      (line.at("kind") == "train" ? steps : evaluations).push_back(line);
    }
    ASSERT_EQ(steps.size(), 26u);
    ASSERT_EQ(evaluations.size(), 2u);
    page = content(at("run/report.html"));
    root = StrictMarkup::parse(page);
  }
  struct Point {
    double x, y;
  };
  /// Expects a figure with this curve: its tooltips say the numbers, and each point lies where the axis' ticks say.
  void expect_curve(const std::string& title, const std::string& unit, const std::string& x_name,
                    const std::vector<Point>& points) const {
    SCOPED_TRACE(title + " " + unit);
    for (const Element* figure : root->all("figure")) {
      if (figure->all("b").at(0)->text != title || figure->all("span").at(0)->text != unit) continue;
      expect_value(figure->all("span").at(1)->text, points.back().y);
      std::vector<Point> ticks;  // value, and where it lies
      for (const Element* text : figure->all("text")) {
        if (text->attributes.at("text-anchor") == "end" && text->attributes.at("x") == "50.0") {
          ticks.push_back({number_of(text->text), std::stod(text->attributes.at("y")) - 4});
        }
      }
      ASSERT_GE(ticks.size(), 2u);
      const double per_pixel = (ticks.back().x - ticks[0].x) / (ticks.back().y - ticks[0].y);
      const std::vector<const Element*> circles = figure->all("circle");
      ASSERT_EQ(circles.size(), points.size());
      std::istringstream line(figure->all("polyline").at(0)->attributes.at("points"));
      for (std::size_t i = 0; i < points.size(); ++i) {
        const std::string tip = circles[i]->all("title").at(0)->text;
        ASSERT_TRUE(tip.starts_with(x_name + fmt::format(" {:g}: ", points[i].x))) << tip;
        expect_value(tip.substr(tip.find(": ") + 2, tip.find(",") - tip.find(": ") - 2), points[i].y);
        double x = 0, y = 0;
        char comma = 0;
        line >> x >> comma >> y;
        EXPECT_NEAR(ticks[0].x + (y - ticks[0].y) * per_pixel, points[i].y, std::abs(0.3 * per_pixel));
        EXPECT_EQ(circles[i]->attributes.at("cx"), fmt::format("{:.1f}", x));
        EXPECT_EQ(circles[i]->attributes.at("cy"), fmt::format("{:.1f}", y));
      }
      return;
    }
    ADD_FAILURE() << "no such curve";
  }

  std::vector<json> steps, evaluations;
  std::string page;
  std::unique_ptr<Element> root;
};

TEST_F(ReportPage, EveryNumberEqualsItsSource) {
  make_run();
  if (HasFatalFailure()) return;

  struct Curve {
    std::string title, unit, field;
    double scale = 1;
  };
  const std::vector<Curve> curves{{"Loss", "nats a token", "loss"},
                                  {"Gradient norm", "", "grad_norm"},
                                  {"Learning rate", "", "lr"},
                                  {"Tokens a second", "", "tokens_per_second"},
                                  {"MFU", "% of the peak", "mfu", 100},
                                  {"Loss", "standard deviations from the steps before", "loss_z"},
                                  {"Gradient norm", "standard deviations likewise", "grad_norm_z"},
                                  {"Waiting for the ring", "seconds of rank 0, a step", "ring_wait_seconds"}};
  for (const Curve& curve : curves) {
    std::vector<Point> points;
    for (const json& step : steps) {
      if (step.contains(curve.field)) {
        points.push_back({step.at("step"), curve.scale * step.at(curve.field).get<double>()});
      }
    }
    EXPECT_EQ(points.size(), curve.field.ends_with("_z") ? 6u : 26u) << curve.field;  // z-scores begin after 20 steps
    expect_curve(curve.title, curve.unit, "step", points);
  }
  std::vector<Point> level, change;
  for (const json& result : evaluations.back().at("results")) {
    level.push_back({result.at("context_length"), result.at("nll")});
    change.push_back({result.at("context_length"), result.at("delta_nll")});
  }
  expect_curve("Negative log-likelihood", "nats a token, by context; last evaluation", "context", level);
  expect_curve("Change from the shortest context", "nats a token, paired by document", "context", change);
  EXPECT_EQ(root->all("figure").size(), curves.size() + 3);

  // What ran, and that it was resumed: as the run's own lines say.
  const json& start = steps[13].at("started");
  EXPECT_TRUE(steps[0].contains("started"));
  EXPECT_FALSE(steps[1].contains("started"));
  std::map<std::string, std::string> facts;
  for (const auto& row : table(*root, "What ran")) facts[row.at(0)] = row.at(1);
  EXPECT_EQ(facts.at("build"), start.at("build"));
  EXPECT_TRUE(facts.at("build").starts_with("ringtrain ")) << facts.at("build");
  EXPECT_NE(facts.at("machine").find(start.at("device").get<std::string>()), std::string::npos);
  EXPECT_EQ(facts.at("mesh"), "1x2, contiguous, threads of one process");
  EXPECT_NE(facts.at("model").find("llama, 2 layers of width "), std::string::npos) << facts.at("model");
  const Cells events = table(*root, "Events");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].at(0), "14");
  EXPECT_TRUE(events[1].at(1).starts_with("resumed: mesh 1x2")) << events[1].at(1);
  EXPECT_EQ(
      root->all("path").size() -
          [&] {
            std::size_t others = 0;
            for (const Element* path : root->all("path")) others += path->attributes.at("class") != "resume" ? 1 : 0;
            return others;
          }(),
      4u);  // the mark, in each chart that has marks and reaches back so far

  const Config config = read_config(at("run/config.yaml"), {}, ConfigUse::know, check_model);
  const auto plans = plan_ranks(config, make_parameter_table(config.model), training_purpose(config));
  std::map<std::string, std::vector<std::string>> rows;
  for (const auto& row : table(*root, "Planned and measured")) rows[row.at(0)] = {row.at(1), row.at(2)};
  const json plan = json::parse(content(at("plan.json"))), &peak = steps[13].at("peak_bytes").at(0);
  expect_value(rows.at("seconds a step, median").at(0), plan.at("step_seconds"));
  expect_value(rows.at("tokens a second, median").at(0), plan.at("tokens_per_second"));
  expect_value(rows.at("tokens").at(1), steps.back().at("tokens"));
  EXPECT_EQ(rows.at("steps"), (std::vector<std::string>{"26", "26"}));
  for (const std::string tag : {"weights", "gradients", "optimizer", "activations", "ring", "workspace", "total"}) {
    EXPECT_EQ(rows.at("memory: " + tag).at(1), human_bytes(peak.at(tag).get<double>())) << tag;
  }
  EXPECT_EQ(rows.at("memory: weights").at(0), human_bytes(static_cast<double>(plans[0].peak[Tag::weights])));
  EXPECT_EQ(rows.at("memory: total").at(0), human_bytes(static_cast<double>(plans[0].peak.total)));

  const Cells ring = table(*root, "The ring in step 26");
  ASSERT_EQ(ring.size(), 5u);  // imbalance, two hops and the end
  const json& last = steps.back().at("ring");
  const std::array passes{"forward", "backward"};
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    EXPECT_EQ(ring[0].at(1 + pass), passes[pass]);
    expect_value(ring[1].at(1 + pass), last.at(passes[pass]).at("time_imbalance"));
    for (std::size_t hop = 0; hop < 3; ++hop) {
      expect_value(ring[2 + hop].at(1 + pass), last.at(passes[pass]).at("hop_wait_seconds").at(hop));
    }
  }

  const Cells evaluation = table(*root, "Evaluation");
  ASSERT_EQ(evaluation.size(), 3u);  // the last one, of two lengths
  for (std::size_t i = 0; i < 2; ++i) {
    const json& result = evaluations.back().at("results").at(i);
    const std::vector<std::string>& row = evaluation[1 + i];
    expect_value(row.at(0), result.at("context_length"));
    expect_value(row.at(1), result.at("perplexity"));
    expect_value(row.at(2), result.at("nll"));
    expect_value(row.at(4), field(result, "bits_per_byte"));
    expect_value(row.at(5), result.at("delta_nll"));
    EXPECT_EQ(row.at(3), "-");  // over two documents an interval means nothing
  }

  const Cells keys = table(*root, "Config, where it is not the default");
  const auto lr = std::ranges::find(keys, std::vector<std::string>{"training.loss_chunk", "512"});
  EXPECT_NE(lr, keys.end());
  for (const char* part : {"<script", "http", "src=", "href", "url(", "@import"}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
}

TEST_F(ReportPage, TwoRunsAreCompared) {
  make_run();
  if (HasFatalFailure()) return;
  std::filesystem::create_directory(at("other"));
  std::ofstream(at("other/config.yaml")) << content(at("run/config.yaml")) << "\n";
  std::ofstream other(at("other/metrics.jsonl"));
  for (json step : steps) {
    step["loss"] = step["loss"].get<double>() - 0.5;
    other << step.dump() << "\n";
  }
  other.close();
  const std::string report = "'" + binary_folder() + "/report' ";
  run("sed -i 's/  lr: .*/  lr: 0.125/' other/config.yaml && " + report + "run other");
  const auto both = StrictMarkup::parse(content(at("other/comparison.html")));
  const Cells rows = table(*both, "Beside each other");
  EXPECT_EQ(rows[0], (std::vector<std::string>{"", "run", "other", "change"}));
  EXPECT_EQ(rows.at(1).at(3), "-0.5000");
  EXPECT_EQ(rows.at(2).at(0), "loss of step 26, the last of both");
  expect_value(rows.at(2).at(1), steps.back().at("loss"));
  EXPECT_EQ(rows.at(2).at(3), "-0.5000");
  const Cells keys = table(*both, "What differs in their configs");
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[1].at(0), "optimizer.lr");
  EXPECT_EQ(keys[1].at(2), "0.125");
  EXPECT_EQ(both->all("figure").at(0)->all("polyline").size(), 2u);
  // Neither run's files are replaced.
  const std::string before = content(at("run/metrics.jsonl"));
  for (const char* output : {"run/metrics.jsonl", "other/config.yaml"}) {
    EXPECT_NE(
        std::system(fmt::format("cd '{}' && {} run other --output {} >>log 2>&1", folder, report, output).c_str()), 0)
        << output;
  }
  EXPECT_EQ(content(at("run/metrics.jsonl")), before);
}

TEST(StrictMarkup, RefusesWhatIsNotWellFormed) {
  EXPECT_EQ(StrictMarkup::parse("<!DOCTYPE html>\n<a b=\"1\">x<c/>y &lt;</a>\n")->text, "xy <");
  for (const char* bad : {"<a>", "<a></b>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>", "<a>&nbsp;</a>", "<a>&</a>", "<a/><b/>",
                          "<a><b></a></b>", "a", "<a b=\"<\"/>"}) {
    EXPECT_THROW(StrictMarkup::parse(bad), std::runtime_error) << bad;
  }
}

/// Returns the addresses that a page asked a browser for, by the browser's own log; nullopt where there is no browser.
std::optional<std::vector<std::string>> requests_of(const std::string& folder, const std::string& page) {
  for (const char* browser : {"chromium", "chromium-browser", "google-chrome"}) {
    if (std::system(fmt::format("command -v {} >/dev/null", browser).c_str()) != 0) continue;
    const std::string command = fmt::format(
        "cd '{}' && HOME=\"$PWD\" timeout 120 {} --headless --no-sandbox --disable-gpu --no-first-run "
        "--disable-background-networking --user-data-dir=browser --log-net-log=net.json --dump-dom 'file://{}/{}' "
        ">dom.html 2>browser.log",
        folder, browser, folder, page);
    EXPECT_EQ(std::system(command.c_str()), 0) << content(folder + "/browser.log");
    EXPECT_NE(content(folder + "/dom.html").find("</html>"), std::string::npos);
    const json log = json::parse(content(folder + "/net.json"));
    const int request = log.at("constants").at("logEventTypes").at("URL_REQUEST_START_JOB");
    std::vector<std::string> asked;
    for (const json& event : log.at("events")) {
      const json parameters = event.value("params", json::object());
      if (event.at("type") != request || !parameters.contains("url")) continue;
      if (parameters.value("initiator", "") == "not an origin") continue;  // the browser itself, for its own updates
      asked.push_back(parameters.at("url"));
    }
    return asked;
  }
  return std::nullopt;
}

TEST_F(ReportPage, ABrowserAsksNobodyForAnything) {
  std::ofstream(at("asks.html")) << "<html><body><img src=\"http://127.0.0.1:9/x.png\"></body></html>";
  const auto control = requests_of(folder, "asks.html");
  if (!control) GTEST_SKIP() << "there is no Chromium to open the page with";
  EXPECT_EQ(*control, (std::vector<std::string>{"http://127.0.0.1:9/x.png"}));  // so the log would tell
  make_run();
  if (HasFatalFailure()) return;
  std::filesystem::copy_file(at("run/report.html"), at("report.html"));
  EXPECT_EQ(requests_of(folder, "report.html"), std::vector<std::string>{});
}

/// Returns what a script of the test finds on a page of so many pixels: elements beyond the screen, and the lines of
/// cells and numbers that do not fit.
std::string cut_off(const std::string& folder, const std::string& page, int width) {
  const std::string script =
      "<script>const out=[];for(const e of document.querySelectorAll('body *')){const r=e.getBoundingClientRect();"
      "if(r.width>0&&(r.right>innerWidth+1||r.left<-1)&&!e.closest('svg'))out.push(e.tagName+': '+"
      "e.textContent.slice(0,40));}document.title='FOUND '+innerWidth+' ['+out.join('|')+']';</script>";
  std::string text = content(folder + "/" + page);
  text.replace(text.find("</body>"), 0, script);
  std::ofstream(folder + "/measured.html") << text;
  const std::string command = fmt::format(
      "cd '{}' && HOME=\"$PWD\" timeout 120 chromium --headless --no-sandbox --disable-gpu --no-first-run "
      "--user-data-dir=browser --window-size={},900 --dump-dom 'file://{}/measured.html' >dom.html 2>browser.log",
      folder, width, folder);
  EXPECT_EQ(std::system(command.c_str()), 0) << content(folder + "/browser.log");
  const std::string dom = content(folder + "/dom.html");
  const std::size_t found = dom.find("FOUND ");
  return found == std::string::npos ? "no answer" : dom.substr(found + 6, dom.find("</title>", found) - found - 6);
}

TEST_F(ReportPage, NothingIsCutOnAnyScreen) {
  if (std::system("command -v chromium >/dev/null") != 0) GTEST_SKIP() << "there is no Chromium to open the page with";
  make_run();
  if (HasFatalFailure()) return;
  std::filesystem::copy_file(at("run/report.html"), at("report.html"));
  for (const int width : {1280, 800, 500, 360}) {
    const std::string found = cut_off(folder, "report.html", width);
    EXPECT_TRUE(found.ends_with(" []")) << width << ": " << found;
  }
  std::ofstream(at("wide.html")) << "<html><body><p style='width:3000px'>wide</p></body></html>";
  EXPECT_NE(cut_off(folder, "wide.html", 800).find("[P: wide]"), std::string::npos);  // so it would be told
}

}  // namespace
}  // namespace ringtrain::testing
