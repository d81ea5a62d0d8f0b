#include "data/preparation/data_forms.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "data/preparation/json_line.h"
#include "data/preparation/text_stream.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view unpack = "unpack it, and prepare the files in it";

struct ForeignForm {
  std::string_view what;
  std::array<std::string_view, 3> endings;  // of its name, without that of the compression
  std::string_view first_bytes;             // "": only the name identifies it
  std::string_view advice;
};

constexpr std::array<ForeignForm, 15> foreign_forms{{
    {"a Parquet file", {".parquet"}, "PAR1", convert_advice},
    {"an Arrow file", {".arrow", ".feather"}, "ARROW1", convert_advice},
    {"an Arrow stream", {}, "\xFF\xFF\xFF\xFF", convert_advice},
    {"a CSV file", {".csv", ".tsv"}, "", convert_advice},
    {"a NumPy file", {".npy"}, "\x93NUMPY", convert_advice},
    {"a file of numbers", {".bin"}, "", convert_advice},
    {"a PDF", {".pdf"}, "%PDF-", "write its text into a .txt file, and prepare that file"},
    {"an SQLite database", {".sqlite", ".db"}, "SQLite format 3", "write its texts into a .jsonl file; prepare that"},
    {"an HDF5 file", {".h5", ".hdf5"}, "\x89HDF", "prepare reads texts; pass a token file to train or evaluate"},
    {"a ZIP archive", {".zip", ".docx", ".npz"}, "PK\x03\x04", unpack},
    {"a tar archive", {".tar", ".tgz"}, "", unpack},
    {"an xz archive", {".xz"}, "\xFD\x37zXZ", unpack},
    {"a bzip2 archive", {".bz2"}, "BZh91AY", unpack},
    {"compressed by gzip", {}, "\x1F\x8B", "give it a name that ends in .gz, and prepare decompresses it"},
    {"compressed by zstd", {}, "\x28\xB5\x2F\xFD", "give it a name that ends in .zst, and prepare decompresses it"},
}};

/// Returns a path in lower case, without an ending for compression.
std::string lower_name(std::string_view path) {
  std::string name(without_compression(path));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

bool has_name_of(const ForeignForm& form, std::string_view path) {
  const std::string name = lower_name(path);
  return std::ranges::any_of(form.endings, [&](auto ending) { return !ending.empty() && name.ends_with(ending); });
}

bool has_bytes_of(const ForeignForm& form, std::string_view first_bytes) {
  return !form.first_bytes.empty() && first_bytes.starts_with(form.first_bytes);
}

bool is_json(std::string_view path) {
  return lower_name(path).ends_with(".json");
}

/// Returns whether a text begins with a line that is an object, or with an object that continues past the end of the
/// available text.
bool begins_with_object(std::string_view text, bool is_whole) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos && !is_whole) return text.starts_with('{');
  try {
    scan_json_line(text.substr(0, end), "text");
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

bool is_json_lines(std::string_view path) {
  const std::string name = lower_name(path);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

bool is_data_name(std::string_view name) {
  return is_json_lines(name) || is_json(name) ||
         std::ranges::any_of(foreign_forms, [&](const ForeignForm& form) { return has_name_of(form, name); });
}

bool is_card_name(std::string_view name) {
  return name.starts_with('.') || name.starts_with("README") || name.starts_with("LICENSE") || name.ends_with(".md");
}

bool is_data_folder(const std::string& path) {
  namespace fs = std::filesystem;
  bool has_data = false;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(path, options, error), end; entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (is_card_name(name)) {
      entry.disable_recursion_pending();
    } else if (!entry->is_directory(error)) {
      if (!is_data_name(name)) return false;
      has_data = true;
    }
  }
  return has_data;
}

bool is_foreign(std::string_view first_bytes) {
  return std::ranges::any_of(foreign_forms, [&](const ForeignForm& form) { return has_bytes_of(form, first_bytes); });
}

bool holds_json_lines(const std::string& path) {
  constexpr std::size_t looked_at = 1 << 16;
  std::string text(looked_at, '\0');
  const auto stream = TextStream::open(path);
  std::size_t bytes = 0;
  for (std::size_t read = 1; read > 0 && bytes < looked_at; bytes += read) {
    read = stream->read(text.data() + bytes, looked_at - bytes);
  }
  text.resize(bytes);
  for (const ForeignForm& form : foreign_forms) {
    if (has_bytes_of(form, text) || has_name_of(form, path))
      fail(ExitCode::data, "{} is {}: {}", path, form.what, form.advice);
  }
  if (!is_json(path) || bytes == 0) return is_json_lines(path);
  if (begins_with_object(text, bytes < looked_at)) return true;
  fail(ExitCode::data, "{} is JSON, but its lines are not objects: {}", path, convert_advice);
}

}  // namespace ringtrain
