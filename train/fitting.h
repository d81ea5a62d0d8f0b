// Whether a plan fits: the memory of this machine, and that of its GPUs, before anything is allocated.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/config.h"
#include "train/rank_state.h"

namespace ringtrain {

/// Throws Error(usage), with the tags, the numbers and what to change, if the ranks `here` of this machine need more
/// memory than it has left, or those that share a GPU more than that has left. Throws Error(device) if the config wants
/// a GPU that is not there or cannot be used.
void require_fitting(const Config& config, const std::vector<RankPlan>& plans, std::span<const int> here);

/// Return what is left of the machine's memory and of each GPU that the config's ranks `here` would use, as lines.
std::string available_text(const Config& config, std::span<const int> here);

}  // namespace ringtrain
