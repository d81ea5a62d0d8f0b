#include "framework/dump/dump_index.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

constexpr const char* format_name = "ringtrain dump";
constexpr std::int64_t format_version = 1;
constexpr std::int64_t largest_index = 16 << 20;
constexpr std::string_view part_prefix = "rank-", part_suffix = ".h5";
constexpr const char *index_name = "index.json", *lock_name = "lock";

std::string index_path(const std::string& folder) {
  return folder + "/" + index_name;
}

/// Returns whether a file of this name is what an index that was not finished left behind.
bool is_unfinished_index(const std::string& name) {
  const std::optional<UniqueName> unfinished = parse_unique_name(name, "partial");
  return unfinished && unfinished->base == index_name;
}

const char* name_of(DumpKind kind) {
  return kind == DumpKind::tokens ? "tokens" : "parameter";
}

/// Calls visit(name, member) for each plain member, in the order of the file.
template <class Index, class Visit>
void visit_members(Index& index, const Visit& visit) {
  visit("step", index.step);
  visit("data", index.data);
  visit("sequence", index.sequence);
  visit("layout", index.layout);
  visit("device", index.device);
  visit("dtype", index.dtype);
  visit("sequences", index.sequences);
  visit("sequence_length", index.sequence_length);
}

Shape shape_from(const nlohmann::json& list) {
  std::vector<std::int64_t> dims;
  for (const nlohmann::json& dim : list) {
    const std::optional<std::int64_t> size = whole_number(dim);
    if (!size || *size < 0) throw std::runtime_error("a size is no count");
    dims.push_back(*size);
  }
  if (dims.size() > Shape::max_rank) throw std::runtime_error("a shape has too many dimensions");
  return Shape(dims);
}

DumpedTensor tensor_from(const nlohmann::json& json) {
  const StrictObject entry(json, 3);
  const std::string kind = entry.text("kind");
  if (kind != name_of(DumpKind::tokens) && kind != name_of(DumpKind::parameter)) {
    throw std::runtime_error("a tensor is of no known kind");
  }
  return {.name = entry.text("name"),
          .kind = kind == name_of(DumpKind::tokens) ? DumpKind::tokens : DumpKind::parameter,
          .shape = shape_from(entry.list("shape"))};
}

DumpIndex index_from(const std::string& text) {
  const nlohmann::json json = parse_strict_json(text);
  const StrictObject top(json, 11);
  if (top.text("format") != format_name || top.integer("format_version") != format_version) {
    throw std::runtime_error("it is no dump of this version");
  }
  DumpIndex index;
  visit_members(index, [&](const char* name, auto& member) { top.read(name, member); });
  for (const nlohmann::json& tensor : top.list("tensors")) index.tensors.push_back(tensor_from(tensor));
  return index;
}

}  // namespace

Shape DumpIndex::shape_of(const DumpedTensor& tensor) const {
  if (tensor.kind == DumpKind::parameter) return tensor.shape;
  return {sequences * sequence_length, tensor.shape.numel()};
}

DumpIndex read_dump_index(const std::string& folder, ExitCode code) {
  const std::string path = index_path(folder);
  if (!path_exists(path)) fail(code, "{}: holds no dump ({} is missing)", folder, index_name);
  const std::string text = read_file(path, code, largest_index);
  try {
    return index_from(text);
  } catch (const std::exception& error) {
    fail(code, "{}: is no index of a dump: {}", path, error.what());
  }
}

void write_dump_index(const std::string& folder, const DumpIndex& index) {
  nlohmann::ordered_json json;
  json["format"] = format_name;
  json["format_version"] = format_version;
  visit_members(index, [&](const char* name, const auto& member) { json[name] = member; });
  json["tensors"] = nlohmann::ordered_json::array();
  for (const DumpedTensor& tensor : index.tensors) {
    nlohmann::ordered_json entry;
    entry["name"] = tensor.name;
    entry["kind"] = name_of(tensor.kind);
    entry["shape"] = nlohmann::ordered_json::array();
    for (int dim = 0; dim < tensor.shape.rank(); ++dim) entry["shape"].push_back(tensor.shape[dim]);
    json["tensors"].push_back(std::move(entry));
  }
  write_file(index_path(folder), json.dump(1) + "\n", ExitCode::usage);
}

std::string dump_part_path(const std::string& folder, int rank, int part) {
  return fmt::format("{}/{}{:04}.{:03}{}", folder, part_prefix, rank, part, part_suffix);
}

std::optional<int> rank_of_dump_part(const std::string& name) {
  if (!name.starts_with(part_prefix)) return std::nullopt;
  int rank = 0, part = 0;
  const char* const end = name.data() + name.size();
  const auto after_rank = std::from_chars(name.data() + part_prefix.size(), end, rank);
  if (after_rank.ec != std::errc() || after_rank.ptr == end || *after_rank.ptr != '.') return std::nullopt;
  const auto after_part = std::from_chars(after_rank.ptr + 1, end, part);
  const bool numbers = after_part.ec == std::errc() && rank >= 0 && part >= 0;
  if (!numbers || dump_part_path(".", rank, part) != "./" + name) return std::nullopt;
  return rank;
}

void check_dump_folder(const std::string& path) {
  check_writable(nearest_existing(path), ExitCode::usage);
  if (!path_exists(path)) return;
  std::vector<std::string> names = list_directory(path, ExitCode::usage);
  std::erase(names, lock_name);
  if (names.empty()) return;
  if (std::ranges::find(names, index_name) == names.end()) {
    fail(ExitCode::usage, "{}: is not empty and holds no dump; only a dump is replaced, so choose another folder",
         path);
  }
  read_dump_index(path, ExitCode::usage);
  for (const std::string& name : names) {
    if (name == index_name || rank_of_dump_part(name) || is_unfinished_index(name)) continue;
    fail(ExitCode::usage,
         "{}: holds {} beside a dump; only a dump is replaced, so move it away or choose another folder", path, name);
  }
}

FileLock begin_dump_folder(const std::string& path, const DumpIndex& index) {
  check_dump_folder(path);
  make_directories(path, ExitCode::usage);
  FileLock lock = FileLock::acquire(path + "/" + lock_name, path + ": is being written by", ExitCode::usage);
  DumpIndex begun = index;
  begun.tensors.clear();
  write_dump_index(path, begun);
  for (const std::string& name : list_directory(path, ExitCode::usage)) {
    if (rank_of_dump_part(name) || is_unfinished_index(name))
      remove_tree(fmt::format("{}/{}", path, name), ExitCode::usage);
  }
  return lock;
}

}  // namespace ringtrain
