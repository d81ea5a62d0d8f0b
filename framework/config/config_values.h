// Strict reading of single YAML values. Each function takes what the key allows and nothing else: no octal, no "yes",
// no NaN, no text where a number is expected. A number that its variable cannot hold is an error; it does not wrap.
// Used by the table of keys.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/config/yaml_tree.h"

namespace ringtrain {

struct Config;

/// Receives a description of what is wrong with a value; line is the line of the incorrect part.
using ReportProblem = std::function<void(int line, const std::string& what)>;

struct IntegerRange {
  std::int64_t low, high;
};

/// [low, high], or without an end that is open.
struct RealRange {
  double low, high;
  bool low_open = false, high_open = false;
};
/// Returns a range in mathematical notation: "(0, 1]".
std::string range_text(const RealRange& range);

void read_integer(const YamlValue& value, IntegerRange range, std::int64_t& out, const ReportProblem& report);
/// The same for a number of tokens, as token_count() reads it.
void read_tokens(const YamlValue& value, IntegerRange range, std::int64_t& out, const ReportProblem& report);
void read_unsigned(const YamlValue& value, std::uint64_t& out, const ReportProblem& report);
void read_real(const YamlValue& value, const RealRange& range, double& out, const ReportProblem& report);
void read_flag(const YamlValue& value, bool& out, const ReportProblem& report);
void read_text(const YamlValue& value, std::string& out, const ReportProblem& report);
/// Returns the index of the value among words, or -1 after it has reported a problem that lists them.
int read_word(const YamlValue& value, const std::vector<std::string>& words, const ReportProblem& report);

/// Returns a value as messages show it: "the text \"4\"", "a map", "nothing".
std::string described(const YamlValue& value);

/// A key of a config: an entry of the table of config_schema.h.
struct ConfigKey {
  std::string path;  // "model.rope_scaling.type"
  std::string doc;   // one line
  bool required = false;
  /// Stores a value of the right type and range; reports a problem otherwise.
  std::function<void(Config&, const YamlValue&, const ReportProblem&)> read;
  /// Returns the value as one line of YAML.
  std::function<std::string(const Config&)> write;
  std::string values = "";  // the values that it takes: "1 to 1024", "a | b", "true | false"
  bool is_source = false;   // says where a model comes from; the config that a run writes omits it
};

}  // namespace ringtrain
