#include "extras/planner/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <variant>

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
  ReportProblem problem(const std::string& key) const {
    return [this, key](int line, const std::string& what) { refuse(line, key + " " + what); };
  }
};

/// A number of a map, or of a map within it: "memory.bytes".
template <class Of>
struct Key {
  const char* name;
  std::variant<double Of::*, std::int64_t Of::*> member;
  RealRange range;
  bool required = false;
};

constexpr RealRange rate{0, 1e30, true}, share{0, 1, true}, seconds{0, 1e6}, count{0, 1 << 20}, group{1, 1 << 30};
constexpr bool required = true;

constexpr std::array level_keys{Key<LinkLevel>{"ranks", &LinkLevel::ranks, group, required},
                                Key<LinkLevel>{"bandwidth", &LinkLevel::bandwidth, rate, required},
                                Key<LinkLevel>{"latency", &LinkLevel::latency, seconds},
                                Key<LinkLevel>{"core_bandwidth", &LinkLevel::core_bandwidth, rate}};
constexpr std::array block_keys{Key<BlockShare>{"tokens", &BlockShare::tokens, group, required},
                                Key<BlockShare>{"share", &BlockShare::share, share, required}};
/// The numbers of a hardware file; besides these it has a name, what was measured, and two lists.
constexpr std::array hardware_keys{
    Key<Hardware>{"cores", &Hardware::cores, count},
    Key<Hardware>{"peak_flops.bfloat16", &Hardware::peak_bfloat16, rate},
    Key<Hardware>{"peak_flops.float32", &Hardware::peak_float32, rate},
    Key<Hardware>{"peak_flops.float64", &Hardware::peak_float64, rate},
    Key<Hardware>{"efficiency.matmul", &Hardware::matmul_efficiency, share, required},
    Key<Hardware>{"efficiency.attention_forward", &Hardware::attention_forward_efficiency, share, required},
    Key<Hardware>{"efficiency.attention_backward", &Hardware::attention_backward_efficiency, share, required},
    Key<Hardware>{"multiprocessors", &Hardware::multiprocessors, count},
    Key<Hardware>{"memory.bytes", &Hardware::memory_bytes, rate, required},
    Key<Hardware>{"memory.bandwidth", &Hardware::memory_bandwidth, rate, required},
    Key<Hardware>{"host_bandwidth", &Hardware::host_bandwidth, rate},
    Key<Hardware>{"kernel_seconds", &Hardware::kernel_seconds, seconds},
    Key<Hardware>{"pair_seconds.forward", &Hardware::pair_seconds_forward, seconds},
    Key<Hardware>{"pair_seconds.backward", &Hardware::pair_seconds_backward, seconds},
    Key<Hardware>{"product_bandwidth", &Hardware::product_bandwidth, rate},
    Key<Hardware>{"node.ranks", &Hardware::node_ranks, group},
    Key<Hardware>{"node.memory", &Hardware::node_memory, rate}};

template <class Of>
void read_number(const Reader& reader, const YamlEntry& entry, const Key<Of>& key, Of& out) {
  if (const auto* real = std::get_if<double Of::*>(&key.member)) {
    read_real(entry.value, key.range, out.**real, reader.problem(key.name));
  } else {
    const IntegerRange range{static_cast<std::int64_t>(key.range.low), static_cast<std::int64_t>(key.range.high)};
    read_integer(entry.value, range, out.*std::get<std::int64_t Of::*>(key.member), reader.problem(key.name));
  }
}

/// Calls take(name, entry) for each entry of a map and of the maps within it.
void for_each_entry(const YamlValue& map, const std::string& section,
                    const std::function<void(const std::string&, const YamlEntry&)>& take) {
  for (const YamlEntry& entry : map.entries) {
    if (entry.value.kind == YamlValue::Kind::map) {
      for_each_entry(entry.value, section + entry.key + ".", take);
    } else {
      take(section + entry.key, entry);
    }
  }
}

/// Reads a map whose keys are all known and appear once; those required are there. take_other: returns whether it has
/// read an entry that is no number.
template <class Of>
void read_map(const Reader& reader, const YamlValue& map, const auto& keys,
              const std::function<bool(const YamlEntry&)>& take_other, Of& out) {
  std::set<std::string> found;
  std::vector<std::string> names;
  for (const Key<Of>& key : keys) names.push_back(key.name);
  for_each_entry(map, "", [&](const std::string& name, const YamlEntry& entry) {
    if (!found.insert(name).second) reader.refuse(entry.line, name + " is given twice");
    const auto key = std::ranges::find(keys, name, &Key<Of>::name);
    if (key != keys.end()) return read_number(reader, entry, *key, out);
    if (take_other && take_other(entry)) return;
    const std::string nearest = nearest_name(name, names);
    reader.refuse(entry.line,
                  fmt::format("{} is no key{}", name, nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  });
  for (const Key<Of>& key : keys) {
    if (key.required && !found.contains(key.name)) reader.refuse(map.line, fmt::format("{} is missing", key.name));
  }
}

/// Reads a list of maps, in which `order` ascends.
template <class Of>
void read_list(const Reader& reader, const YamlEntry& entry, const auto& keys, std::int64_t Of::*order,
               std::vector<Of>& items) {
  for (const YamlValue& value : entry.value.items) {
    Of item;
    read_map(reader, value, keys, {}, item);
    if (!items.empty() && item.*order <= items.back().*order) {
      reader.refuse(value.line, fmt::format("{} of {} follow {}: the fewest come first", keys[0].name, item.*order,
                                            items.back().*order));
    }
    items.push_back(item);
  }
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

std::string caveat(const Hardware& hardware, std::int64_t ranks) {
  if (hardware.measured == Measured::nothing) {
    return "caution: ringtrain has not been measured on it: rates are what others publish, links those of data "
           "sheets\n";
  }
  if (hardware.measured == Measured::all || ranks == 1) return "";
  return "caution: none of its links was measured: bandwidths are those of data sheets, latencies assumed\n";
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
  const auto take_other = [&](const YamlEntry& entry) {
    const ReportProblem problem = reader.problem(entry.key);
    if (entry.key == "name") {
      read_text(entry.value, hardware.name, problem);
    } else if (entry.key == "measured") {
      hardware.measured = static_cast<Measured>(read_word(entry.value, {"all", "kernels", "nothing"}, problem));
    } else if (entry.key == "levels") {
      read_list(reader, entry, level_keys, &LinkLevel::ranks, hardware.levels);
    } else if (entry.key == "attention_blocks") {
      read_list(reader, entry, block_keys, &BlockShare::tokens, hardware.attention_blocks);
    } else {
      return false;
    }
    return true;
  };
  read_map(reader, root, hardware_keys, take_other, hardware);
  if (hardware.name.empty() || hardware.levels.empty()) reader.refuse(root.line, "name or levels is missing");
  for (std::size_t i = 1; i < hardware.levels.size(); ++i) {
    const std::int64_t inner = hardware.levels[i - 1].ranks, outer = hardware.levels[i].ranks;
    if (outer % inner != 0)
      reader.refuse(root.line, fmt::format("levels: {} ranks hold no groups of {}", outer, inner));
  }
  return hardware;
}

std::string hardware_yaml(const Hardware& hardware) {
  std::string text = "# Written by plan --measure, from what the product's own kernels took; rates are of one core.\n";
  text += fmt::format("name: {}\n", quoted_yaml(hardware.name));
  std::string section;
  for (const Key<Hardware>& key : hardware_keys) {
    const auto* real = std::get_if<double Hardware::*>(&key.member);
    const double value = real ? hardware.**real : static_cast<double>(hardware.*std::get<1>(key.member));
    if (value == 0) continue;
    const std::string name = key.name, of = name.substr(0, name.find('.') == std::string::npos ? 0 : name.find('.'));
    if (!section.empty() && of != section) text += "}\n";
    if (!of.empty()) text += of == section ? ", " : of + ": {";
    text += fmt::format("{}: {}{}", name.substr(of.empty() ? 0 : of.size() + 1),
                        real ? fmt::format("{:.17e}", value) : fmt::format("{:.0f}", value), of.empty() ? "\n" : "");
    section = of;
  }
  const LinkLevel& level = hardware.levels.front();
  return text + fmt::format("{}levels:\n  - {{ranks: {}, bandwidth: {:.17e}, latency: {:.17e}}}\n",
                            section.empty() ? "" : "}\n", level.ranks, level.bandwidth, level.latency);
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
