#include "extras/planner/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>

#include "framework/config/config_values.h"
#include "framework/config/yaml_tree.h"
#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/text/nearest_name.h"

namespace ringtrain {

namespace {

constexpr std::int64_t largest_file = 1 << 20;

/// Refuses a file: the first mistake is an Error.
struct Reader {
  const std::string& path;

  [[noreturn]] void refuse(int line, const std::string& what) const {
    fail(ExitCode::usage, "{}:{}: {}", path, line, what);
  }
  ReportProblem problem(const YamlEntry& entry) const {
    return [this, key = entry.key](int line, const std::string& what) { refuse(line, key + " " + what); };
  }
};

/// A key of a map, and what becomes of its value.
template <class Of>
struct Field {
  std::string key;
  bool required;
  std::function<void(const Reader&, const YamlEntry&, Of&)> read;
};
template <class Of>
using Fields = std::vector<Field<Of>>;

template <class Of>
std::string keys_of(const Fields<Of>& fields) {
  std::vector<std::string> keys;
  for (const Field<Of>& field : fields) keys.push_back(field.key);
  return fmt::format("{}", fmt::join(keys, ", "));
}

/// Reads a map whose keys are all known and appear once; those required are there.
template <class Of>
void read_map(const Reader& reader, const YamlValue& value, const std::string& name, const Fields<Of>& fields,
              Of& out) {
  if (value.kind != YamlValue::Kind::map) {
    reader.refuse(value.line,
                  fmt::format("{} is {}, but must be a map of {}", name, described(value), keys_of(fields)));
  }
  std::vector<std::string> missing;
  for (const Field<Of>& field : fields) missing.push_back(field.key);
  const std::vector<std::string> known = missing;
  for (const YamlEntry& entry : value.entries) {
    const auto field = std::ranges::find(fields, entry.key, &Field<Of>::key);
    if (field == fields.end()) {
      const std::string nearest = nearest_name(entry.key, known);
      reader.refuse(entry.line,
                    fmt::format("{} has no key {}{}", name, entry.key,
                                nearest.empty() ? "; it has " + keys_of(fields) : "; did you mean " + nearest + "?"));
    }
    if (std::erase(missing, entry.key) == 0) reader.refuse(entry.line, fmt::format("{} is given twice", entry.key));
    field->read(reader, entry, out);
  }
  for (const Field<Of>& field : fields) {
    if (field.required && std::ranges::count(missing, field.key) > 0) {
      reader.refuse(value.line, fmt::format("{} needs {}", name, field.key));
    }
  }
}

template <class Of>
Field<Of> real(const char* key, double Of::*member, const RealRange& range, bool required = false) {
  return {key, required, [=](const Reader& reader, const YamlEntry& entry, Of& out) {
            read_real(entry.value, range, out.*member, reader.problem(entry));
          }};
}
template <class Of>
Field<Of> integer(const char* key, std::int64_t Of::*member, const IntegerRange& range, bool required = false) {
  return {key, required, [=](const Reader& reader, const YamlEntry& entry, Of& out) {
            read_integer(entry.value, range, out.*member, reader.problem(entry));
          }};
}
Field<Hardware> section(const char* key, const Fields<Hardware>& fields, bool required = false) {
  return {key, required, [=](const Reader& reader, const YamlEntry& entry, Hardware& out) {
            read_map(reader, entry.value, key, fields, out);
          }};
}
/// A list of maps; required: of one at least. misplaced: what is wrong with an item behind another; "": nothing.
template <class Of>
Field<Hardware> list(const char* key, std::vector<Of> Hardware::*member, const char* item_name, const char* order,
                     const Fields<Of>& fields, std::string (*misplaced)(const Of&, const Of&), bool required = false) {
  return {key, required, [=](const Reader& reader, const YamlEntry& entry, Hardware& hardware) {
            if (entry.value.kind != YamlValue::Kind::list || (required && entry.value.items.empty())) {
              reader.refuse(entry.line,
                            fmt::format("{} must be a list of {{{}}}, the {} first", key, keys_of(fields), order));
            }
            std::vector<Of>& items = hardware.*member;
            for (const YamlValue& value : entry.value.items) {
              Of item;
              read_map(reader, value, item_name, fields, item);
              const std::string wrong = items.empty() ? "" : misplaced(items.back(), item);
              if (!wrong.empty()) reader.refuse(value.line, wrong);
              items.push_back(item);
            }
          }};
}

std::string misplaced_level(const LinkLevel& inner, const LinkLevel& outer) {
  if (outer.ranks > inner.ranks && outer.ranks % inner.ranks == 0) return "";
  return fmt::format("a level of {} ranks cannot hold groups of {}", outer.ranks, inner.ranks);
}
std::string misplaced_block(const BlockShare& before, const BlockShare& block) {
  if (block.tokens > before.tokens) return "";
  return fmt::format("a block of {} tokens stands behind one of {}: the shortest comes first", block.tokens,
                     before.tokens);
}

/// Returns the keys of a hardware file.
Fields<Hardware> hardware_fields() {
  using H = Hardware;
  constexpr RealRange rate{0, 1e30, true}, share{0, 1, true}, seconds{0, 1e6};
  constexpr IntegerRange count{0, 1 << 20}, group{1, std::int64_t{1} << 30};
  constexpr bool required = true;
  const auto read_name = [](const Reader& reader, const YamlEntry& entry, H& out) {
    read_text(entry.value, out.name, reader.problem(entry));
  };
  const auto read_rates_of = [](const Reader& reader, const YamlEntry& entry, H& out) {
    const std::vector<std::string> by_rates{"ringtrain", "others", "others alone"};
    out.rates = static_cast<RatesOf>(read_word(entry.value, by_rates, reader.problem(entry)));
  };
  return {{"name", required, read_name},
          {"rates_of", false, read_rates_of},
          integer("cores", &H::cores, count),
          section("peak_flops",
                  {real("bfloat16", &H::peak_bfloat16, rate), real("float32", &H::peak_float32, rate),
                   real("float64", &H::peak_float64, rate)},
                  required),
          section("efficiency",
                  {real("matmul", &H::matmul_efficiency, share, required),
                   real("attention_forward", &H::attention_forward_efficiency, share, required),
                   real("attention_backward", &H::attention_backward_efficiency, share, required)},
                  required),
          list("attention_blocks", &H::attention_blocks, "a block", "shortest",
               {integer("tokens", &BlockShare::tokens, group, required),
                real("share", &BlockShare::share, share, required)},
               misplaced_block),
          integer("multiprocessors", &H::multiprocessors, count),
          section("memory",
                  {real("bytes", &H::memory_bytes, rate, required),
                   real("bandwidth", &H::memory_bandwidth, rate, required)},
                  required),
          real("host_bandwidth", &H::host_bandwidth, rate),
          real("kernel_seconds", &H::kernel_seconds, seconds),
          section("pair_seconds", {real("forward", &H::pair_seconds_forward, seconds, required),
                                   real("backward", &H::pair_seconds_backward, seconds, required)}),
          real("product_bandwidth", &H::product_bandwidth, rate),
          list("levels", &H::levels, "a level", "fastest",
               {integer("ranks", &LinkLevel::ranks, group, required),
                real("bandwidth", &LinkLevel::bandwidth, rate, required), real("latency", &LinkLevel::latency, seconds),
                real("core_bandwidth", &LinkLevel::core_bandwidth, rate)},
               misplaced_level, required),
          section("node",
                  {integer("ranks", &H::node_ranks, group, required), real("memory", &H::node_memory, rate, required),
                   real("storage_bandwidth", &H::node_storage_bandwidth, rate)})};
}

/// Returns the folders that may hold hardware files, the likeliest first.
std::vector<std::string> hardware_folders() {
  std::vector<std::string> folders{"configs/hardware"};
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return folders;
  const std::filesystem::path bin = program.parent_path();
  for (const char* relative : {"../share/ringtrain/hardware", "../../share/ringtrain/hardware",  // installed
                               "../configs/hardware", "../../../configs/hardware"}) {            // a bundle, a build
    folders.push_back((bin / relative).lexically_normal().string());
  }
  return folders;
}

}  // namespace

double Hardware::peak(DType dtype) const {
  return dtype == DType::bfloat16 ? peak_bfloat16 : dtype == DType::float64 ? peak_float64 : peak_float32;
}

double Hardware::attention_share(double tokens) const {
  if (attention_blocks.empty() || tokens >= static_cast<double>(attention_blocks.back().tokens)) {
    return attention_blocks.empty() ? 1 : attention_blocks.back().share;
  }
  const BlockShare& shortest = attention_blocks.front();
  if (tokens <= static_cast<double>(shortest.tokens)) {
    return shortest.share * std::max(1.0, tokens) / static_cast<double>(shortest.tokens);
  }
  const auto longer = std::ranges::find_if(
      attention_blocks, [&](const BlockShare& block) { return static_cast<double>(block.tokens) > tokens; });
  const BlockShare &low = longer[-1], &high = *longer;
  const auto from = static_cast<double>(low.tokens);
  return std::lerp(low.share, high.share, std::log(tokens / from) / std::log(static_cast<double>(high.tokens) / from));
}

std::string told_rates(const Hardware& hardware) {
  if (hardware.rates == RatesOf::ringtrain) return "";
  return fmt::format("{}: rates are published ones of other libraries; {}", hardware.name,
                     hardware.rates == RatesOf::others ? "ringtrain has not been measured on this device"
                                                       : "ringtrain has no code for this device");
}

const LinkLevel& Hardware::level_between(std::int64_t a, std::int64_t b) const {
  for (const LinkLevel& level : levels) {
    if (a / level.ranks == b / level.ranks) return level;
  }
  return levels.back();
}

const LinkLevel& Hardware::slowest_of_ring(std::int64_t ranks) const {
  const LinkLevel* slowest = &levels.front();
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const LinkLevel& level = level_between(rank, (rank + 1) % ranks);
    if (level.bandwidth < slowest->bandwidth) slowest = &level;
  }
  return *slowest;
}

std::int64_t Hardware::ranks_of_machine(std::int64_t world) const {
  return levels.size() > 1 ? std::min(world, levels.front().ranks) : world;
}

Hardware parse_hardware(const std::string& text, const std::string& path) {
  const Reader reader{path};
  YamlValue root;
  try {
    root = parse_yaml(text);
  } catch (const YamlError& error) {
    reader.refuse(error.line(), error.what());
  }
  Hardware hardware;
  read_map(reader, root, "a hardware file", hardware_fields(), hardware);
  return hardware;
}

std::string hardware_yaml(const Hardware& h) {
  const LinkLevel& level = h.levels.front();
  std::string text = fmt::format(
      "# Written by plan --measure, from what the product's own kernels took.\n"
      "name: {}\ncores: {}\n# Of one core: the best rate seen.\n"
      "peak_flops: {{float32: {:.17e}, float64: {:.17e}, bfloat16: {:.17e}}}\n"
      "efficiency: {{matmul: {:.17g}, attention_forward: {:.17g}, attention_backward: {:.17g}}}\n",
      quoted_yaml(h.name), h.cores, h.peak_float32, h.peak_float64, h.peak_bfloat16, h.matmul_efficiency,
      h.attention_forward_efficiency, h.attention_backward_efficiency);
  if (h.pair_seconds_forward > 0 || h.pair_seconds_backward > 0) {
    text += fmt::format("pair_seconds: {{forward: {:.17g}, backward: {:.17g}}}  # of a score, besides its products\n",
                        h.pair_seconds_forward, h.pair_seconds_backward);
  }
  if (h.product_bandwidth > 0) {
    text += fmt::format("product_bandwidth: {:.17e}  # of one device: rows that products read and write\n",
                        h.product_bandwidth);
  }
  return text + fmt::format(
                    "memory: {{bytes: {:.17e}, bandwidth: {:.17e}}}\nkernel_seconds: {:.17g}\n"
                    "levels:\n  - {{ranks: {}, bandwidth: {:.17e}, latency: {:.17g}}}\n",
                    h.memory_bytes, h.memory_bandwidth, h.kernel_seconds, level.ranks, level.bandwidth, level.latency);
}

Hardware read_hardware(const std::string& path) {
  return parse_hardware(read_file(path, ExitCode::usage, largest_file), path);
}

std::vector<std::string> hardware_names() {
  std::set<std::string> names;
  for (const std::string& folder : hardware_folders()) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".yaml") names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

std::string find_hardware(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".yaml")) return name;
  for (const std::string& folder : hardware_folders()) {
    std::string path = fmt::format("{}/{}.yaml", folder, name);
    if (path_exists(path)) return path;
  }
  const std::vector<std::string> names = hardware_names();
  const std::string nearest = nearest_name(name, names);
  fail(ExitCode::usage, "there is no hardware named {}{}; name a file (with its .yaml), or one of: {}", name,
       nearest.empty() ? "" : ", did you mean " + nearest + "?", fmt::join(names, ", "));
}

}  // namespace ringtrain
