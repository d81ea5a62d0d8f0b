// Fuzzes the readers of metrics.jsonl: any file is a page and a history that a resume can cut, or an Error(usage).
#include "extras/report/html_report.h"
#include "framework/storage/files.h"
#include "tests/fuzz/fuzz_file.h"
#include "train/run/metrics_history.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  const std::string path = fuzz::folder() + "/metrics.jsonl";
  fuzz::write(path, text);
  const ShownRun run{.folder = fuzz::folder()};
  fuzz::accepted(ExitCode::usage, [&] { html_report({run}); });
  fuzz::accepted(ExitCode::usage, [&] { html_report({run, run}); });
  const MetricsHistory history = MetricsHistory::read(path);
  history.cut(history.last_step() / 2);
  if (MetricsHistory::read(path).last_step() > history.last_step() / 2) std::abort();  // the removed lines are gone
  return 0;
}
