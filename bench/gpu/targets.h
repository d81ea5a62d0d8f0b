// What must be reached on an H200, beside what a run of gpu_bench measured.
#pragma once

#include "bench/gpu/results.h"

namespace ringtrain::bench {

struct Verdicts {
  Json rows = Json::array();  // what, must, aim, measured (null: not), verdict, note
  int missed = 0, unmeasured = 0;
};

/// bench: what `gpu_bench --json` wrote; baseline: what sdpa_baseline.py wrote, or null.
Verdicts judge(const Json& bench, const Json& baseline);

/// Returns the table for people.
std::string text_of(const Verdicts& verdicts);

}  // namespace ringtrain::bench
