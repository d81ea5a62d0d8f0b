// The command `check`: is this run right? It compares one step of a user's own config with the reference in double.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/config/read_config.h"
#include "framework/dump/dump_comparison.h"
#include "framework/output/output_file.h"
#include "framework/profile/hash_progress.h"
#include "framework/profile/progress.h"
#include "framework/standard_streams.h"
#include "framework/storage/strict_json.h"
#include "layers/check_model.h"
#include "train/check/check_report.h"
#include "train/programs/command_line.h"
#include "train/programs/commands.h"
#include "train/run/config_lookup.h"
#include "train/run/run_folder.h"

using namespace ringtrain;

namespace {

constexpr const char* check_writer = "ringtrain check";

struct CheckFlags {
  std::string config, output;
  std::vector<std::string> settings;
  CheckOptions options;
  std::vector<std::string> dumps;       // two dumps to compare, instead of a run
  double relative = -1, absolute = -1;  // the tolerance; negative: the default
};

void add_run_flags(CommandLine& app, CheckFlags& flags) {
  CheckOptions& options = flags.options;
  options.train.dump.step = 1;
  app.add_option("--config", flags.config, "FILE", "the YAML config of the run");
  add_settings(app, flags.settings);
  app.add_option("--init-from", options.train.start.init_from, "PATH", "start from these weights, like train");
  app.add_tokens("--seq-len", options.tokens, "N", "use sequences of N tokens: the reference's time grows with N^2")
      ->check(at_least(1));
  app.add_old_name("--seq-len", "--tokens");
  app.add_option("--layers", options.layers, "K", "use only the first K layers of the model")->check(at_least(1));
  app.add_option("--steps", options.train.dump.step, "N", "do N steps, and check the last one")->check(at_least(1));
  app.add_option("--dump", options.train.dump.folder, "DIR",
                 "the folder for the step's tensors, which all ranks must see; an earlier dump in it is replaced "
                 "(default: <config's name>.check)");
  app.add_flag("--keep", options.keep, "keep the dump even if the run is correct, for --compare");
}

void add_comparison_flags(CommandLine& app, CheckFlags& flags) {
  auto* const compare =
      app.add_option("--compare", flags.dumps, "A B",
                     "do not run a step: compare two dumps of the same step (train --dump-step, check --keep), and "
                     "name the first element and all tensors that differ; the exit code is 5 if any tensor differs")
          ->expected(2);
  app.add_real("--tolerance", flags.relative, real_at_least(0), "X",
               "with --compare: ignore differences up to this fraction of the tensor's maximum (default: 1e-12 between "
               "two float64 dumps, 1e-5 with float32, 0.05 with bfloat16)")
      ->needs(compare);
  app.add_real("--absolute", flags.absolute, real_at_least(0), "X",
               "with --compare: ignore differences up to this, whatever the maximum (default: a thousandth of the "
               "tolerance; some gradients are zero except for rounding)")
      ->needs(compare);
}

/// Declares the command line, and refuses impossible combinations. Returns false if only help was requested.
bool parse(CheckFlags& flags, int argc, char** argv, bool prints) {
  CommandLine app{
      "Is this run correct? Run one step of a config on its own mesh, device, data, and weights, and compare it with a "
      "float64 reference: inputs, every layer's tensors, nll, loss, gradients, and the weights after the step. Name "
      "the first tensor that differs by more than rounding can explain, with rank, position, and both values. Exit "
      "with 0 if the run is right, and with 5 if it is wrong, or untested because some gradients are zero.",
      "check"};
  add_run_flags(app, flags);
  add_comparison_flags(app, flags);
  app.add_option("--output", flags.output, "FILE.json", "also write the result to FILE; replaces an earlier result")
      ->excludes(app.get_option("--compare"));
  if (!parse_command_line(app, argc, argv, prints)) return false;
  if (flags.dumps.empty() && flags.config.empty())
    fail(ExitCode::usage, "--config is required, unless --compare names two dumps");
  return true;
}

/// Prints where the dumps differ. Returns the exit code.
int compare_pair(const CheckFlags& flags) {
  const DumpReader a(flags.dumps[0]), b(flags.dumps[1]);
  Tolerance tolerance = default_tolerance(a.index(), b.index());
  if (flags.relative >= 0) tolerance = {.relative = flags.relative, .absolute = flags.relative * 1e-3};
  if (flags.absolute >= 0) tolerance.absolute = flags.absolute;
  const DumpComparison comparison = compare_dumps(a, b, tolerance);
  print_result(report(comparison, a, b, tolerance));
  return comparison.agree() ? 0 : static_cast<int>(ExitCode::numeric);
}

/// Runs the check and shows its progress. The result is rank 0's.
CheckReport run_check(CheckOptions options, const Log& log, Launcher& launcher) {
  std::optional<Progress> progress;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress.emplace("check", total);
    progress->update(done, "sequences of the reference", 0);
  };
  std::optional<HashProgress> hashing;  // for data and checkpoints, before the run begins
  if (launcher.is_rank_zero()) hashing.emplace("check");
  return check_run(options, log, launcher);
}

}  // namespace

int ringtrain::check_command(int argc, char** argv, Launcher& launcher) {
  CheckFlags flags;
  if (!parse(flags, argc, argv, launcher.is_rank_zero())) return 0;
  if (!flags.dumps.empty()) return launcher.is_rank_zero() ? compare_pair(flags) : 0;
  const Log log = [&](const std::string& line) {
    if (launcher.is_rank_zero()) write_message(stderr, fmt::format("check: {}\n", line));
  };
  TrainOptions& train = flags.options.train;
  train.config =
      read_config(flags.config, flags.settings, ConfigUse::run, check_model, config_lookup(log, train.start.init_from));
  if (train.dump.folder.empty()) train.dump.folder = train.config.name + ".check";
  std::vector<std::string> inputs = inputs_of(train);
  inputs.push_back(flags.config);
  std::optional<OutputFile> file;
  if (!flags.output.empty() && launcher.is_rank_zero()) {
    file.emplace(flags.output,
                 OutputRules({"a check's result", "--output"}, OutputMark::json(check_writer),
                             OutputInputs::from([&] { return files_of_models(inputs); })),
                 ExitCode::usage);
  }
  const CheckReport report = run_check(flags.options, log, launcher);
  if (!launcher.is_rank_zero()) return 0;
  print_result(check_report(report));
  if (file) file->publish(marked_json(check_writer, json_text(check_json(report), 2)) + "\n");
  return report.right() ? 0 : static_cast<int>(ExitCode::numeric);
}
