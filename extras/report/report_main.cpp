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

/// Returns what take makes of a JSON file. Throws Error(usage) with `complaint` if it is another kind of file.
template <class Take>
auto read_output(const std::string& path, const char* complaint, const Take& take) {
  constexpr std::int64_t most = 16 << 20;
  try {
    return take(parse_strict_json(read_file(path, ExitCode::usage, most)));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ExitCode::usage, "{}: {}: {}", path, complaint, error.what());
  }
}

void require_kind(const nlohmann::json& file, const char* key, const char* kind) {
  if (file.at(key) != kind) throw std::invalid_argument("it is another kind of file");
}

/// Returns the times of a file of `plan --output`.
PlannedTimes read_plan(const std::string& path) {
  return read_output(path, "is no plan of plan --output", [](const nlohmann::json& plan) -> PlannedTimes {
    require_kind(plan, "kind", "plan");
    return {plan.at("hardware"), plan.at("step_seconds"), plan.at("tokens_per_second"), plan.at("mfu")};
  });
}

/// Returns what a file of `evaluate --output` holds.
nlohmann::json read_evaluation(const std::string& path) {
  return read_output(path, "holds no results of evaluate --output", [](nlohmann::json evaluation) {
    require_kind(evaluation, "written_by", "ringtrain evaluate");
    return evaluation;
  });
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

/// The command line, as it was given.
struct Given {
  std::string folder, other, output, plan, evaluation;
};

void add_options(CommandLine& app, Given& given) {
  app.add_option("RUN", given.folder, "DIR", "a run's folder")->required();
  app.add_option("OTHER", given.other, "DIR", "the folder of a run to compare it with");
  app.add_option("--output", given.output, "FILE.html",
                 "the page (default: report.html in the run's folder, of two comparison.html in the second's); "
                 "replaces a former one");
  app.add_option("--plan", given.plan, "FILE.json",
                 "what plan --output wrote of this run: its times stand beside the measured ones");
  app.add_option("--evaluation", given.evaluation, "FILE.json",
                 "what evaluate --output wrote: by position, LongPPL, against another model, tasks");
}

/// Returns the runs that the page shows.
std::vector<ReportedRun> runs_of(const Given& given) {
  const bool two = !given.other.empty();
  if (two && !given.plan.empty()) fail(ExitCode::usage, "--plan {}: goes with one run, not with two", given.plan);
  std::vector<ReportedRun> runs{reported_run(given.folder)};
  if (two) runs.push_back(reported_run(given.other));
  if (two && !given.evaluation.empty()) {
    fail(ExitCode::usage, "--evaluation {}: goes with one run, not with two", given.evaluation);
  }
  runs[0].evaluation_path = given.evaluation;
  if (!given.evaluation.empty()) runs[0].evaluation = read_evaluation(given.evaluation);
  if (!given.plan.empty()) runs[0].plan = read_plan(given.plan);
  return runs;
}

int run(int argc, char** argv) {
  CommandLine app{
      "Write a run's metrics as one HTML page: what ran, planned and measured, curves with what happened, evaluations, "
      "the ring's waits. Of two runs it shows both in one, and how they differ. It has no scripts and fetches nothing. "
      "E.g.: report runs/long_ctx",
      "report"};
  Given given;
  add_options(app, given);
  if (!parse_command_line(app, argc, argv)) return 0;
  const RunReport report = page_of(runs_of(given));
  if (!report.warning.empty()) write_message(stderr, "warning: " + report.warning + "\n");
  const bool two = !given.other.empty();
  const std::string usual = two ? given.other + "/comparison.html" : given.folder + "/report.html";
  const std::string output = given.output.empty() ? usual : given.output;
  const auto inputs = [&] {
    std::vector<std::string> files = files_of_run(given.folder);
    const std::vector<std::string> more = two ? files_of_run(given.other) : std::vector<std::string>{};
    files.insert(files.end(), more.begin(), more.end());
    return files;
  };
  OutputFile file(
      output, OutputRules({"a page of report", "--output"}, OutputMark::begins(report_head), OutputInputs::of(inputs)),
      ExitCode::usage);
  file.publish(report.page);
  print_result(output + "\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("report", [&] { return run(argc, argv); });
}
