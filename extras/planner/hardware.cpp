#include "extras/planner/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <system_error>

#include "framework/config/config_values.h"
#include "framework/config/yaml_tree.h"
#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/text/nearest_name.h"

namespace ringtrain {

namespace {

constexpr std::int64_t largest_file = 1 << 20;
constexpr RealRange rate{0, 1e30, true}, share{0, 1, true}, seconds{0, 1e6};
constexpr IntegerRange count{0, 1 << 20}, group{1, 1 << 30};

/// Takes keys from a map of a file; those of a nested map are named like "memory.bytes". The first mistake is an Error.
class MapReader {
 public:
  MapReader(const std::string& path, const YamlValue& map) : path_(path), line_(map.line) { add(map, ""); }

  [[noreturn]] void refuse(int line, const std::string& what) const {
    fail(ExitCode::usage, "{}:{}: {}", path_, line, what);
  }
  /// Calls read(value, report) for a key if it exists.
  template <class Read>
  void take(const char* name, const Read& read) {
    names_.push_back(name);
    const auto entry = entries_.find(name);
    if (entry == entries_.end()) return;
    read(entry->second.value,
         [&](int line, const std::string& what) { refuse(line, fmt::format("{} {}", name, what)); });
  }
  void real(const char* name, double& to, const RealRange& range) {
    take(name, [&](const YamlValue& value, const ReportProblem& report) { read_real(value, range, to, report); });
  }
  void integer(const char* name, std::int64_t& to, const IntegerRange& range) {
    take(name, [&](const YamlValue& value, const ReportProblem& report) { read_integer(value, range, to, report); });
  }
  /// Reads a list of maps, whose numbers of the key `order` ascend: read(reader, item) returns it.
  template <class Item, class Read>
  void list(const char* name, const char* order, std::vector<Item>& items, const Read& read) {
    take(name, [&](const YamlValue& value, const ReportProblem& report) {
      if (value.kind != YamlValue::Kind::list) report(value.line, "must be a list of maps");
      std::int64_t before = 0;
      for (const YamlValue& map : value.items) {
        MapReader reader(path_, map);
        const std::int64_t number = read(reader, items.emplace_back());
        if (number <= before) {
          refuse(map.line, fmt::format("{} {} follows {}: sort the list in ascending order", order, number, before));
        }
        before = number;
      }
    });
  }
  /// Refuses a map with a key that was not read, or without one of these.
  void finish(std::initializer_list<const char*> required) const {
    for (const auto& [name, entry] : entries_) {
      if (std::ranges::count(names_, name) > 0) continue;
      const std::string nearest = nearest_name(name, names_);
      refuse(entry.line,
             fmt::format("{} is not a key{}", name, nearest.empty() ? "" : "; did you mean " + nearest + "?"));
    }
    for (const char* const name : required) {
      if (!entries_.contains(name)) refuse(line_, fmt::format("{} is missing", name));
    }
  }

 private:
  void add(const YamlValue& map, const std::string& section) {
    for (const YamlEntry& entry : map.entries) {
      const std::string name = section + entry.key;
      if (entry.value.kind == YamlValue::Kind::map) {
        add(entry.value, name + ".");
      } else if (!entries_.emplace(name, entry).second) {
        refuse(entry.line, name + " is given twice");
      }
    }
  }

  const std::string& path_;
  const int line_;
  std::map<std::string, YamlEntry> entries_;
  std::vector<std::string> names_;  // that were read
};

}  // namespace

double Hardware::peak(DType dtype) const {
  return dtype == DType::bfloat16 ? peak_bfloat16 : dtype == DType::float64 ? peak_float64 : peak_float32;
}

double Hardware::attention_share(double tokens) const {
  const auto longer = std::ranges::find_if(
      attention_blocks, [&](const BlockShare& block) { return static_cast<double>(block.tokens) > tokens; });
  if (longer == attention_blocks.end()) return attention_blocks.empty() ? 1 : attention_blocks.back().share;
  const auto length = static_cast<double>(longer->tokens);
  if (longer == attention_blocks.begin()) return longer->share * std::max(1.0, tokens) / length;
  const BlockShare& low = longer[-1];
  const auto from = static_cast<double>(low.tokens);
  return std::lerp(low.share, longer->share, std::log(tokens / from) / std::log(length / from));
}

std::string caveat(const Hardware& hardware, std::int64_t ranks) {
  if (hardware.measured == Measured::nothing) {
    return "caution: ringtrain was not measured on this hardware: its rates were published by others, and its links "
           "are from data sheets\n";
  }
  if (hardware.measured == Measured::all || ranks == 1) return "";
  return "caution: none of the links was measured: bandwidths are from data sheets, and latencies are assumed\n";
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
  YamlValue root;
  try {
    root = parse_yaml(text);
  } catch (const YamlError& error) {
    throw Error(ExitCode::usage, error.in_file(path));
  }
  MapReader reader(path, root);
  Hardware hardware;
  reader.take("name",
              [&](const YamlValue& value, const ReportProblem& report) { read_text(value, hardware.name, report); });
  reader.take("measured", [&](const YamlValue& value, const ReportProblem& report) {
    hardware.measured = static_cast<Measured>(read_word(value, {"all", "kernels", "nothing"}, report));
  });
  reader.integer("cores", hardware.cores, count);
  reader.real("peak_flops.bfloat16", hardware.peak_bfloat16, rate);
  reader.real("peak_flops.float32", hardware.peak_float32, rate);
  reader.real("peak_flops.float64", hardware.peak_float64, rate);
  reader.real("efficiency.matmul", hardware.matmul_efficiency, share);
  reader.real("efficiency.attention_forward", hardware.attention_forward_efficiency, share);
  reader.real("efficiency.attention_backward", hardware.attention_backward_efficiency, share);
  reader.integer("multiprocessors", hardware.multiprocessors, count);
  reader.real("memory.bytes", hardware.memory_bytes, rate);
  reader.real("memory.bandwidth", hardware.memory_bandwidth, rate);
  reader.real("host_bandwidth", hardware.host_bandwidth, rate);
  reader.real("kernel_seconds", hardware.kernel_seconds, seconds);
  reader.real("pair_seconds.forward", hardware.pair_seconds_forward, seconds);
  reader.real("pair_seconds.backward", hardware.pair_seconds_backward, seconds);
  reader.real("product_bandwidth", hardware.product_bandwidth, rate);
  reader.integer("node.ranks", hardware.node_ranks, group);
  reader.real("node.memory", hardware.node_memory, rate);
  reader.list("levels", "ranks", hardware.levels, [](MapReader& item, LinkLevel& level) {
    item.integer("ranks", level.ranks, group);
    item.real("bandwidth", level.bandwidth, rate);
    item.real("latency", level.latency, seconds);
    item.real("core_bandwidth", level.core_bandwidth, rate);
    item.finish({"ranks", "bandwidth"});
    return level.ranks;
  });
  reader.list("attention_blocks", "tokens", hardware.attention_blocks, [](MapReader& item, BlockShare& block) {
    item.integer("tokens", block.tokens, group);
    item.real("share", block.share, share);
    item.finish({"tokens", "share"});
    return block.tokens;
  });
  reader.finish({"efficiency.matmul", "efficiency.attention_forward", "efficiency.attention_backward", "memory.bytes",
                 "memory.bandwidth"});
  if (hardware.name.empty() || hardware.levels.empty()) reader.refuse(root.line, "name or levels is missing");
  for (std::size_t i = 1; i < hardware.levels.size(); ++i) {
    const std::int64_t inner = hardware.levels[i - 1].ranks, outer = hardware.levels[i].ranks;
    if (outer % inner != 0)
      reader.refuse(root.line, fmt::format("levels: ranks {} must be a multiple of the {} before it", outer, inner));
  }
  return hardware;
}

std::string hardware_yaml(const Hardware& hardware) {
  const LinkLevel& level = hardware.levels.front();
  const std::string products =
      hardware.product_bandwidth > 0 ? fmt::format("product_bandwidth: {}\n", hardware.product_bandwidth) : "";
  return fmt::format(R"(# Written by plan --measure, from the times of ringtrain's own kernels; rates are of one core.
name: {}
cores: {}
peak_flops: {{bfloat16: {}, float32: {}, float64: {}}}
efficiency: {{matmul: {}, attention_forward: {}, attention_backward: {}}}
memory: {{bytes: {}, bandwidth: {}}}
kernel_seconds: {}
pair_seconds: {{forward: {}, backward: {}}}
{}levels:
  - {{ranks: {}, bandwidth: {}, latency: {}}}
)",
                     quoted_yaml(hardware.name), hardware.cores, hardware.peak_bfloat16, hardware.peak_float32,
                     hardware.peak_float64, hardware.matmul_efficiency, hardware.attention_forward_efficiency,
                     hardware.attention_backward_efficiency, hardware.memory_bytes, hardware.memory_bandwidth,
                     hardware.kernel_seconds, hardware.pair_seconds_forward, hardware.pair_seconds_backward, products,
                     level.ranks, level.bandwidth, level.latency);
}

Hardware read_hardware(const std::string& path) {
  return parse_hardware(read_file(path, ExitCode::usage, largest_file), path);
}

std::map<std::string, std::string> hardware_files() {
  std::error_code error;
  const std::filesystem::path bin = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::map<std::string, std::string> files;
  for (const char* folder : {"", "../share/ringtrain", "../../share/ringtrain",  // here; installed
                             "../configs", "../../../configs"}) {                // a bundle, a build
    const auto path = *folder == '\0' ? "configs/hardware" : (bin / folder / "hardware").lexically_normal();
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      if (entry.path().extension() == ".yaml") files.emplace(entry.path().stem().string(), entry.path().string());
    }
  }
  return files;
}

std::string find_hardware(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".yaml")) return name;
  const auto files = hardware_files();
  if (const auto found = files.find(name); found != files.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, path] : files) names.push_back(known);
  const std::string nearest = nearest_name(name, names);
  fail(ExitCode::usage, "there is no hardware named {}; name a file (with its .yaml), or one of: {}{}", name,
       fmt::join(names, ", "), nearest.empty() ? "" : "; did you mean " + nearest + "?");
}

}  // namespace ringtrain
