// What gpu_bench found: facts of the machine, rows of figures, what went wrong. A row is printed when it is added, and
// whoever keeps the JSON is told of every change, so that what was measured outlives a run that is killed. Used by one
// thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ringtrain::bench {

using Json = nlohmann::ordered_json;

/// One figure. parameters: what tells it from the group's other rows of that name, as S, D, causal. note: how it came
/// about, where that is not plain ("extrapolated from ...").
struct Row {
  std::string group, name;
  double value = 0;
  std::string unit;
  Json parameters = Json::object();
  std::string note;
};

class Results {
 public:
  /// about: what holds for the whole run, as "emulated".
  explicit Results(Json about) : about_(std::move(about)) {}

  /// Takes what a report before this one holds of other groups than these.
  void keep(const Json& report, const std::vector<std::string>& groups);
  /// Calls changed(json()) after each row, table and failure from now on.
  void on_change(std::function<void(const Json&)> changed) { changed_ = std::move(changed); }

  void fact(const std::string& name, Json value);
  void add(Row row);
  /// A table of its own, as a memory plan: kept in the JSON under group, not printed.
  void attach(const std::string& group, const std::string& name, Json value);
  /// What is checked beside the figures: an output that was not written, say.
  void check(const std::string& group, const std::string& what, bool holds);
  /// The group ended early.
  void failed(const std::string& group, const std::string& sentence);

  const std::vector<Row>& rows() const { return rows_; }
  std::size_t failures() const { return failures_.size(); }
  Json json() const;

 private:
  void print() const {
    if (changed_) changed_(json());
  }

  Json about_, facts_ = Json::object(), attached_ = Json::object();
  std::vector<Row> rows_;
  std::vector<std::string> failures_;
  int checks_ = 0;
  std::function<void(const Json&)> changed_;
};

/// Returns a row as one object, as it stands in the JSON.
Json to_json(const Row& row);

}  // namespace ringtrain::bench
