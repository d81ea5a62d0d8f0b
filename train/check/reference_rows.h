// A step's sequences as the reference reads them: straight from the token file, whole and in order, by the rules of
// docs/data.md. It shares nothing with the loader but the file's reader and the order of samples.
#pragma once

#include <cstdint>

#include "reference/model.h"
#include "train/run/run.h"

namespace ringtrain {

/// Returns sequence i of a step (from 1) of a run that begins afresh.
reference::Row reference_row(const Run& run, std::int64_t step, std::int64_t i);

}  // namespace ringtrain
