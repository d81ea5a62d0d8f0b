#include "bench/gpu/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace ringtrain::bench {

namespace {

std::string text_of(const Json& parameters) {
  std::string text;
  for (const auto& [name, value] : parameters.items()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

}  // namespace

Json to_json(const Row& row) {
  Json json{{"group", row.group}, {"name", row.name}, {"value", row.value}, {"unit", row.unit}};
  json["parameters"] = row.parameters;
  if (!row.note.empty()) json["note"] = row.note;
  return json;
}

void Results::keep(const Json& report, const std::vector<std::string>& groups) {
  const auto again = [&](const std::string& group) { return std::ranges::find(groups, group) != groups.end(); };
  if (!again("machine")) facts_ = report.value("machine", Json::object());
  for (const Json& row : report.at("rows")) {
    if (again(row.at("group"))) continue;
    rows_.push_back({.group = row.at("group"),
                     .name = row.at("name"),
                     .value = row.at("value").is_null() ? std::nan("") : row.at("value").get<double>(),
                     .unit = row.at("unit"),
                     .parameters = row.at("parameters"),
                     .note = row.value("note", "")});
  }
  const Json attached = report.value("attached", Json::object());
  for (const auto& [group, tables] : attached.items()) {
    if (!again(group.substr(0, group.find(' ')))) attached_[group] = tables;
  }
  for (const std::string failure : report.value("failures", Json::array())) {
    if (!again(failure.substr(0, failure.find(':')))) failures_.push_back(failure);
  }
  checks_ = report.value("checks", 0);
}

void Results::fact(const std::string& name, Json value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  std::printf("%-10s %-34s %s\n", "machine", name.c_str(), text.c_str());
  std::fflush(stdout);
  facts_[name] = std::move(value);
  print();
}

void Results::add(Row row) {
  const std::string what = fmt::format("{} ({})", row.name, text_of(row.parameters));
  std::printf("%-10s %-78s %12s %s%s%s\n", row.group.c_str(), (row.parameters.empty() ? row.name : what).c_str(),
              fmt::format("{:.4g}", row.value).c_str(), row.unit.c_str(), row.note.empty() ? "" : "  # ",
              row.note.c_str());
  std::fflush(stdout);
  rows_.push_back(std::move(row));
  print();
}

void Results::attach(const std::string& group, const std::string& name, Json value) {
  attached_[group][name] = std::move(value);
  print();
}

void Results::check(const std::string& group, const std::string& what, bool holds) {
  ++checks_;
  if (!holds) failed(group, what);
}

void Results::failed(const std::string& group, const std::string& sentence) {
  failures_.push_back(group + ": " + sentence);
  std::printf("%-10s FAILED: %s\n", group.c_str(), sentence.c_str());
  std::fflush(stdout);
  print();
}

Json Results::json() const {
  Json json = about_;
  json["machine"] = facts_;
  json["rows"] = Json::array();
  for (const Row& row : rows_) json["rows"].push_back(to_json(row));
  json["attached"] = attached_;
  json["checks"] = checks_;
  json["failures"] = failures_;
  return json;
}

}  // namespace ringtrain::bench
