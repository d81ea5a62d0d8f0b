// What gpu_bench found: facts of the machine, rows of figures, what went wrong. A row is printed when it is added, and
// all of it is written as JSON at the end. Used by one thread.
#pragma once

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

  void fact(const std::string& name, Json value);
  void add(Row row);
  /// A table of its own, as a memory plan: kept in the JSON under group, not printed.
  void attach(const std::string& group, const std::string& name, Json value);
  /// What is checked beside the figures: an output that was not written, say.
  void check(const std::string& group, const std::string& what, bool holds);
  /// The group ended early.
  void failed(const std::string& group, const std::string& sentence);

  const std::vector<Row>& rows() const { return rows_; }
  bool good() const { return failures_.empty(); }
  Json json() const;

 private:
  Json about_, facts_ = Json::object(), attached_ = Json::object();
  std::vector<Row> rows_;
  std::vector<std::string> failures_;
  int checks_ = 0;
};

/// Return a row as one object, as it stands in the JSON.
Json to_json(const Row& row);

}  // namespace ringtrain::bench
