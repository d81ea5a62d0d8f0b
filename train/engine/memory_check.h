// The memory plan of a run: as text for people, per rank and tag, the bytes and their tensors, with repeated layers in
// one line; and whether it fits this machine and its GPUs, before anything is allocated.
#pragma once

#include <string>
#include <vector>

#include "train/engine/rank_state.h"

namespace ringtrain {

struct Config;

/// Some ranks: those on this machine, and, among them, those of this process. Only the latter's GPUs are checked: a
/// launcher may show each process a different GPU under the same number.
struct LocalRanks {
  std::vector<int> here, of_process;
};

/// Throws Error(usage), with the tags, the numbers, and what to change, if the ranks of this machine need more memory
/// than it has available, or ranks that share a GPU need more than that has available. Throws Error(device) if the
/// config wants a GPU that does not exist or cannot be used.
void check_memory(const Config& config, const std::vector<RankPlan>& plans, const LocalRanks& ranks);

/// Throws Error(usage), with the numbers and what to change, if the ranks together need more than `available` bytes.
/// where: " of GPU 0 (its name)"; empty: of the machine.
void require_memory(const std::vector<RankPlan>& plans, std::int64_t available, const std::string& where);

/// Returns the bytes of all ranks, which are threads of one process.
std::size_t total_bytes(const std::vector<RankPlan>& plans);
/// Returns the plan as text; ranks with equal plans are printed once.
std::string memory_report(const std::vector<RankPlan>& plans);
/// Returns the available memory of the machine and of each GPU that the config's ranks would use, as lines.
std::string available_text(const Config& config, const LocalRanks& ranks);

}  // namespace ringtrain
