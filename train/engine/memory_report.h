// The memory plan for people: per rank and tag the bytes and the tensors they are, repeated layers as one line; and the
// refusal of a plan that does not fit the machine.
#pragma once

#include <string>
#include <vector>

#include "train/engine/rank_state.h"

namespace ringtrain {

/// Returns the plan as text; ranks that hold the same are told once.
std::string memory_report(const std::vector<RankPlan>& plans);
/// Returns the bytes of all ranks, which are threads of one process.
std::size_t total_bytes(const std::vector<RankPlan>& plans);
/// Throws Error(usage), with the numbers and what to change, if the ranks together need more than `available` bytes.
/// where: " of GPU 0 (its name)"; empty: the machine's.
void require_memory(const std::vector<RankPlan>& plans, std::int64_t available, const std::string& where);

}  // namespace ringtrain
