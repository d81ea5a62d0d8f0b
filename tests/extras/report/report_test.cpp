// extras/report: the page contains every number of metrics.jsonl, and fetches nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "extras/report/chart.h"
#include "extras/report/html_report.h"
#include "extras/report/page_parts.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

class Report : public FolderTest {
 protected:
  static std::string train_line(int step) {
    return fmt::format(
        R"({{"kind":"train","step":{},"time":"2026-11-22T13:04:0{}.250Z","tokens":{},"loss":{:.17g},"grad_norm":null,)"
        R"("lr":0.001,"seconds":0.5,"peak_bytes":[{{"weights":100,"total":123}}],)"
        R"("ring":{{"forward":{{"time_imbalance":1.25,"hop_wait_seconds":[0,0.125]}}}}}})",
        step, step, step * 64, 5.0 / step);
  }
  void write_metrics(int steps) const {
    std::ofstream file(at("metrics.jsonl"));
    for (int step = 1; step <= steps; ++step) file << train_line(step) << "\n";
    file << R"({"kind":"evaluation","step":3,"results":[{"context_length":64,"nll":1.5,"perplexity":4.48,)"
         << R"("bits_per_byte":2.16,"ci95":[1.4,1.6]}]})"
         << "\nno json\n";
  }
  static RunReport report_of(const std::string& run) { return html_report({ShownRun{.folder = run}}); }
  std::string content(const std::string& name) const {
    std::ifstream stream(at(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
};

TEST_F(Report, ThePageHoldsTheNumbersAndAsksForNothing) {
  write_metrics(3);
  nlohmann::json evaluation;
  evaluation["tasks"]["results"][0]["cells"] = std::vector<nlohmann::json>(201, {{"context_length", 64}});
  const std::string page = html_report({{.folder = folder, .evaluation_path = "e", .evaluation = evaluation}}).page;
  for (const char* part :
       {"201 cells are too many to show.", "<title>step 1: 5</title>", "<title>step 2: 2.500</title>",
        "<title>step 3: 1.667</title>", "<td>123 B</td>", "forward 1.250,", "hop 1: 0.1250<", ">4.480</td>",
        "1.400 to 1.600", "<polyline", "name=\"viewport\"", "prefers-color-scheme:dark", "@media print"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  for (const char* part : {"<script", "http", "src=", "href", "url(", "@import"}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
  expect_error(ExitCode::usage, "does not exist", [&] { report_of(at("none")); });
}

TEST_F(Report, WhatHappenedIsMarkedAndExplained) {
  std::ofstream file(at("metrics.jsonl"));
  for (int step = 1; step <= 20; ++step) {
    file << fmt::format(R"({{"kind":"train","step":{},"loss":{},"grad_norm":1{}}})", step,
                        step == 7 || step == 9 ? "null" : "2.5",
                        step == 5   ? R"(,"loss_spike":true)"
                        : step == 9 ? R"(,"empty":true)"
                        : step == 12 || step == 1
                            ? R"(,"started":{"build":"b","host":"machine","device":"chip","cores":2,"mesh":"1x2"})"
                            : "")
         << "\n";
  }
  file.close();
  const std::string page = report_of(folder).page;
  const auto count = [&](const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) ++found;
    return found;
  };
  for (const char* part :
       {"<title>step 5: loss spike</title>", "<title>step 7: skipped, loss or gradient norm is not finite</title>",
        "<title>step 9: skipped, nothing to learn from</title>", "<title>step 12: resumed</title>"}) {
    EXPECT_EQ(count(part), 2u) << part;  // in the charts of loss and norm
  }
  for (const char* part : {"<h2>Events: 4</h2>", "<td>5</td><td>loss spike</td><td>2.500</td>",
                           "<td>7</td><td>skipped, loss or gradient norm is not finite</td><td>-</td>",
                           "<td>9</td><td>skipped, nothing to learn from</td>",
                           "<td>12</td><td>resumed, mesh 1x2 on machine</td>", "Dashed line: resumed"}) {
    EXPECT_EQ(count(part), 1u) << part;
  }
}

TEST_F(Report, IsAtMostAMegabyteHoweverLongTheRun) {
  std::ofstream file(at("metrics.jsonl"));
  const int steps = 20'000, ranks = 2000;
  std::string peaks, waits = "0.5";
  for (int rank = 0; rank < ranks; ++rank)
    peaks += fmt::format(R"({}{{"weights":{},"total":9999}})", rank ? "," : "", rank);
  for (int hop = 1; hop < ranks; ++hop) waits += ",0.125";
  for (int step = 1; step <= steps; ++step) {
    file << fmt::format(R"({{"kind":"train","step":{0},"loss":{1},"grad_norm":{2},"lr":0.001,"seconds":0.5,"mfu":0.3,)"
                        R"("tokens_per_second":{2}e3,"loss_z":{1},"grad_norm_z":{1},"ring_wait_seconds":{2}{3}{4}}})",
                        step, step % 97 == 0 ? "null" : fmt::format("{}", 2 + std::sin(step)), 1 + step % 13,
                        step % 3 == 0   ? R"(,"loss_spike":true)"
                        : step % 5 == 0 ? R"(,"empty":true)"
                                        : "",
                        step % 7 == 1 ? R"(,"started":{"host":"h"})" : "")
         << "\n";
    if (step % 50 != 0) continue;
    file << fmt::format(R"({{"kind":"evaluation","step":{},"results":[)", step);
    for (int length = 0; length < 12; ++length) {
      file << fmt::format(R"({}{{"context_length":{},"nll":2.5,"ci95":[2,3],"delta_nll":0.1,"delta_ci95":[0,1]}})",
                          length ? "," : "", 64 << length);
    }
    file << "]}\n";
  }
  file << fmt::format(
              R"({{"kind":"train","step":{},"loss":2,"peak_bytes":[{}],"ring":{{"forward":{{"time_imbalance":1,)"
              R"("hop_wait_seconds":[{}]}}}}}})",
              steps + 1, peaks, waits)
       << "\n";
  file.close();
  EXPECT_LT(report_of(folder).page.size(), 1'000'000u);
  EXPECT_LT(html_report({ShownRun{.folder = folder}, ShownRun{.folder = folder}}).page.size(), 1'000'000u);
}

TEST(ReportNumbers, HaveFourDigits) {
  const std::vector<std::pair<double, const char*>> cases{{0, "0"},
                                                          {-0.0, "0"},
                                                          {7, "7"},
                                                          {9999, "9999"},
                                                          {9999.4, "9999"},
                                                          {9999.6, "10.00K"},
                                                          {-12345, "-12.35K"},
                                                          {2.5, "2.500"},
                                                          {2.34567, "2.346"},
                                                          {0.000123456, "0.0001235"},
                                                          {0.0000123456, "1.235e-05"},
                                                          {999949, "999.9K"},
                                                          {999951, "1.000M"},
                                                          {123456789, "123.5M"},
                                                          {9.9e14, "990T"},
                                                          {20000, "20K"},
                                                          {1e300, "1.000e+288T"},
                                                          {1234.56, "1235"},
                                                          {std::nan(""), "-"},
                                                          {INFINITY, "-"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(four_digits(value), text);
  EXPECT_EQ(signed_digits(0.25), "+0.2500");
  EXPECT_EQ(ticks(0.13, 2.2, 5), (std::vector<double>{0.5, 1, 1.5, 2}));
  EXPECT_EQ(ticks(0, 400, 6).size(), 5u);
  EXPECT_TRUE(ticks(1, 1, 5).empty());
}

TEST(ReportNumbers, AreSmoothedWithoutABias) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 1000; ++i) points.push_back({static_cast<double>(i), i % 2 == 0 ? 1.0 : 3.0});
  const std::vector<double> values = smoothed(points);
  EXPECT_DOUBLE_EQ(values[0], 1);  // the first is itself
  for (std::size_t i = 200; i < values.size(); ++i) EXPECT_NEAR(values[i], 2, 0.06);
  // A span of 20: keep = 1 - 2 / 21. The second by hand: (keep * 1 + 3) / (keep + 1).
  const double keep = 1 - 2.0 / 21;
  EXPECT_NEAR(values[1], (keep * 1 + 3) / (keep + 1), 1e-12);
}

TEST_F(Report, LinesOfAnotherShapeAreSkippedAndCounted) {
  write_metrics(3);
  const std::string lines = content("metrics.jsonl"), good = lines.substr(0, lines.find("no json"));
  const auto report_with = [&](const std::string& more) {
    std::ofstream(at("metrics.jsonl"), std::ios::binary) << good << more;
    return report_of(folder);
  };
  EXPECT_EQ(report_with("").warning, "");
  const std::string page = report_with("").page;
  const auto train = [](const std::string& more) { return R"({"kind":"train","step":2)" + more + "}"; };
  const auto evaluation = [](const std::string& more) { return R"({"kind":"evaluation","step":3)" + more + "}"; };
  const std::vector<std::string> strange{"no json",
                                         "",
                                         "[1]",
                                         "{}",
                                         train(R"(,"ring":)" + std::string(200'000, '[') + std::string(200'000, ']')),
                                         std::string(40, '\0'),
                                         R"({"kind":"train","step":"2"})",
                                         R"({"kind":"train","step":1e300})",
                                         R"({"kind":"train","step":18446744073709551615})",
                                         R"({"kind":["train"],"step":2})",
                                         R"({"kind":"other","step":2,"results":[]})",
                                         train(R"(,"ring":3)"),
                                         train(R"(,"ring":{"forward":7})"),
                                         train(R"(,"ring":{"forward":{"hop_wait_seconds":"abc"}})"),
                                         train(R"(,"ring":{"backward":{"hop_wait_seconds":{"a":1}}})"),
                                         evaluation(""),
                                         evaluation(R"(,"results":3)"),
                                         evaluation(R"(,"results":[3])"),
                                         evaluation(R"(,"results":[{"context_length":"long","nll":1}])")};
  for (const std::string& one : strange) {
    const RunReport report = report_with(one + "\n");
    EXPECT_EQ(report.warning,
              at("metrics.jsonl") + ":5: the page leaves out 1 line without metrics of a run; this is the first")
        << one.substr(0, 100);
    EXPECT_EQ(report.page.size(), page.size() + report.warning.size() + sizeof("<p class=\"warn\">.</p>\n") - 1);
  }
  EXPECT_NE(report_with("1\n2\n3\n").warning.find(":5: the page leaves out 3 lines"), std::string::npos);
  // Members that are only printed may have any value without causing a failure.
  for (const char* more : {R"(,"loss":"high")", R"(,"peak_bytes":[{"total":{}},3])", R"(,"peak_bytes":{"a":1})",
                           R"(,"time":5,"tokens":[[]])", R"(,"loss":1e308,"lr":-1e308)"}) {
    EXPECT_EQ(report_with(train(more) + "\n").warning, "") << more;
  }
}

TEST_F(Report, WhatIsNoFileIsRefused) {
  ASSERT_EQ(::mkfifo(at("metrics.jsonl").c_str(), 0600), 0);
  expect_error(ExitCode::usage, "metrics.jsonl", [&] { report_of(folder); });
}

}  // namespace
}  // namespace ringtrain::testing
