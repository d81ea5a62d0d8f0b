// Fuzzes the reader of hardware files: any text is hardware whose numbers are within their ranges, or an Error(usage).
#include "extras/planner/hardware.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  fuzz::accepted(ExitCode::usage, [&] {
    const Hardware hardware = parse_hardware(text, "hardware.yaml");
    if (hardware.levels.empty() || !(hardware.memory_bytes > 0) || !(hardware.memory_bandwidth > 0)) std::abort();
    for (const LinkLevel& level : hardware.levels) {
      if (level.ranks < 1 || !(level.bandwidth > 0) || !(level.latency >= 0)) std::abort();
    }
    hardware.level_between(0, hardware.levels.back().ranks - 1);
  });
  return 0;
}
