#include "framework/dump/dump_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/storage/plain_text.h"
#include "framework/storage/strict_json.h"
#include "framework/text/text_reader.h"

namespace ringtrain {

namespace {

constexpr const char* format_name = "ringtrain dump";
constexpr std::int64_t format_version = 2;
constexpr std::int64_t largest_index = 16 << 20;
constexpr std::string_view part_prefix = "rank-", part_suffix = ".h5";
constexpr const char *index_name = "index.json", *lock_name = "lock";

std::string index_path(const std::string& folder) {
  return folder + "/" + index_name;
}

/// Returns whether a file of this name was left behind by a writer that was killed before its index was complete.
bool is_leftover(const std::string& name) {
  const std::optional<UniqueName> unfinished = parse_unique_name(name, "partial");
  return is_probe(name) || (unfinished && unfinished->base == index_name);
}

/// Returns whether a file of this name is a part, the list of one, or was left behind by a killed writer.
bool is_part_of_dump(const std::string& name) {
  const std::string part = name.ends_with(".json") ? name.substr(0, name.rfind('.')) : name;
  return rank_of_dump_part(part) || is_leftover(name);
}

/// Throws for sizes and names that no dump has, because sizes are multiplied and names are printed.
void require_possible(const DumpIndex& index) {
  const auto product = [](std::int64_t a, std::int64_t b) {
    constexpr std::int64_t most = std::int64_t{1} << 59;  // elements of 8 bytes
    std::int64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result) || result > most) throw std::runtime_error("a size is not valid");
    return result;
  };
  const auto require_plain = [](const std::string& text) {
    if (plain_text(text) != text) throw std::runtime_error(plain_text(text) + " is not a plain name");
  };
  product(index.data, index.sequence);
  const std::int64_t tokens = product(index.sequences, index.sequence_length);
  for (const std::string& text : {index.layout, index.device, index.dtype}) require_plain(text);
  for (const DumpedTensor& tensor : index.tensors) {
    require_plain(tensor.name);
    std::int64_t elements = tensor.kind == DumpKind::tokens ? tokens : 1;
    for (int dim = 0; dim < tensor.shape.rank(); ++dim) elements = product(elements, tensor.shape[dim]);
  }
}

DumpIndex index_from(const std::string& text) {
  const nlohmann::json json = parse_strict_json(text);
  JsonReader reader(json);
  reader.format(format_name, format_version,
                "it was written by another version of this program; remove it, and make the dump again");
  DumpIndex index;
  DumpIndex::visit_members(index, reader);
  reader.finish();
  require_possible(index);
  return index;
}

}  // namespace

void DumpedTensor::take(const std::string& kind_name, const std::vector<std::int64_t>& dims) {
  kind = kind_name == "tokens" ? DumpKind::tokens : DumpKind::parameter;
  if (kind == DumpKind::parameter && kind_name != "parameter") throw std::runtime_error("kind is unknown");
  if (dims.size() > Shape::max_rank) throw std::runtime_error("a shape has too many dimensions");
  shape = Shape(dims);
}

DumpIndex read_dump_index(const std::string& folder, ExitCode code) {
  const std::string path = index_path(folder);
  if (!path_exists(path)) fail(code, "{}: holds no dump ({} is missing)", folder, index_name);
  const std::string text = read_file(path, code, largest_index);
  try {
    return index_from(text);
  } catch (const std::exception& error) {
    fail(code, "{}: is not the index of a dump: {}", path, error.what());
  }
}

void write_dump_index(const std::string& folder, const DumpIndex& index) {
  JsonWriter writer;
  writer("format", format_name);
  writer("format_version", format_version);
  DumpIndex::visit_members(index, writer);
  write_file(index_path(folder), json_text(writer.json, 1) + "\n", ExitCode::usage);
}

std::string dump_part_path(const std::string& folder, int rank, int part) {
  return fmt::format("{}/{}{:04}.{:03}{}", folder, part_prefix, rank, part, part_suffix);
}

std::optional<int> rank_of_dump_part(const std::string& name) {
  if (!name.starts_with(part_prefix)) return std::nullopt;
  int rank = 0, part = 0;
  std::string_view tail = std::string_view(name).substr(part_prefix.size());
  const bool numbers = take_number(tail, rank) && take(tail, '.') && take_number(tail, part) && rank >= 0 && part >= 0;
  if (!numbers || dump_part_path(".", rank, part) != "./" + name) return std::nullopt;
  return rank;
}

void check_dump_folder(const std::string& path) {
  check_writable(nearest_existing(path), ExitCode::usage);
  if (!path_exists(path)) return;
  std::vector<std::string> names = list_directory(path, ExitCode::usage);
  std::erase(names, lock_name);
  std::erase_if(names, is_leftover);
  if (names.empty()) return;
  if (std::ranges::find(names, index_name) == names.end()) {
    fail(ExitCode::usage, "{}: is not empty and holds no dump; only a dump is replaced, so choose another folder",
         path);
  }
  read_dump_index(path, ExitCode::usage);
  for (const std::string& name : names) {
    if (name == index_name || is_part_of_dump(name)) continue;
    fail(ExitCode::usage,
         "{}: contains {} in addition to a dump; only a dump is replaced, so move it away or choose another folder",
         path, name);
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
    if (is_part_of_dump(name)) remove_tree(fmt::format("{}/{}", path, name), ExitCode::usage);
  }
  return lock;
}

void remove_dump(const std::string& path, bool with_folder) {
  check_dump_folder(path);
  if (with_folder) return remove_tree(path, ExitCode::usage);
  for (const std::string& name : list_directory(path, ExitCode::usage)) {
    remove_tree(fmt::format("{}/{}", path, name), ExitCode::usage);
  }
}

}  // namespace ringtrain
