#include "framework/storage/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "framework/error.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/plain_text.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using nlohmann::json;

constexpr std::int64_t longest_header = 100'000'000;  // the reference's
constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
constexpr const char* metadata_key = "__metadata__";
constexpr std::size_t deepest = 16;  // in members that the format does not define

/// An element type of the format.
struct FileType {
  std::string_view name;
  int bits;
  StoredType type = StoredType::unsupported;
};
constexpr std::array file_types{FileType{"BOOL", 8},
                                FileType{"F4", 4},
                                FileType{"F6_E2M3", 6},
                                FileType{"F6_E3M2", 6},
                                FileType{"U8", 8},
                                FileType{"I8", 8},
                                FileType{"F8_E5M2", 8},
                                FileType{"F8_E4M3", 8},
                                FileType{"F8_E8M0", 8},
                                FileType{"F8_E4M3FNUZ", 8},
                                FileType{"F8_E5M2FNUZ", 8},
                                FileType{"I16", 16},
                                FileType{"U16", 16},
                                FileType{"F16", 16, StoredType::float16},
                                FileType{"BF16", 16, StoredType::bfloat16},
                                FileType{"I32", 32},
                                FileType{"U32", 32},
                                FileType{"F32", 32, StoredType::float32},
                                FileType{"C64", 64},
                                FileType{"F64", 64, StoredType::float64},
                                FileType{"I64", 64},
                                FileType{"U64", 64}};

/// One tensor as the header describes it, unchecked. Bytes count from the start of the data.
struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

void require_object(const json& value, const std::string& name) {
  if (!value.is_object()) throw std::runtime_error(name + " is of type " + value.type_name() + " instead of an object");
}

const json& member(const json& entry, const std::string& name, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end()) throw std::runtime_error(name + " has no " + key);
  return *found;
}

std::vector<std::uint64_t> counts(const json& entry, const std::string& name, const char* key) {
  std::vector<std::uint64_t> values;
  const json& list = member(entry, name, key);
  if (!list.is_array()) throw std::runtime_error(name + " has " + key + " of type " + list.type_name());
  for (const json& value : list) {
    if (!value.is_number_unsigned()) throw std::runtime_error(name + " has a value that is not a count in its " + key);
    values.push_back(value.get<std::uint64_t>());
  }
  return values;
}

SafetensorsEntry entry_from(const std::string& name, const json& value) {
  require_object(value, name);
  const json& dtype = member(value, name, "dtype");
  if (!dtype.is_string()) throw std::runtime_error(name + " has dtype of type " + dtype.type_name());
  const std::vector<std::uint64_t> offsets = counts(value, name, "data_offsets");
  if (offsets.size() != 2) throw std::runtime_error(name + " needs two data_offsets");
  return {.name = name,
          .dtype = dtype.get<std::string>(),
          .shape = counts(value, name, "shape"),
          .begin = offsets[0],
          .end = offsets[1]};
}

/// Returns the tensors of a header, sorted by name. Throws std::runtime_error that describes the problem: text that is
/// not UTF-8 or not a JSON object, a duplicate name or member, a member that is missing or has another type, or
/// __metadata__ that does not map text to text. Members that the format does not define are skipped; lists and objects
/// in them may be nested 16 deep.
std::vector<SafetensorsEntry> parse_safetensors_json(std::string_view header) {
  const std::size_t first = header.find_first_not_of(" \t\r\n");  // the parser would skip a byte order mark
  if (first == std::string_view::npos || header[first] != '{') throw std::runtime_error("it does not begin with {");
  std::vector<SafetensorsEntry> entries;
  const json tensors = parse_strict_json(header, {.bytes = header.size(), .depth = 2 + deepest});
  for (const auto& [name, value] : tensors.items()) {
    if (name != metadata_key) {
      entries.push_back(entry_from(name, value));
      continue;
    }
    require_object(value, name);
    for (const json& text : value) {
      if (!text.is_string()) throw std::runtime_error(name + " holds " + text.type_name() + " values instead of text");
    }
  }
  return entries;
}

const FileType& file_type(const std::string& path, const SafetensorsEntry& entry) {
  const auto* const found = std::ranges::find(file_types, entry.dtype, &FileType::name);
  if (found != file_types.end()) return *found;
  fail(ExitCode::checkpoint, "{}: {} has dtype {}, which safetensors does not define", path, plain_text(entry.name),
       plain_text(entry.dtype));
}

/// Returns the bytes that a tensor's shape needs.
std::uint64_t bytes_needed(const std::string& path, const SafetensorsEntry& entry, const FileType& type) {
  std::uint64_t elements = 1, bits = 0;
  bool fits = true;
  for (const std::uint64_t size : entry.shape) fits = fits && !__builtin_mul_overflow(elements, size, &elements);
  fits = fits && !__builtin_mul_overflow(elements, static_cast<std::uint64_t>(type.bits), &bits);
  if (!fits) {
    fail(ExitCode::checkpoint, "{}: the shape of {} has more elements than a file can hold", path,
         plain_text(entry.name));
  }
  if (bits % 8 != 0) {
    fail(ExitCode::checkpoint, "{}: {} ({}) has {} bits, so it ends inside a byte", path, plain_text(entry.name),
         entry.dtype, bits);
  }
  return bits / 8;
}

bool holds(const std::string& folder, const char* file) {
  return path_exists(folder + "/" + file, ExitCode::checkpoint);
}

void require_plain_name(const std::string& index, const std::string& name) {
  const bool plain =
      !name.empty() && name != "." && name != ".." && name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
  if (plain) return;
  fail(ExitCode::checkpoint, "{}: weight_map names \"{}\"; it may only name files of its own folder", index,
       plain_text(name));
}

/// Returns which tensors each file of a folder's index contains.
std::map<std::string, std::set<std::string>> read_index(const std::string& folder) {
  const std::string path = folder + "/" + index_file;
  std::map<std::string, std::set<std::string>> files;
  try {
    const json index = parse_strict_json(read_in_folder(folder, index_file, ExitCode::checkpoint));
    for (const auto& [tensor, file] : index.at("weight_map").items()) {
      require_plain_name(path, file.get<std::string>());
      files[file.get<std::string>()].insert(tensor);
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ExitCode::checkpoint, "{}: is not an index of safetensors files: {}", path, plain_text(error.what()));
  }
  if (files.empty()) fail(ExitCode::checkpoint, "{}: its weight_map is empty", path);
  return files;
}

/// Returns the tensors that a header describes, sorted by offset, with offsets from the start of a file of `file_bytes`
/// bytes that has this header; `file` remains 0. Element types that stored_tensor.h does not read become
/// StoredType::unsupported, after the same checks. Throws Error(checkpoint) that names `path`, and the tensor, for
/// anything that the reference refuses.
std::vector<StoredTensor> parse_header(std::string_view header, std::int64_t file_bytes, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  try {
    entries = parse_safetensors_json(header);
  } catch (const std::exception& error) {
    fail(ExitCode::checkpoint, "{}: its safetensors header is not valid: {}", path, plain_text(error.what()));
  }
  std::ranges::sort(entries, {}, [](const SafetensorsEntry& entry) {
    return std::tuple(entry.begin, entry.end, std::string_view(entry.name));
  });
  const std::int64_t data = 8 + std::ssize(header);
  std::uint64_t end = 0;
  std::vector<StoredTensor> tensors;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != end || entry.end < entry.begin) {
      fail(ExitCode::checkpoint, "{}: {} is at bytes {} to {} of the data, but the tensor before it ends at {}", path,
           plain_text(entry.name), entry.begin, entry.end, end);
    }
    end = entry.end;
    const FileType& type = file_type(path, entry);
    if (const std::uint64_t needed = bytes_needed(path, entry, type); end - entry.begin != needed) {
      fail(ExitCode::checkpoint, "{}: {} has {} bytes, but its shape and {} need {}", path, plain_text(entry.name),
           end - entry.begin, type.name, needed);
    }
    if (end > static_cast<std::uint64_t>(file_bytes)) break;  // reported below
    tensors.push_back({.name = entry.name,
                       .type = type.type,
                       .type_name = entry.dtype,
                       .shape = {entry.shape.begin(), entry.shape.end()},
                       .offset = data + static_cast<std::int64_t>(entry.begin),
                       .bytes = static_cast<std::int64_t>(entry.end - entry.begin)});
  }
  if (const auto left = static_cast<std::uint64_t>(file_bytes - data); end != left) {
    fail(ExitCode::checkpoint, "{}: holds {} bytes of tensors, but its header describes {}; it is {}", path, left, end,
         end > left ? "cut off" : "followed by other bytes");
  }
  return tensors;
}

std::vector<StoredTensor> read_file_header(const File& file) {
  const std::string& path = file.path();
  const std::int64_t bytes = file.size();
  if (bytes < 8) fail(ExitCode::checkpoint, "{}: has {} bytes, too few for a safetensors file", path, bytes);
  std::uint64_t length = 0;
  file.read_at(0, &length, sizeof length);
  if (length > longest_header) {
    fail(ExitCode::checkpoint, "{}: its header would have {} bytes, more than the {} that safetensors allows", path,
         length, longest_header);
  }
  if (const auto end = static_cast<std::int64_t>(length) + 8; end > bytes) {
    fail(ExitCode::checkpoint, "{}: has {} bytes, but its header alone ends at {}; it is cut off", path, bytes, end);
  }
  std::string header(length, '\0');
  file.read_at(8, header.data(), header.size());
  return parse_header(header, bytes, path);
}

/// Adds the tensors of a folder's file; of a shard, exactly those that the index expects in it.
void add_file(StoredTensors& all, const std::string& folder, const std::string& base,
              const std::set<std::string>* expected) {
  const File file = open_in_folder(folder, base, ExitCode::checkpoint);
  const std::string& path = file.path();
  const FileStamp stamp = file.stamp();
  std::size_t found = 0;
  for (StoredTensor& tensor : read_file_header(file)) {
    tensor.file = all.files.size();
    if (expected) {
      if (const StoredTensor* other = all.find(tensor.name)) {
        fail(ExitCode::checkpoint, "{}: has {}, which is also in {}", path, plain_text(tensor.name),
             all.files[other->file]);
      }
      if (!expected->contains(tensor.name)) {
        fail(ExitCode::checkpoint, "{}: contains {}, which {} does not list for this file", path,
             plain_text(tensor.name), index_file);
      }
      ++found;
    }
    std::string name = tensor.name;
    all.tensors.emplace(std::move(name), std::move(tensor));
  }
  require_unchanged(file, stamp);
  all.add_file(file);
  if (!expected || found == expected->size()) return;
  for (const std::string& name : *expected) {
    const StoredTensor* tensor = all.find(name);
    if (tensor && all.files[tensor->file] == path) continue;
    fail(ExitCode::checkpoint, "{}: does not contain {}, although {} lists it", path, plain_text(name), index_file);
  }
}

}  // namespace

StoredTensors read_safetensors_of_folder(const std::string& folder, const std::string& file) {
  StoredTensors all;
  add_file(all, folder, file, nullptr);
  return all;
}

StoredTensors read_safetensors_folder(const std::string& folder) {
  StoredTensors all;
  if (holds(folder, single_file)) return read_safetensors_of_folder(folder, single_file);
  if (!holds(folder, index_file)) {
    fail(ExitCode::checkpoint, "{}: has neither {} nor {}; convert other weights (pytorch_model.bin) to safetensors",
         folder, single_file, index_file);
  }
  for (const auto& [name, expected] : read_index(folder)) add_file(all, folder, name, &expected);
  return all;
}

std::string unread_shards(const std::string& folder) {
  if (!holds(folder, single_file) || !holds(folder, index_file)) return "";
  return fmt::format("{}: holds both {} and {}; the single file is read, as in transformers, and the shards are not",
                     folder, single_file, index_file);
}

bool holds_safetensors(const std::string& folder) {
  return holds(folder, single_file) || holds(folder, index_file);
}

}  // namespace ringtrain
