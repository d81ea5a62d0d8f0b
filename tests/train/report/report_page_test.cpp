// The page of `report` for a run with evaluations, on two ranks: well-formed markup, in which every number equals its
// source (metrics.jsonl, or the plan), and a browser that opens it asks nobody for anything.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/config/read_config.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"
#include "tests/train/report/strict_markup.h"
#include "train/engine/rank_state.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;
using Cells = std::vector<std::vector<std::string>>;

std::string content(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Expects that a cell is a JSON value, all digits of it; "-" where there is none.
void expect_value(const std::string& cell, const json& source) {
  if (source.is_null()) {
    EXPECT_EQ(cell, "-");
  } else if (source.is_string()) {
    EXPECT_EQ(cell, source.get<std::string>());
  } else {
    EXPECT_EQ(json::parse(cell, nullptr, false), source);
  }
}
json field(const json& line, const std::string& name) {
  return line.contains(name) ? line[name] : json();
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
    run(bin + "train' --config '" + source_folder() +
        "/configs/tiny.yaml' --output run --set metrics.peak_flops=2e9 --set training.steps=26 --set mesh.sequence=2 "
        "--set mesh.data=1 --set evaluation.interval=13 --set checkpoint.interval=0 --set training.seq_len=66 "
        "--set evaluation.target_blocks=2 --set 'evaluation.context_lengths=[16, 32]' --set mesh.layout=contiguous");
    run(bin + "report' run");
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
  /// Returns the cells of the table after a heading, and counts them as seen.
  Cells table(const std::string& heading) {
    const auto& body = root->children.at(1)->children;
    for (std::size_t i = 0; i + 1 < body.size(); ++i) {
      if (body[i]->name != "h2" || body[i]->text != heading) continue;
      Cells cells;
      for (const auto& row : body[i + 1]->children) {
        cells.emplace_back();
        for (const auto& cell : row->children) {
          cells.back().push_back(cell->text);
          ++seen;
        }
      }
      return cells;
    }
    ADD_FAILURE() << "no table " << heading;
    return {};
  }
  struct Point {
    double x, y;
  };
  /// Expects the curve of these points, and counts what it says as seen.
  void expect_curve(const std::string& title, const std::string& x_name, const std::vector<Point>& points) {
    SCOPED_TRACE(title);
    for (const Element* figure : root->all("figure")) {
      const std::string caption = figure->children.at(0)->text;
      if (!caption.starts_with(title + ": ")) continue;
      EXPECT_EQ(caption, fmt::format("{}: {:.6g}", title, points.back().y));
      const auto [low, high] = std::ranges::minmax(points, {}, &Point::y);
      const std::vector<const Element*> texts = figure->all("text"), circles = figure->all("circle");
      ASSERT_EQ(texts.size(), low.y < high.y ? 4u : 3u);
      EXPECT_EQ(texts[0]->text, fmt::format("{:.6g}", low.y));
      EXPECT_EQ(texts[texts.size() - 3]->text, fmt::format("{:.6g}", high.y));
      EXPECT_EQ(texts[texts.size() - 2]->text, fmt::format("{} {:g}", x_name, points.front().x));
      EXPECT_EQ(texts.back()->text, fmt::format("{:g}", points.back().x));
      ASSERT_EQ(circles.size(), points.size());
      std::istringstream line(figure->all("polyline").at(0)->attributes.at("points"));
      for (std::size_t i = 0; i < points.size(); ++i) {
        const std::string tip = circles[i]->all("title").at(0)->text, name = x_name + " ";
        ASSERT_TRUE(tip.starts_with(name)) << tip;
        EXPECT_EQ(std::stod(tip.substr(name.size())), points[i].x);
        EXPECT_EQ(std::stod(tip.substr(tip.find(": ") + 2)), points[i].y);
        // Drawn between the marks of the least and the largest value, and of the first and the last step.
        double x = 0, y = 0;
        char comma = 0;
        line >> x >> comma >> y;
        const double share_x = (points[i].x - points[0].x) / (points.back().x - points[0].x);
        EXPECT_NEAR(x, 72 + share_x * (460 - 12 - 72), 0.06);
        const double share_y = low.y < high.y ? (points[i].y - low.y) / (high.y - low.y) : 0;
        EXPECT_NEAR(y, 154 - share_y * (154 - 12), 0.06);
        EXPECT_EQ(circles[i]->attributes.at("cx"), fmt::format("{:.1f}", x));
        EXPECT_EQ(circles[i]->attributes.at("cy"), fmt::format("{:.1f}", y));
      }
      seen += 1 + texts.size() + circles.size();
      return;
    }
    ADD_FAILURE() << "no such curve";
  }

  std::vector<json> steps, evaluations;
  std::string page;
  std::unique_ptr<Element> root;
  std::size_t seen = 0;  // cells, captions, marks and tooltips that were compared
};

TEST_F(ReportPage, EveryNumberEqualsItsSource) {
  make_run();
  if (HasFatalFailure()) return;

  const Cells summary = table("Run");
  ASSERT_EQ(summary.size(), 10u);
  for (std::size_t i = 1; i < summary.size(); ++i) {
    expect_value(summary[i].at(1), field(steps.front(), summary[i][0]));
    expect_value(summary[i].at(2), field(steps.back(), summary[i][0]));
  }

  std::size_t curves = 0;
  for (const auto& [title, name] :
       std::map<std::string, std::string>{{"Loss, nats a token", "loss"},
                                          {"Gradient norm", "grad_norm"},
                                          {"Learning rate", "lr"},
                                          {"Tokens a second", "tokens_per_second"},
                                          {"Model FLOP utilisation, of the peak", "mfu"},
                                          {"Loss, standard deviations from steps before", "loss_z"},
                                          {"Gradient norm, standard deviations likewise", "grad_norm_z"},
                                          {"Seconds that rank 0 waited for the ring", "ring_wait_seconds"}}) {
    std::vector<Point> points;
    for (const json& step : steps) {
      if (step.contains(name)) points.push_back({step.at("step"), step.at(name)});
    }
    EXPECT_EQ(points.size(), name.ends_with("_z") ? 6u : 26u) << name;  // z-scores begin after 20 steps
    expect_curve(title, "step", points);
    ++curves;
  }
  std::vector<Point> contexts;
  for (const json& result : evaluations.back().at("results")) {
    contexts.push_back({result.at("context_length"), result.at("nll")});
  }
  expect_curve("Negative log-likelihood by context, last evaluation", "context", contexts);
  EXPECT_EQ(root->all("figure").size(), curves + 1);

  const Config config = read_config(at("run/config.yaml"), {}, ConfigUse::know, check_model);
  const auto plans = plan_ranks(config, make_parameter_table(config.model), training_purpose(config));
  const Cells memory = table("Memory in bytes");
  ASSERT_EQ(memory.size(), 5u);
  const json& peaks = steps.front().at("peak_bytes");
  for (const RankPlan& kind : plans) {
    for (const auto rank : kind.ranks) {
      const auto i = static_cast<std::size_t>(rank);
      const std::vector<std::string>&planned = memory[1 + 2 * i], &peak = memory[2 + 2 * i];
      EXPECT_EQ(planned[0], std::to_string(rank));
      EXPECT_EQ(planned[1], "planned");
      EXPECT_EQ(peak[1], "peak");
      for (std::size_t tag = 0; tag < tag_count; ++tag) {
        EXPECT_EQ(memory[0][2 + tag], name_of(static_cast<Tag>(tag)));
        EXPECT_EQ(planned[2 + tag], std::to_string(kind.peak.by_tag[tag]));
        expect_value(peak[2 + tag], peaks.at(i).at(memory[0][2 + tag]));
      }
      EXPECT_EQ(planned.back(), std::to_string(kind.peak.total));
      expect_value(peak.back(), peaks.at(i).at("total"));
    }
  }

  const Cells ring = table("The ring in step 26");
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

  const Cells evaluation = table("Evaluation");
  ASSERT_EQ(evaluation.size(), 5u);  // two evaluations of two lengths
  for (std::size_t i = 0; i < 4; ++i) {
    const json &line = evaluations[i / 2], &result = line.at("results").at(i % 2);
    expect_value(evaluation[1 + i].at(0), line.at("step"));
    const std::array names{"context_length", "nll", "perplexity", "bits_per_byte", "ci95"};
    for (std::size_t j = 0; j < names.size(); ++j) expect_value(evaluation[1 + i].at(1 + j), field(result, names[j]));
  }

  std::size_t said = 0;  // and nothing else says anything
  for (const char* name : {"td", "th", "text", "figcaption", "circle"}) said += root->all(name).size();
  EXPECT_EQ(seen, said);
  for (const char* part : {"<script", "http", "src=", "href", "url(", "@import"}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
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

}  // namespace
}  // namespace ringtrain::testing
