// The results of gpu_bench: facts of the machine, rows of figures, and failures. A row is printed when it is added, and
// the owner of the JSON is notified of every change, so that measurements survive if the run is killed. Used by one
// thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ringtrain::bench {

using Json = nlohmann::ordered_json;

/// One figure. parameters: what distinguishes it from the group's other rows with that name, such as S, D, causal.
/// note: how it was obtained, if that is not obvious ("extrapolated from ...").
struct Row {
  std::string group, name;
  double value = 0;
  std::string unit;
  Json parameters = Json::object();
  std::string note;
};

class Results {
 public:
  /// about: properties of the whole run, such as "emulated".
  explicit Results(Json about) : about_(std::move(about)) {}

  /// Takes the results of other groups than these from an earlier report.
  void keep(const Json& report, const std::vector<std::string>& groups);
  /// From now on, calls changed(json()) after each row, table, and failure.
  void on_change(std::function<void(const Json&)> changed) { changed_ = std::move(changed); }

  void fact(const std::string& name, Json value);
  void add(Row row);
  /// Adds a separate table, such as a memory plan: kept in the JSON under group, not printed.
  void attach(const std::string& group, const std::string& name, Json value);
  /// Adds a check in addition to the figures, for instance that an output was written.
  void check(const std::string& group, const std::string& what, bool holds);
  /// Reports that the group ended early.
  void failed(const std::string& group, const std::string& sentence);

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

/// Returns a row as one object of the JSON.
Json to_json(const Row& row);

}  // namespace ringtrain::bench
