// The running state of attention that has seen no key, for tests that pass a state from call to call.
#pragma once

#include <limits>

#include "kernels/attention.h"
#include "kernels/elementwise.h"

namespace ringtrain::testing {

/// Sets the state of no key seen: o = 0, m = -inf, l = 0.
inline void reset_state(Stream& stream, const AttentionState& state) {
  fill(stream, state.o, 0);
  fill(stream, state.m, -std::numeric_limits<double>::infinity());
  fill(stream, state.l, 0);
}

}  // namespace ringtrain::testing
