// The program `gpu_bench`: measures the GPU half of ringtrain on this card, with the project's own kernels, layers, and
// rings. No data and no other library. A group that fails does not stop the others.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu/groups.h"
#include "bench/gpu/targets.h"
#include "framework/cuda/context.h"
#include "framework/output/output_file.h"
#include "framework/storage/files.h"
#include "train/programs/command_line.h"
#include "train/programs/program.h"

namespace ringtrain::bench {
namespace {

#ifdef RINGTRAIN_CUDA_EMULATED
constexpr bool emulated = true;
#else
constexpr bool emulated = false;
#endif

constexpr const char *report_writer = "ringtrain gpu_bench", *targets_writer = "ringtrain gpu_bench --targets";

using Group = void (*)(Results&, const Settings&);
const std::vector<std::pair<std::string, Group>> all_groups{
    {"machine", machine_group}, {"attention", attention_group}, {"ring", ring_group}, {"scaling", scaling_group}};

/// Returns what --json may replace: an earlier output of the same kind.
OutputRules rules_of(const char* writer) {
  return {{"a report of gpu_bench", "--json"},
          OutputMark::json(writer),
          OutputInputs::none("what it reads has been read by then")};
}

void write_output(const std::string& path, const char* writer, const Json& content) {
  OutputFile file(path, rules_of(writer), ExitCode::usage);
  file.file().write(marked_json(writer, content.dump(1)) + "\n");
  file.publish();
}

Json report_from(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.contains("rows")) fail(ExitCode::data, "{} is not a report of gpu_bench", path);
  return json;
}

Json read_json(const std::string& path) {
  return report_from(read_file(path, ExitCode::data), path);
}

int print_targets(const std::string& bench, const std::string& baseline, const std::string& output) {
  const Json report = read_json(bench);
  const Verdicts verdicts = judge(report, baseline.empty() ? Json() : read_json(baseline));
  std::fputs(text_of(verdicts).c_str(), stdout);
  if (report.value("emulated", false)) {
    std::puts("These figures are the emulator's, on a CPU: nothing measured there counts.");
  }
  if (!output.empty()) {
    write_output(output, targets_writer, Json{{"targets", verdicts.rows}});
  }
  return verdicts.missed + verdicts.unmeasured > 0 ? 3 : 0;
}

int measure(std::vector<std::string> wanted, const Settings& settings, const std::string& output, bool append) {
  cuda::facts_of(0);  // reports what is missing before anything is timed
  Results results({{"program", "gpu_bench"}, {"emulated", emulated}, {"quick", settings.quick}});
  if (emulated) std::puts("Run by the emulator, on a CPU, at tiny sizes: nothing measured here counts.");
  if (wanted.empty()) {
    for (const auto& group : all_groups) wanted.push_back(group.first);
  }
  if (append && path_exists(output)) {
    const std::string earlier = read_previous_output(output, rules_of(report_writer), ExitCode::usage);
    results.keep(report_from(earlier, output), wanted);
  }
  if (!output.empty()) check_output(output, rules_of(report_writer), ExitCode::usage);
  const std::size_t failures = results.failures();
  if (!output.empty()) {
    results.on_change([&](const Json& report) { write_output(output, report_writer, report); });
  }
  for (const auto& [name, group] : all_groups) {
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    try {
      group(results, settings);
    } catch (const Error& error) {
      results.failed(name, error.what());
    }
  }
  return results.failures() == failures ? 0 : static_cast<int>(ExitCode::device);
}

int run(int argc, char** argv) {
  CommandLine app{
      "Measures the GPU half of ringtrain: copies and matrix products (machine), attention (attention), rings of "
      "ranks\n"
      "that share the card (ring), steps of a 1B model at 8K to 2M tokens (scaling).\n"
      "Exits with 7 if a group failed or an output was not written.",
      "gpu_bench"};
  std::vector<std::string> wanted, names;
  for (const auto& group : all_groups) names.push_back(group.first);
  std::string output, targets, baseline;
  Settings settings{.quick = false, .tiny = emulated};
  app.add_option("--only", wanted, "GROUP", "one group, may be repeated: " + fmt::format("{}", fmt::join(names, ", ")))
      ->check(CLI::IsMember(names))
      ->allow_extra_args(false);
  app.add_option("--json", output, "FILE", "also write everything to FILE, anew after each figure");
  bool append = false;
  app.add_flag("--append", append, "with --json: keep what FILE holds of groups that are not measured now");
  app.add_flag("--quick", settings.quick, "fewer sizes and repetitions");
  app.add_real("--longest-step", settings.longest_step, real_above(0), "SECONDS",
               "steps of the scaling group that should take longer are extrapolated")
      ->capture_default_str();
  auto* judged = app.add_option("--targets", targets, "REPORT.json",
                                "measure nothing: print the targets next to the numbers of this report; exits with 3 "
                                "if one is missed or not in it");
  app.add_option("--baseline,--peer", baseline, "BASELINE.json", "with --targets: what sdpa_baseline.py wrote")
      ->needs(judged);
  if (!parse_command_line(app, argc, argv)) return 0;
  return targets.empty() ? measure(wanted, settings, output, append) : print_targets(targets, baseline, output);
}

}  // namespace
}  // namespace ringtrain::bench

int main(int argc, char** argv) {
  return ringtrain::run_program("gpu_bench", [&] { return ringtrain::bench::run(argc, argv); });
}
