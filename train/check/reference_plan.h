// What the reference of a step needs, known before anything runs: its memory grows with the sequence length, and its
// time with the square of it.
#pragma once

#include <cstdint>

#include "framework/parameter_table.h"

namespace ringtrain {

struct Config;

struct ReferencePlan {
  std::int64_t fixed_bytes = 0;      // weights, gradients, the head
  std::int64_t bytes_per_token = 0;  // for one sequence
  double flops = 0;                  // for all sequences
  std::int64_t bytes(std::int64_t tokens) const { return fixed_bytes + bytes_per_token * tokens; }
};

ReferencePlan plan_reference(const Config& config, const ParameterTable& table);

/// Throws Error(usage), with the numbers and a --seq-len that fits, if the reference needs more than `available` bytes.
void require_reference_fits(const Config& config, const ReferencePlan& plan, std::int64_t available);

/// Returns how many FLOPs per second the reference does on this machine: measured, in a few milliseconds.
double reference_rate();

}  // namespace ringtrain
