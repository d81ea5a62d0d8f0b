// How much a checkpoint takes on the disk, before there is one.
#pragma once

#include <cstdint>

#include "framework/config/config.h"
#include "framework/parameter_table.h"

namespace ringtrain {

/// Returns the bytes of the tensors in one checkpoint of a run: the weights that it saves and the optimizer's state of
/// those that it trains. Headers, config and manifest add some kilobytes for each rank.
std::int64_t checkpoint_bytes(const Config& config, const ParameterTable& table);

/// Returns how many checkpoints a run saves at most that has done `done` steps and ends after step `last`.
std::int64_t saves_to_come(const CheckpointConfig& config, std::int64_t done, std::int64_t last);

/// Returns how many checkpoints lie on the disk at a time once a run has saved so many: those that it keeps, and one
/// more while the next is written.
std::int64_t most_at_a_time(const CheckpointConfig& config, std::int64_t saved);

}  // namespace ringtrain
