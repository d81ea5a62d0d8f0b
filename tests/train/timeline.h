// Whole runs with a timeline, and its file, read back: rows of nested spans.
#pragma once

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/train/train_fixture.h"

namespace ringtrain::testing {

using nlohmann::json;

struct TimelineSpan {
  std::string name;
  double begin, end;
  json arguments;
  int parent = -1;  // index in its row
};
struct TimelineRow {
  std::string name;
  std::vector<TimelineSpan> spans;
  /// Returns whether a span with this name encloses spans[i].
  bool within(std::size_t i, const std::string& outer) const {
    for (int at = spans[i].parent; at >= 0; at = spans[at].parent) {
      if (spans[at].name == outer) return true;
    }
    return false;
  }
  std::size_t count(const std::string& span_name) const {
    return static_cast<std::size_t>(
        std::count_if(spans.begin(), spans.end(), [&](const TimelineSpan& s) { return s.name == span_name; }));
  }
};

class TimelineTest : public TextTest {
 protected:
  static constexpr double tolerance = 2e-3;  // microseconds: times are written with three decimal places

  /// Returns the rows of the file by (data rank, name), each with its nested spans; expects that they are nested.
  static std::map<std::pair<std::int64_t, std::string>, TimelineRow> rows_of(const std::string& path) {
    std::ifstream stream(path);
    const json file = json::parse(stream);
    EXPECT_EQ(file.at("otherData").at("dropped_spans"), 0);
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> names;
    std::map<std::pair<std::int64_t, std::string>, TimelineRow> rows;
    for (const json& event : file.at("traceEvents")) {
      if (event.at("ph") == "M" && event.at("name") == "thread_name") {
        names[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
      }
    }
    for (const json& event : file.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const std::int64_t process = event.at("pid");
      const std::string& name = names.at({process, event.at("tid")});
      TimelineRow& row = rows[{process - 1, name}];
      row.name = name;
      const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
      row.spans.push_back({event.at("name"), begin, end, event.at("args")});
    }
    for (auto& [key, row] : rows) nest(row);
    return rows;
  }
  static void nest(TimelineRow& row) {
    std::vector<int> open;
    double last = -1;
    for (std::size_t i = 0; i < row.spans.size(); ++i) {
      TimelineSpan& span = row.spans[i];
      EXPECT_GE(span.begin, last) << row.name << ": in the order of beginnings";
      last = span.begin;
      const auto end_of = [&](int at) { return row.spans[at].end; };
      while (!open.empty() && end_of(open.back()) <= span.begin + tolerance) open.pop_back();
      if (!open.empty()) {
        span.parent = open.back();
        EXPECT_LE(span.end, end_of(open.back()) + tolerance)
            << row.name << ": " << span.name << " overlaps " << row.spans[open.back()].name;
      }
      open.push_back(static_cast<int>(i));
    }
  }

  Outcome run_traced(const Config& config, const std::string& output, const TraceRequest& trace) const {
    return run_with({.config = config, .output = at(output), .trace = trace});
  }
};

}  // namespace ringtrain::testing
