#include "framework/storage/safetensors_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace ringtrain {

namespace {

constexpr const char* metadata_key = "__metadata__";
constexpr std::size_t deepest = 16;

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error(what);
}

/// Takes the parser's events. Where it stands is a path of three levels: the header, an entry, and a list of an entry;
/// below them, and in unknown members, it only counts levels.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsEntry> entries;

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a truth value"); }
  bool number_integer(number_integer_t) override { return other("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a broken number"); }
  bool binary(binary_t&) override { return other("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets) return other("a number");
    (place_ == Place::shape ? entries.back().shape : offsets_).push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::entry || member_ != "dtype") return other("text");
    entries.back().dtype = value;
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::header) {
      if (!names_.insert(name).second) refuse(name + " stands there twice");
      member_ = name;
    } else if (place_ == Place::entry) {
      if (!members_.insert(name).second) refuse(entries.back().name + " has " + name + " twice");
      member_ = name;
    } else if (place_ == Place::metadata && !members_.insert(name).second) {
      refuse(std::string(metadata_key) + " has " + name + " twice");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) {
      place_ = Place::header;
    } else if (place_ == Place::header) {
      members_.clear();
      place_ = member_ == metadata_key ? Place::metadata : Place::entry;
      if (place_ == Place::entry) entries.emplace_back().name = member_;
      offsets_.clear();
    } else {
      begin_unknown("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::unknown) {
      end_unknown();
    } else if (place_ == Place::header) {
      place_ = Place::end;
    } else {
      if (place_ == Place::entry) finish_entry();
      place_ = Place::header;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::entry && member_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::entry && member_ == "data_offsets") {
      place_ = Place::offsets;
    } else {
      begin_unknown("a list");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::unknown) {
      end_unknown();
    } else {
      place_ = Place::entry;
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    refuse(error.what());
  }

 private:
  enum class Place { start, header, metadata, entry, shape, offsets, unknown, end };

  bool known_member() const { return member_ == "dtype" || member_ == "shape" || member_ == "data_offsets"; }

  /// A value that is not what its place wants; members that the format does not know may be anything.
  bool other(const char* what) {
    if (place_ == Place::unknown || (place_ == Place::entry && !known_member())) return true;
    if (place_ == Place::start) refuse(std::string(what) + " instead of an object");
    if (place_ == Place::metadata) refuse(std::string(metadata_key) + " holds " + what + " instead of text");
    if (place_ == Place::header) refuse(member_ + " is " + what + " instead of an object");
    refuse(entries.back().name + " has " + what + " in its " + member_);
  }

  void begin_unknown(const char* what) {
    other(what);
    if (++unknown_levels_ > deepest) refuse("nested deeper than " + std::to_string(deepest) + " levels");
    place_ = Place::unknown;
  }
  void end_unknown() {
    if (--unknown_levels_ == 0) place_ = Place::entry;
  }

  void finish_entry() {
    SafetensorsEntry& entry = entries.back();
    for (const char* member : {"dtype", "shape", "data_offsets"}) {
      if (!members_.contains(member)) refuse(entry.name + " has no " + member);
    }
    if (offsets_.size() != 2) refuse(entry.name + " needs two data_offsets");
    entry.begin = offsets_[0];
    entry.end = offsets_[1];
  }

  Place place_ = Place::start;
  std::size_t unknown_levels_ = 0;
  std::string member_;                     // the key read last, of the header or of an entry
  std::set<std::string> names_, members_;  // of the header; of the object that is being read
  std::vector<std::uint64_t> offsets_;
};

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors_json(std::string_view header) {
  // The parser would take a NUL for the end, and pass over a byte order mark.
  if (header.find('\0') != std::string_view::npos) refuse("it holds a byte of 0");
  const std::size_t first = header.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || header[first] != '{') refuse("it does not begin with {");
  HeaderReader reader;
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  return std::move(reader.entries);
}

}  // namespace ringtrain
