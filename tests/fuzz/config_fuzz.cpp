// Fuzzes the config reader: any text is a config or an Error(usage). An accepted config survives to_yaml.
#include "framework/config/config.h"
#include "framework/config/read_config.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  fuzz::accepted(ExitCode::usage, [&] {
    const Config config = parse_config(text, "fuzz.yaml", {});
    const Config again = parse_config(to_yaml(config), "fuzz.yaml", {});
    if (!differences(config, again).empty()) std::abort();
  });
  // The first line as a setting of --set.
  fuzz::accepted(ExitCode::usage, [&] {
    parse_config("data: {train: a.h5}\ntraining: {seq_len: 8, steps: 1}\n", "fuzz.yaml",
                 {text.substr(0, text.find('\n'))});
  });
  return 0;
}
