// The program `report`: a run as one HTML page, which needs nothing else.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "extras/report/html_report.h"
#include "framework/config/read_config.h"
#include "framework/output/output_file.h"
#include "framework/standard_streams.h"
#include "framework/storage/files.h"
#include "framework/storage/strict_json.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"
#include "train/engine/rank_state.h"
#include "train/programs/command_line.h"
#include "train/programs/program.h"
#include "train/run/run_folder.h"

using namespace ringtrain;

namespace {

/// Returns what is known of a run's folder beside its metrics.
ReportedRun reported_run(const std::string& folder) {
  ReportedRun run{.folder = folder};
  const std::string path = folder + "/config.yaml";
  if (!path_exists(path)) return run;
  run.config = read_config(path, {}, ConfigUse::know, check_model);
  const ParameterTable table = make_parameter_table(*run.config);
  run.parameters = table.count();
  run.planned.resize(run.config->mesh.data * run.config->mesh.sequence);
  for (const RankPlan& kind : plan_ranks(*run.config, table, training_purpose(*run.config))) {
    for (const auto rank : kind.ranks) run.planned[rank] = kind.peak;
  }
  return run;
}

/// Returns the times of a file of `plan --output`.
PlannedTimes read_plan(const std::string& path) {
  constexpr std::int64_t most = 16 << 20;
  try {
    const nlohmann::json plan = parse_strict_json(read_file(path, ExitCode::usage, most));
    if (plan.at("kind") != "plan") throw std::invalid_argument("it is another kind of file");
    return {plan.at("hardware"), plan.at("step_seconds"), plan.at("tokens_per_second"), plan.at("mfu")};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ExitCode::usage, "{}: is no plan of plan --output: {}", path, error.what());
  }
}

/// Returns the page. Throws Error(usage) if what it shows of an evaluation has another form.
RunReport page_of(const std::vector<ReportedRun>& runs) {
  try {
    return html_report(runs);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (runs[0].evaluation_path.empty()) throw;
    fail(ExitCode::usage, "{}: holds other results than those of evaluate --output: {}", runs[0].evaluation_path,
         error.what());
  }
}

/// Returns what a file of `evaluate --output` holds.
nlohmann::json read_evaluation(const std::string& path) {
  constexpr std::int64_t most = 16 << 20;
  try {
    nlohmann::json evaluation = parse_strict_json(read_file(path, ExitCode::usage, most));
    if (evaluation.at("written_by") != "ringtrain evaluate") throw std::invalid_argument("it is another kind of file");
    return evaluation;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ExitCode::usage, "{}: holds no results of evaluate --output: {}", path, error.what());
  }
}

int run(int argc, char** argv) {
  CommandLine app{
      "Write a run's metrics as one HTML page: what ran, planned and measured, curves with what happened, evaluations, "
      "the ring's waits. Of two runs it shows both in one, and how they differ. It has no scripts and fetches nothing. "
      "E.g.: report runs/long_ctx",
      "report"};
  std::string folder, other, output, plan, evaluation;
  bool overwrite = false;
  app.add_option("RUN", folder, "DIR", "a run's folder")->required();
  auto* const other_option = app.add_option("OTHER", other, "DIR", "the folder of a run to compare it with");
  auto* const output_option =
      app.add_option("--output", output, "FILE.html",
                     "the page (default: report.html in the run's folder, of two comparison.html in the second's); "
                     "replaces a former one");
  auto* const plan_option = app.add_option("--plan", plan, "FILE.json",
                                           "what plan --output wrote of this run: its times stand beside "
                                           "the measured ones");
  auto* const evaluation_option =
      app.add_option("--evaluation", evaluation, "FILE.json",
                     "what evaluate --output wrote: by position, LongPPL, against another model, tasks");
  app.add_flag("--overwrite", overwrite, "let --output replace any file but those that are read");
  if (!parse_command_line(app, argc, argv)) return 0;
  const bool two = other_option->count() > 0;
  if (two && plan_option->count() > 0) fail(ExitCode::usage, "--plan {}: goes with one run, not with two", plan);
  std::vector<ReportedRun> runs{reported_run(folder)};
  if (two) runs.push_back(reported_run(other));
  if (two && evaluation_option->count() > 0) {
    fail(ExitCode::usage, "--evaluation {}: goes with one run, not with two", evaluation);
  }
  if (evaluation_option->count() > 0) {
    runs[0].evaluation_path = evaluation;
    runs[0].evaluation = read_evaluation(evaluation);
  }
  if (plan_option->count() > 0) runs[0].plan = read_plan(plan);
  const RunReport report = page_of(runs);
  if (!report.warning.empty()) write_message(stderr, "warning: " + report.warning + "\n");
  if (output_option->count() == 0) output = two ? other + "/comparison.html" : folder + "/report.html";
  const auto inputs = [&] {
    std::vector<std::string> files = files_of_run(folder);
    const std::vector<std::string> more = two ? files_of_run(other) : std::vector<std::string>{};
    files.insert(files.end(), more.begin(), more.end());
    return files;
  };
  OutputFile file(output,
                  OutputRules({"a page of report", "--output"}, OutputMark::begins(report_head),
                              OutputInputs::of(inputs), overwrite ? Overwrite::yes : Overwrite::no),
                  ExitCode::usage);
  file.file().write(report.page);
  file.publish();
  print_result(output + "\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("report", [&] { return run(argc, argv); });
}
