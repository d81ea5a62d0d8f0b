// The program `report`: shows a run as one self-contained HTML page.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "extras/report/html_report.h"
#include "framework/config/read_config.h"
#include "framework/output/output_file.h"
#include "framework/standard_streams.h"
#include "framework/storage/files.h"
#include "framework/storage/strict_json.h"
#include "layers/check_model.h"
#include "train/programs/command_line.h"
#include "train/programs/program.h"
#include "train/run/run_folder.h"

using namespace ringtrain;

namespace {

/// The command line as the user gave it.
struct Given {
  std::string folder, other, output, plan, evaluation;
};

void add_options(CommandLine& app, Given& given) {
  app.add_option("RUN", given.folder, "DIR", "a run's folder")->required();
  auto* const other = app.add_option("OTHER", given.other, "DIR", "the folder of a run to compare it with");
  app.add_option("--output", given.output, "FILE.html",
                 "the page (default: RUN/report.html, or OTHER/comparison.html of two runs); replaces an old one");
  app.add_option("--plan", given.plan, "FILE.json",
                 "the file from plan --output for this run: the page shows its times next to the measured ones")
      ->excludes(other);
  app.add_option("--evaluation", given.evaluation, "FILE.json",
                 "the file from evaluate --output: curves by position and against another model, answers to tasks")
      ->excludes(other);
}

/// Returns what is known about a run's folder, except its metrics.
ShownRun shown_run(const std::string& folder) {
  ShownRun run{.folder = folder};
  const std::string path = folder + "/config.yaml";
  if (!path_exists(path)) return run;
  run.config = read_config(path, {}, ConfigUse::know, check_model);
  run.plan["steps"] = run.config->training.steps;
  return run;
}

/// Returns the content of a file of `program --output`, in which `key` is `kind`. Throws Error(usage) for another kind
/// of file.
nlohmann::json read_output(const std::string& path, const char* program, const char* key, const char* kind) {
  constexpr std::int64_t most = 16 << 20;
  const std::string text = read_file(path, ExitCode::usage, most);
  std::string why = "it is another kind of file";
  try {
    nlohmann::json file = parse_strict_json(text);
    if (file.at(key) == kind) return file;
  } catch (const std::exception& error) {
    why = error.what();
  }
  fail(ExitCode::usage, "{}: does not hold results of {} --output: {}", path, program, why);
}

/// Returns the page. Throws Error(usage) if the data of an evaluation is invalid.
RunReport page_of(const Given& given) {
  ShownRuns runs{shown_run(given.folder)};
  if (!given.other.empty()) runs.push_back(shown_run(given.other));
  if (!given.plan.empty()) runs[0].plan.update(read_output(given.plan, "plan", "kind", "plan"));
  runs[0].evaluation_path = given.evaluation;
  if (!given.evaluation.empty()) {
    runs[0].evaluation = read_output(given.evaluation, "evaluate", "written_by", "ringtrain evaluate");
  }
  try {
    return html_report(runs);
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::usage, "{}: holds other results than those of evaluate --output: {}", given.evaluation,
         error.what());
  }
}

int run(int argc, char** argv) {
  CommandLine app{
      "Write a run's metrics as one HTML page: settings, measurements, curves with events, evaluations, and the ring's "
      "waits. For two runs, the page shows both, and how they differ. It has no scripts and fetches nothing. E.g.: "
      "report runs/long_ctx",
      "report"};
  Given given;
  add_options(app, given);
  if (!parse_command_line(app, argc, argv)) return 0;
  const RunReport report = page_of(given);
  if (!report.warning.empty()) write_message(stderr, "warning: " + report.warning + "\n");
  const bool two = !given.other.empty();
  const std::string usual = two ? given.other + "/comparison.html" : given.folder + "/report.html";
  const std::string output = given.output.empty() ? usual : given.output;
  const auto files = [&] { return files_of_models({given.folder, given.other}); };
  OutputFile file(
      output, OutputRules({"a page of report", "--output"}, OutputMark::begins(report_head), OutputInputs::from(files)),
      ExitCode::usage);
  file.publish(report.page);
  print_result(output + "\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("report", [&] { return run(argc, argv); });
}
