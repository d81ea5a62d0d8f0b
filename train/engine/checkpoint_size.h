// How much disk space a checkpoint takes, before it exists.
#pragma once

#include <cstdint>

#include "framework/config/config.h"
#include "framework/parameter_table.h"

namespace ringtrain {

/// Returns the bytes of the tensors in one checkpoint of a run: the weights that it saves and the optimizer's state of
/// those that it trains. Headers, config, and manifest add some kilobytes per rank.
std::int64_t checkpoint_bytes(const Config& config, const ParameterTable& table);

/// Returns the largest number of checkpoints that a run still saves after `done` steps, if it ends after step `last`.
std::int64_t saves_to_come(const CheckpointConfig& config, std::int64_t done, std::int64_t last);

/// Returns the largest number of checkpoints on disk at a time after a run has saved this many: those that it keeps,
/// and one more while the next is written.
std::int64_t most_at_a_time(const CheckpointConfig& config, std::int64_t saved);

}  // namespace ringtrain
