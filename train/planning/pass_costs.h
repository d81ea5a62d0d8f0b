// What simulated passes of a ring are given and come to: seconds and bytes of work, seconds of a message. Pure values.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ringtrain {

/// Seconds and bytes of a pass.
struct PassCosts {
  double pair_seconds = 0;     // of one visible pair
  double visit_seconds = 0;    // of each kernel call besides
  double key_value_bytes = 0;  // of one token, with its document id
  double gradient_bytes = 0;   // of one token; 0: a forward pass
  double overlap_seconds = 0;  // of other work at the end of backward, while the last gradients come home
};

/// What a pass came to, by rank of the ring.
struct PassTimes {
  std::vector<double> compute;  // seconds in kernels
  std::vector<double> wait;     // seconds that nothing hid
  std::int64_t events = 0;      // kernel calls and messages
};

/// Seconds of a message: until it has come, that it keeps its link busy, and that it takes a core of each side.
struct MessageTime {
  double seconds = 0, busy = 0, carry = 0;
};
using TimeMessage = std::function<MessageTime(int from, int to, double bytes)>;

}  // namespace ringtrain
