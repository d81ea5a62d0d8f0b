// The memory plan of a run: as text for people, per rank and tag the bytes and the tensors they are, repeated layers as
// one line; and whether it fits this machine and its GPUs, before anything is allocated.
#pragma once

#include <string>
#include <vector>

#include "train/engine/rank_state.h"

namespace ringtrain {

struct Config;

/// Some ranks: those on this machine, and of these, those of this process. GPUs are looked at for the latter alone: a
/// launcher may let each process see others, by the same number.
struct LocalRanks {
  std::vector<int> here, own;
};

/// Throws Error(usage), with the tags, the numbers and what to change, if the ranks of this machine need more memory
/// than it has left, or those that share a GPU more than that has left. Throws Error(device) if the config wants a GPU
/// that is not there or cannot be used.
void check_memory(const Config& config, const std::vector<RankPlan>& plans, const LocalRanks& ranks);

/// Throws Error(usage), with the numbers and what to change, if the ranks together need more than `available` bytes.
/// where: " of GPU 0 (its name)"; empty: the machine's.
void require_memory(const std::vector<RankPlan>& plans, std::int64_t available, const std::string& where);

/// Returns the bytes of all ranks, which are threads of one process.
std::size_t total_bytes(const std::vector<RankPlan>& plans);
/// Returns the plan as text; ranks that hold the same are printed once.
std::string memory_report(const std::vector<RankPlan>& plans);
/// Returns what is left of the machine's memory and of each GPU that the config's ranks would use, as lines.
std::string available_text(const Config& config, const LocalRanks& ranks);

}  // namespace ringtrain
