// What a plan must know about the machines of a run: how fast a device computes, how much memory it has, and how ranks
// reach each other. Read from configs/hardware/*.yaml. Pure values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/dtype.h"

namespace ringtrain {

/// How ranks of a group reach each other. Groups are nested: ranks [k * ranks, (k + 1) * ranks) form one.
struct LinkLevel {
  std::int64_t ranks = 1;  // of one group
  double bandwidth = 0;    // bytes/s of one rank, in each direction at once
  double latency = 0;      // seconds from the post of a message to its first byte
  // Bytes/s of messages that a core on either side transfers, e.g. over TCP; 0: they take no core's time.
  double core_bandwidth = 0;
};

/// The share of its efficiency that attention reaches in blocks of this many tokens.
struct BlockShare {
  std::int64_t tokens = 0;
  double share = 1;
};

/// Which numbers of a file ringtrain has measured; the others are from data sheets and from other libraries'
/// publications.
enum class Measured { all, kernels, nothing };

struct Hardware {
  std::string name = {};  // a description for users
  Measured measured = Measured::all;
  std::int64_t cores = 0;  // that the ranks of a machine share; 0: each rank has its own device

  // Rates of one device; of a CPU, of one core.
  double peak_bfloat16 = 0, peak_float32 = 0, peak_float64 = 0;  // FLOP/s, dense; 0: not supported
  // The share of the peak that the product reaches.
  double matmul_efficiency = 0, attention_forward_efficiency = 0, attention_backward_efficiency = 0;
  std::vector<BlockShare> attention_blocks = {};  // ascending; empty: full efficiency at any length

  // Of a device, if attention leaves some free for a ring's concurrent messages by NCCL; 0: it leaves none.
  std::int64_t multiprocessors = 0;

  // Seconds of one score (a visible pair, of one head) in addition to its products: its exponential, on a CPU core.
  double pair_seconds_forward = 0, pair_seconds_backward = 0;

  double memory_bytes = 0;             // of a device; of a machine with cores, which its ranks share
  double memory_bandwidth = 0;         // bytes/s of the same
  double host_bandwidth = 0;           // bytes/s between a device and the host, each way; 0: there is no such copy
  double product_bandwidth = 0;        // bytes/s of products' rows, of one device; 0: included in the products' rate
  double kernel_seconds = 0;           // from one call of a kernel to the next, regardless of its work
  std::vector<LinkLevel> levels = {};  // ascending; the last one reaches every rank

  // Of a node, whose ranks share it: bytes of host memory. 0: unknown, and no limit.
  std::int64_t node_ranks = 0;
  double node_memory = 0;

  double peak(DType dtype) const;
  /// Returns the share of attention's efficiency that blocks of this many tokens reach: that of attention_blocks, and
  /// between them linear in the logarithm of the tokens; shorter blocks take as long as the shortest.
  double attention_share(double tokens) const;
  /// Returns the level that joins two ranks of the world.
  const LinkLevel& level_between(std::int64_t a, std::int64_t b) const;
  /// Returns the slowest link between adjacent ranks of a ring of the first `ranks` ranks.
  const LinkLevel& slowest_of_ring(std::int64_t ranks) const;
  /// Returns how many ranks share a machine: those of the first level, or all if there is only one level.
  std::int64_t ranks_of_machine(std::int64_t world) const;
  /// Returns how many of a world's ranks share a node.
  std::int64_t ranks_of_node(std::int64_t world) const { return node_ranks > 0 ? std::min(world, node_ranks) : world; }
};

/// Returns what a user should know about numbers that ringtrain has not measured, as one line for a plan of this many
/// ranks; "" if it has measured all that they need.
std::string caveat(const Hardware& hardware, std::int64_t ranks);

/// Returns the hardware of a YAML file. Throws Error(usage) with file:line for invalid content.
Hardware read_hardware(const std::string& path);
/// The same, from text; `path` is only used in messages.
Hardware parse_hardware(const std::string& text, const std::string& path);

/// Returns the values that measure_hardware() has filled in, as YAML that parse_hardware reads back to the same values.
std::string hardware_yaml(const Hardware& hardware);

/// Returns the file for a name: the name itself if there is such a file, otherwise NAME.yaml in the first folder that
/// has it: configs/hardware, or that of the programs' own checkout, bundle, or installation. Throws Error(usage) with
/// the existing names.
std::string find_hardware(const std::string& name);
/// Returns the paths of the hardware files by name; of several with the same name, the one in the likeliest folder.
std::map<std::string, std::string> hardware_files();

}  // namespace ringtrain
