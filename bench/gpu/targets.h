// Compares the measurements of a gpu_bench run with the targets for an H200.
#pragma once

#include "bench/gpu/results.h"

namespace ringtrain::bench {

struct Verdicts {
  Json rows = Json::array();  // what, must, aim, measured (null: not), verdict, note
  int missed = 0, unmeasured = 0;
};

/// bench: the output of `gpu_bench --json`; baseline: the output of sdpa_baseline.py, or null.
Verdicts judge(const Json& bench, const Json& baseline);

/// Returns the table for users.
std::string text_of(const Verdicts& verdicts);

}  // namespace ringtrain::bench
