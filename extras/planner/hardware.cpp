#include "extras/planner/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
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
constexpr std::int64_t max_ranks = std::int64_t{1} << 30;

/// Reads maps of known keys; the first mistake is an Error.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  [[noreturn]] void refuse(int line, const std::string& what) const {
    fail(ExitCode::usage, "{}:{}: {}", path_, line, what);
  }

  /// Calls read(entry) for each entry of a map whose keys are all known and appear once; those required are there.
  template <class Read>
  void map(const YamlValue& value, const std::string& name, const std::vector<std::string>& known,
           const std::vector<std::string>& required, const Read& read) const {
    if (value.kind != YamlValue::Kind::map) {
      refuse(value.line,
             fmt::format("{} is {}, but must be a map of {}", name, described(value), fmt::join(known, ", ")));
    }
    std::set<std::string> seen;
    for (const YamlEntry& entry : value.entries) {
      if (std::ranges::find(known, entry.key) == known.end()) {
        const std::string nearest = nearest_name(entry.key, known);
        refuse(entry.line, fmt::format("{} has no key {}{}", name, entry.key,
                                       nearest.empty() ? fmt::format("; it has {}", fmt::join(known, ", "))
                                                       : "; did you mean " + nearest + "?"));
      }
      if (!seen.insert(entry.key).second) refuse(entry.line, fmt::format("{} is given twice", entry.key));
      read(entry);
    }
    for (const std::string& key : required) {
      if (!seen.contains(key)) refuse(value.line, fmt::format("{} needs {}", name, key));
    }
  }
  void real(const YamlEntry& entry, const RealRange& range, double& out) const {
    read_real(entry.value, range, out, report(entry));
  }
  void integer(const YamlEntry& entry, IntegerRange range, std::int64_t& out) const {
    read_integer(entry.value, range, out, report(entry));
  }
  int word(const YamlEntry& entry, const std::vector<std::string>& words) const {
    return read_word(entry.value, words, report(entry));
  }
  void text(const YamlEntry& entry, std::string& out) const { read_text(entry.value, out, report(entry)); }

 private:
  ReportProblem report(const YamlEntry& entry) const {
    return [this, key = entry.key](int line, const std::string& what) { refuse(line, key + " " + what); };
  }
  const std::string& path_;
};

constexpr RealRange rate{0, 1e30, true};
constexpr RealRange share{0, 1, true};
constexpr RealRange seconds{0, 1e6};

LinkLevel read_level(const Reader& reader, const YamlValue& value) {
  LinkLevel level;
  reader.map(value, "a level", {"ranks", "bandwidth", "latency", "core_bandwidth"}, {"ranks", "bandwidth"},
             [&](const YamlEntry& entry) {
               if (entry.key == "ranks") reader.integer(entry, {1, max_ranks}, level.ranks);
               if (entry.key == "bandwidth") reader.real(entry, rate, level.bandwidth);
               if (entry.key == "latency") reader.real(entry, seconds, level.latency);
               if (entry.key == "core_bandwidth") reader.real(entry, rate, level.core_bandwidth);
             });
  return level;
}

void read_levels(const Reader& reader, const YamlEntry& entry, std::vector<LinkLevel>& levels) {
  if (entry.value.kind != YamlValue::Kind::list || entry.value.items.empty()) {
    reader.refuse(entry.line,
                  "levels must be a list of {ranks, bandwidth, latency, core_bandwidth}, the fastest first");
  }
  for (const YamlValue& item : entry.value.items) {
    levels.push_back(read_level(reader, item));
    if (levels.size() == 1) continue;
    const std::int64_t inner = levels[levels.size() - 2].ranks, outer = levels.back().ranks;
    if (outer <= inner || outer % inner != 0) {
      reader.refuse(item.line, fmt::format("a level of {} ranks cannot hold groups of {}", outer, inner));
    }
  }
}

void read_blocks(const Reader& reader, const YamlEntry& entry, std::vector<BlockShare>& blocks) {
  if (entry.value.kind != YamlValue::Kind::list) {
    reader.refuse(entry.line, "attention_blocks must be a list of {tokens, share}, the shortest first");
  }
  for (const YamlValue& item : entry.value.items) {
    BlockShare block;
    reader.map(item, "a block", {"tokens", "share"}, {"tokens", "share"}, [&](const YamlEntry& part) {
      if (part.key == "tokens") reader.integer(part, {1, max_ranks}, block.tokens);
      if (part.key == "share") reader.real(part, share, block.share);
    });
    if (!blocks.empty() && block.tokens <= blocks.back().tokens) {
      reader.refuse(item.line, fmt::format("a block of {} tokens stands behind one of {}: the shortest comes first",
                                           block.tokens, blocks.back().tokens));
    }
    blocks.push_back(block);
  }
}

void read_node(const Reader& reader, const YamlEntry& entry, Hardware& hardware) {
  reader.map(entry.value, "node", {"ranks", "memory", "storage_bandwidth"}, {"ranks", "memory"},
             [&](const YamlEntry& part) {
               if (part.key == "ranks") reader.integer(part, {1, max_ranks}, hardware.node_ranks);
               if (part.key == "memory") reader.real(part, rate, hardware.node_memory);
               if (part.key == "storage_bandwidth") reader.real(part, rate, hardware.node_storage_bandwidth);
             });
}

/// By RatesOf.
const std::vector<std::string> rates_names{"ringtrain", "others", "others alone"};

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

Hardware by_rails(Hardware hardware) {
  const LinkLevel inner = hardware.levels.front();
  for (LinkLevel& level : hardware.levels) {
    if (level.ranks == inner.ranks) continue;
    const double together = level.bandwidth * static_cast<double>(inner.ranks);
    level.bandwidth = std::max(level.bandwidth, std::min(together, inner.bandwidth));
  }
  return hardware;
}

const std::string& name_of(RatesOf rates) {
  return rates_names[static_cast<std::size_t>(rates)];
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
  const Reader reader(path);
  YamlValue root;
  try {
    root = parse_yaml(text);
  } catch (const YamlError& error) {
    reader.refuse(error.line(), error.what());
  }
  Hardware hardware;
  reader.map(
      root, "a hardware file",
      {"name", "rates_of", "cores", "peak_flops", "efficiency", "attention_blocks", "multiprocessors", "memory",
       "host_bandwidth", "kernel_seconds", "pair_seconds", "product_bandwidth", "levels", "node"},
      {"name", "peak_flops", "efficiency", "memory", "levels"}, [&](const YamlEntry& entry) {
        const YamlValue& value = entry.value;
        if (entry.key == "name") reader.text(entry, hardware.name);
        if (entry.key == "cores") reader.integer(entry, {0, 1 << 20}, hardware.cores);
        if (entry.key == "multiprocessors") reader.integer(entry, {0, 1 << 20}, hardware.multiprocessors);
        if (entry.key == "host_bandwidth") reader.real(entry, rate, hardware.host_bandwidth);
        if (entry.key == "product_bandwidth") reader.real(entry, rate, hardware.product_bandwidth);
        if (entry.key == "kernel_seconds") reader.real(entry, seconds, hardware.kernel_seconds);
        if (entry.key == "levels") read_levels(reader, entry, hardware.levels);
        if (entry.key == "attention_blocks") read_blocks(reader, entry, hardware.attention_blocks);
        if (entry.key == "node") read_node(reader, entry, hardware);
        if (entry.key == "rates_of") hardware.rates = static_cast<RatesOf>(reader.word(entry, rates_names));
        if (entry.key == "peak_flops") {
          reader.map(value, "peak_flops", {"bfloat16", "float32", "float64"}, {}, [&](const YamlEntry& peak) {
            reader.real(peak, rate,
                        peak.key == "bfloat16"  ? hardware.peak_bfloat16
                        : peak.key == "float32" ? hardware.peak_float32
                                                : hardware.peak_float64);
          });
        }
        if (entry.key == "efficiency") {
          const std::vector<std::string> keys{"matmul", "attention_forward", "attention_backward"};
          reader.map(value, "efficiency", keys, keys, [&](const YamlEntry& part) {
            reader.real(part, share,
                        part.key == "matmul"              ? hardware.matmul_efficiency
                        : part.key == "attention_forward" ? hardware.attention_forward_efficiency
                                                          : hardware.attention_backward_efficiency);
          });
        }
        if (entry.key == "pair_seconds") {
          reader.map(
              value, "pair_seconds", {"forward", "backward"}, {"forward", "backward"}, [&](const YamlEntry& part) {
                reader.real(part, seconds,
                            part.key == "forward" ? hardware.pair_seconds_forward : hardware.pair_seconds_backward);
              });
        }
        if (entry.key == "memory") {
          reader.map(value, "memory", {"bytes", "bandwidth"}, {"bytes", "bandwidth"}, [&](const YamlEntry& part) {
            reader.real(part, rate, part.key == "bytes" ? hardware.memory_bytes : hardware.memory_bandwidth);
          });
        }
      });
  return hardware;
}

std::string hardware_yaml(const Hardware& h) {
  std::string text = "# Written by plan --measure, from what the product's own kernels took.\n";
  text += fmt::format("name: {}\n", quoted_yaml(h.name));
  if (h.rates != RatesOf::ringtrain) text += fmt::format("rates_of: {}\n", name_of(h.rates));
  if (h.cores > 0) text += fmt::format("cores: {}\n# Of one core: the best rate seen.\n", h.cores);
  std::string peaks;
  for (const auto& [name, peak] :
       {std::pair{"float32", h.peak_float32}, {"float64", h.peak_float64}, {"bfloat16", h.peak_bfloat16}}) {
    if (peak > 0) peaks += fmt::format("{}{}: {:.17e}", peaks.empty() ? "" : ", ", name, peak);
  }
  text += fmt::format("peak_flops: {{{}}}\n", peaks);
  text += fmt::format("efficiency: {{matmul: {:.17g}, attention_forward: {:.17g}, attention_backward: {:.17g}}}\n",
                      h.matmul_efficiency, h.attention_forward_efficiency, h.attention_backward_efficiency);
  if (!h.attention_blocks.empty()) text += "attention_blocks:\n";
  for (const BlockShare& block : h.attention_blocks) {
    text += fmt::format("  - {{tokens: {}, share: {:.17g}}}\n", block.tokens, block.share);
  }
  if (h.multiprocessors > 0) text += fmt::format("multiprocessors: {}\n", h.multiprocessors);
  if (h.pair_seconds_forward > 0 || h.pair_seconds_backward > 0) {
    text += fmt::format("pair_seconds: {{forward: {:.17g}, backward: {:.17g}}}  # of a score, besides its products\n",
                        h.pair_seconds_forward, h.pair_seconds_backward);
  }
  if (h.product_bandwidth > 0) {
    text += fmt::format("product_bandwidth: {:.17e}  # of one device: rows that products read and write\n",
                        h.product_bandwidth);
  }
  text += fmt::format("memory: {{bytes: {:.17e}, bandwidth: {:.17e}}}\n", h.memory_bytes, h.memory_bandwidth);
  if (h.host_bandwidth > 0) text += fmt::format("host_bandwidth: {:.17e}\n", h.host_bandwidth);
  text += fmt::format("kernel_seconds: {:.17g}\nlevels:\n", h.kernel_seconds);
  for (const LinkLevel& level : h.levels) {
    const std::string core =
        level.core_bandwidth > 0 ? fmt::format(", core_bandwidth: {:.17e}", level.core_bandwidth) : "";
    text += fmt::format("  - {{ranks: {}, bandwidth: {:.17e}, latency: {:.17g}{}}}\n", level.ranks, level.bandwidth,
                        level.latency, core);
  }
  if (h.node_ranks > 0) {
    const std::string storage =
        h.node_storage_bandwidth > 0 ? fmt::format(", storage_bandwidth: {:.17e}", h.node_storage_bandwidth) : "";
    text += fmt::format("node: {{ranks: {}, memory: {:.17e}{}}}\n", h.node_ranks, h.node_memory, storage);
  }
  return text;
}

Hardware read_hardware(const std::string& path) {
  const File file = File::open(path, ExitCode::usage);
  const std::int64_t bytes = file.size();
  if (bytes > largest_file) {
    fail(ExitCode::usage, "{} has {} bytes: no hardware file has more than {}", path, bytes, largest_file);
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read_at(0, text.data(), text.size());
  return parse_hardware(text, path);
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
