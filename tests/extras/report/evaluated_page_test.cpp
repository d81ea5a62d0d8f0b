// The page of `report --evaluation`: all that `evaluate` can do in one file, on two ranks. Every number equals its
// source; the markup is well-formed, small and asks nobody for anything.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/extras/report/strict_markup.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

std::string content(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class EvaluatedPage : public FolderTest {
 protected:
  int code_of(const std::string& command) const {
    const int status = std::system(("cd '" + folder + "' && " + command + " >>log 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void run(const std::string& command) const {
    ASSERT_EQ(code_of(command), 0) << command << "\n" << content(at("log"));
  }
  static std::string program(const std::string& name) { return "'" + binary_folder() + "/" + name + "' "; }
  void make_run() const {
    run(program("prepare") + "--input '" + source_folder() + "/docs' --output corpus.h5 --validation-fraction 0.4");
    run(program("train") + "--output run --config '" + source_folder() +
        "/configs/tiny.yaml' --set data.train=corpus.h5 --set training.steps=2 --set training.seq_len=64 --set "
        "checkpoint.interval=1 --set mesh.sequence=1 --set mesh.data=1");
  }
  std::string evaluate(const std::string& more) const {
    return program("evaluate") +
           "--checkpoint run --data corpus.h5 --context-lengths 1000,1200 --target-tokens 16 --target-blocks 2 "
           "--mesh 1x2 --output results.json " +
           more;
  }
  /// Returns whether some cell of the page's tables is this number in four digits.
  static bool has_cell(const Element& root, double value) {
    const std::string wanted = fmt::format("{:#.4g}", value), sign = fmt::format("{:+#.4g}", value);
    return std::ranges::any_of(root.all("td"), [&](const Element* cell) {
      return cell->text == wanted || cell->text == sign || cell->text == fmt::format("{:.3e}", value) ||
             cell->text == fmt::format("{:+.3e}", value) || (value == 0 && cell->text == "0");
    });
  }
};

TEST_F(EvaluatedPage, ShowsEveryPartOfAnEvaluation) {
  make_run();
  if (HasFatalFailure()) return;
  run(
      evaluate("--by-position --longppl --trunc-len 400 --sliding-window 300 --alpha 0.001 --beta -9 --save-path "
               "keys.json --against run --set model.rope_theta=2000 --tasks all --task-samples 1 --task-depths 3 "
               "--greedy-match"));
  run(program("report") + "run --evaluation results.json");
  if (HasFatalFailure()) return;
  const json results = json::parse(content(at("results.json")));
  const std::string page = content(at("run/report.html"));
  EXPECT_LT(page.size(), 1000000U);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  const auto root = StrictMarkup::parse(page);
  std::vector<std::string> headings;
  for (const Element* heading : root->all("h2")) headings.push_back(heading->text);
  for (const char* const wanted : {"Evaluated", "Against another model", "LongPPL", "Long-context tasks"}) {
    EXPECT_EQ(std::ranges::count(headings, wanted), 1) << wanted;
  }
  for (const json& result : results.at("results")) EXPECT_TRUE(has_cell(*root, result.at("nll")));
  for (const json& result : results.at("against").at("results")) {
    EXPECT_TRUE(has_cell(*root, result.at("kl"))) << result.at("kl");
    EXPECT_TRUE(has_cell(*root, result.at("difference_nll"))) << result.at("difference_nll");
  }
  ASSERT_TRUE(results.at("longppl").at("longppl").is_number());
  EXPECT_TRUE(has_cell(*root, results.at("longppl").at("longppl")) ||
              page.find(fmt::format("{:.1f}", results.at("longppl").at("longppl").get<double>())) != std::string::npos);
  std::size_t cells = 0, figures = 0;
  for (const json& task : results.at("tasks").at("results")) {
    EXPECT_EQ(task.at("cells").size(), 6U);
    cells += 6;
    EXPECT_TRUE(has_cell(*root, task.at("nll"))) << task.at("task");
    for (const json& cell : task.at("cells")) {
      EXPECT_NE(page.find(fmt::format("{:.0f}%: {:.0f}</title>", 100 * cell.at("depth").get<double>(),
                                      std::round(100 * cell.at("accuracy").get<double>()))),
                std::string::npos);
    }
  }
  EXPECT_EQ(root->all("rect").size(), cells + 6);  // of the first task also the nll
  for (const Element* figure : root->all("figure")) {
    const std::string title = figure->all("b").at(0)->text;
    figures += title.find("by position") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(figures, 3U);  // nll, its difference, KL

  // The same again replaces what this program wrote, and the key tokens serve the next evaluation.
  run(evaluate("--longppl --key-tokens keys.json"));
  EXPECT_EQ(json::parse(content(at("results.json"))).at("longppl").at("own_contrast"), false);
  EXPECT_EQ(code_of(evaluate("--longppl --save-path corpus.h5")), 2);  // an input
  EXPECT_EQ(code_of(program("report") + "run --evaluation keys.json"), 2);
  EXPECT_NE(content(at("log")).find("holds no results of evaluate --output"), std::string::npos);
}

TEST_F(EvaluatedPage, AKilledEvaluationLeavesNothingHalfWritten) {
  make_run();
  if (HasFatalFailure()) return;
  const std::string command = evaluate(
      "--longppl --trunc-len 400 --sliding-window 40 --save-path keys.json --tasks all "
      "--task-samples 40");
  EXPECT_EQ(code_of("timeout -s KILL 2 " + command), 137);
  const auto names = [&] {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) found.push_back(entry.path().filename());
    return found;
  };
  EXPECT_EQ(std::ranges::count(names(), "results.json") + std::ranges::count(names(), "keys.json"), 0);
  run(evaluate("--longppl --trunc-len 400 --sliding-window 300 --save-path keys.json"));
  for (const std::string& name : names()) EXPECT_EQ(name.find("partial"), std::string::npos) << name;
  EXPECT_TRUE(json::parse(content(at("results.json"))).is_object());
  EXPECT_TRUE(json::parse(content(at("keys.json"))).is_object());
}

}  // namespace
}  // namespace ringtrain::testing
