// FILE.h5.manifest.json: what a token file must look like before its headers are read. Strict: every key is known,
// present and of its type, so that a garbled manifest is an error and never a guess. Its list of datasets is no index:
// types, counts and offsets are read from the file's own headers, and both must say the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain {

inline constexpr std::int64_t token_format_version = 1;

struct TokenManifest {
  struct Dataset {
    std::string name, type;
    std::int64_t count = 0;   // elements
    std::int64_t offset = 0;  // bytes from the start of the file
    friend bool operator==(const Dataset&, const Dataset&) = default;

    template <class Self, class Visit>
    static void visit_members(Self& self, Visit& visit) {
      visit("name", self.name);
      visit("type", self.type);
      visit("count", self.count);
      visit("offset", self.offset);
    }
  };
  std::int64_t bytes = 0;  // of the file
  std::string hash;        // XXH3-128 of the file
  std::vector<Dataset> datasets;

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    visit("bytes", self.bytes);
    visit.hash("xxh3_128", self.hash);
    visit("datasets", self.datasets);
  }
};

std::string manifest_path(const std::string& token_file);
/// Returns the manifest of a token file; Error(data) if it is missing or garbled.
TokenManifest read_manifest(const std::string& token_file);
/// Returns how each manifest of a token file begins, of whatever version.
std::string token_manifest_head();
std::string to_json(const TokenManifest& manifest);

}  // namespace ringtrain
