// Hardware files from what gpu_bench measured on a card: `plan --measure --gpu-bench REPORT.json`.
#pragma once

#include <string>

#include "extras/planner/hardware.h"

namespace ringtrain {

/// Returns `base`, a file of the same kind of card, with the rates of a report of gpu_bench (its text; `path` names it
/// in messages): products, attention at head size 128, causal, with what shorter blocks reach, and the memory's
/// bandwidth. Peak, links, host and node are base's: one card alone does not tell them. Throws Error(usage) for a
/// report of the emulator, for one that lacks a figure or has one beyond base's peak, and Error(data) for what is no
/// report.
Hardware hardware_of_card(const Hardware& base, const std::string& text, const std::string& path);

}  // namespace ringtrain
