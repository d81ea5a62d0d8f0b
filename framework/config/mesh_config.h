// The section mesh of a config.
#pragma once

#include <cstdint>

#include "framework/config/choices.h"
#include "framework/sequence/segments.h"

namespace ringtrain {

struct MeshConfig {
  std::int64_t data = 1;
  std::int64_t sequence = 1;
  Layout layout = Layout::zigzag;
  Backend backend = Backend::automatic;
  std::int64_t threads_per_rank = 0;
  double timeout_seconds = 60;
  bool share_gpu = false;
};

}  // namespace ringtrain
