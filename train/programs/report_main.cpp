// The program `report`: a run as one HTML page, which needs nothing else.
#include <cstdio>
#include <string>

#include "framework/config/read_config.h"
#include "framework/output/output_file.h"
#include "framework/standard_streams.h"
#include "framework/storage/files.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"
#include "train/engine/rank_state.h"
#include "train/programs/command_line.h"
#include "train/programs/program.h"
#include "train/report/html_report.h"
#include "train/run/run_folder.h"

using namespace ringtrain;

namespace {

/// Returns what the run's config.yaml plans for each rank; nothing if it is not there.
std::vector<MemoryUse> planned_memory(const std::string& folder) {
  const std::string path = folder + "/config.yaml";
  if (!path_exists(path)) return {};
  const Config config = read_config(path, {}, ConfigUse::know, check_model);
  std::vector<MemoryUse> by_rank(config.mesh.data * config.mesh.sequence);
  for (const RankPlan& kind : plan_ranks(config, make_parameter_table(config), training_purpose(config))) {
    for (const auto rank : kind.ranks) by_rank[rank] = kind.peak;
  }
  return by_rank;
}

int run(int argc, char** argv) {
  CommandLine app{
      "Write a run's metrics as one HTML page: curves, memory, the ring's waits, evaluations. It has no scripts and\n"
      "fetches nothing. E.g.: report runs/long_ctx",
      "report"};
  std::string folder, output;
  bool overwrite = false;
  app.add_option("RUN", folder, "a run's folder")->required()->type_name("DIR");
  auto* const output_option =
      app.add_option("--output", output, "the page (default: report.html in the run's folder); replaces a former one")
          ->type_name("FILE.html");
  app.add_flag("--overwrite", overwrite, "let --output replace any file but those of the run");
  if (!parse_command_line(app, argc, argv)) return 0;
  const RunReport report = html_report(folder, planned_memory(folder));
  if (!report.warning.empty()) write_message(stderr, "warning: " + report.warning + "\n");
  if (output_option->count() == 0) output = folder + "/report.html";
  OutputFile file(
      output,
      OutputRules({"a page of report", "--output"}, OutputMark::begins(report_head),
                  OutputInputs::of([&] { return files_of_run(folder); }), overwrite ? Overwrite::yes : Overwrite::no),
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
