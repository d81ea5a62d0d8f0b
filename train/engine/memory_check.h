// Whether a plan fits: the memory of this machine, and that of its GPUs, before anything is allocated.
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

/// Returns what is left of the machine's memory and of each GPU that the config's ranks would use, as lines.
std::string available_text(const Config& config, const LocalRanks& ranks);

}  // namespace ringtrain
