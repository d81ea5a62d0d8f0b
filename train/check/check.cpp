#include "train/check/check.h"

#include <algorithm>
#include <chrono>

#include "framework/config/read_config.h"
#include "framework/config/training_stages.h"
#include "framework/counted.h"
#include "framework/dump/dump_reader.h"
#include "framework/profile/clock.h"
#include "framework/profile/progress.h"
#include "framework/storage/files.h"
#include "framework/system/system_memory.h"
#include "layers/model/model_definition.h"
#include "train/check/reference_plan.h"
#include "train/check/rounding.h"

namespace ringtrain {

namespace {

/// Sets `value` to the user's wish, if there is one. Returns the cut as a clause, "" if nothing was cut.
std::string cut(const char* flag, const char* key, std::int64_t wanted, std::int64_t& value) {
  if (wanted == 0 || wanted == value) return "";
  if (wanted > value)
    fail(ExitCode::usage, "{} {}: the config has {} = {}; this flag can only reduce it", flag, wanted, key, value);
  std::string text = fmt::format("{} is {} instead of {}", key, wanted, value);
  value = wanted;
  return text;
}

/// Cuts the sequences of all stages. Returns the clause that says so, "" if nothing was cut.
std::string cut_stages(std::int64_t tokens, TrainingConfig& training) {
  std::int64_t longest = training.seq_len;
  for (const TrainingStage& stage : training.stages) longest = std::max(longest, stage.seq_len.value_or(0));
  std::string clause = cut("--seq-len", "training.seq_len", tokens, longest);
  if (clause.empty()) return clause;
  training.seq_len = std::min(training.seq_len, longest);
  for (TrainingStage& stage : training.stages) {
    if (stage.seq_len) stage.seq_len = std::min(*stage.seq_len, longest);
  }
  return clause;
}

/// config: as in effect in the step.
std::string run_text(const Config& config, std::int64_t step) {
  return fmt::format("step {} of {}: {} of {} tokens, {} x {} {}, {}, {}", step, config.name,
                     counted(config.training.global_batch_size, "sequence"), config.training.seq_len, config.mesh.data,
                     config.mesh.sequence, name_of(config.mesh.layout), name_of(config.training.device),
                     name_of(config.training.dtype));
}

}  // namespace

TrainOptions checked_run(const CheckOptions& options, std::vector<std::string>& cuts) {
  TrainOptions run = options.train;
  if (!run.model.is_transformer()) {
    fail(ExitCode::usage,
         "check: the reference covers only the transformer, not the model \"{}\"; compare its layers with finite "
         "differences (check_gradient)",
         run.model.name);
  }
  if (run.dump.folder.empty())
    fail(ExitCode::usage, "TrainOptions::dump.folder is empty: a check writes tensors there");
  run.output = run.dump.folder + "/run";  // never made
  run.config = checked_config(run.config, ConfigUse::run, rule_of(run.model));
  for (const std::string& clause :
       {cut_stages(options.tokens, run.config.training),
        cut("--layers", "model.num_hidden_layers", options.layers, run.config.model.num_hidden_layers)}) {
    if (!clause.empty()) cuts.push_back(clause);
  }
  run.start.layers = options.layers;
  run.config.evaluation.interval = 0;  // these affect no step
  run.config.checkpoint.interval = -1;
  run.config.training.on_nonfinite = OnNonfinite::skip;  // so that the tensor with NaN or infinity gets a name
  run.config.training.audit.interval = 0;                // the reference checks more
  run.dump.update = true;
  run.dump.wanted = [](const std::string& name) { return !name.ends_with("logits"); };  // logits are wide
  return run;
}

const CheckedTensor* CheckReport::first() const {
  const auto found =
      std::ranges::find_if(tensors, [](const CheckedTensor& tensor) { return tensor.difference.has_value(); });
  return found == tensors.end() ? nullptr : &*found;
}

std::vector<std::string> CheckReport::untested() const {
  std::vector<std::string> names;
  for (const CheckedTensor& tensor : tensors) {
    if (tensor.untested) names.push_back(tensor.name);
  }
  return names;
}

CheckReport check_run(const CheckOptions& options, const Log& log, Launcher& launcher) {
  CheckReport report;
  TrainOptions run_options = checked_run(options, report.cuts);
  const Config& config = run_options.config;
  const Config checked = config_of_step(config, run_options.dump.step);
  const ReferencePlan plan = plan_reference(checked, transformer_definition().table(checked));
  if (launcher.is_rank_zero()) require_reference_fits(checked, plan, available_memory());
  const double expected = plan.flops / reference_rate();
  log(fmt::format("computing the reference takes about {} and {} of memory", human_duration(expected),
                  human_bytes(static_cast<double>(plan.bytes(checked.training.seq_len)))));
  const bool makes_folder = !path_exists(run_options.dump.folder);
  const Run run = prepare_run(run_options, log, launcher);

  auto start = std::chrono::steady_clock::now();
  const auto look = [&](const StepResult& result) {
    report.run_seconds = seconds_since(start);
    report.run = run_text(checked, run.dump.step);
    report.bounds = bound_text(config.training.dtype);
    start = std::chrono::steady_clock::now();
    report.tensors = check_step(run, DumpReader(run.dump.folder), result, [&](std::int64_t done) {
      if (options.progress) options.progress(done, checked.training.global_batch_size);
    });
    report.reference_seconds = seconds_since(start);
  };
  dumped_step(
      run, [](const std::string&) {}, launcher, look);
  if (!launcher.is_rank_zero()) return report;
  if (options.keep || !report.right()) {
    report.dump = run.dump.folder;
  } else {
    remove_dump(run.dump.folder, makes_folder);
  }
  return report;
}

CheckReport check_run(const CheckOptions& options, const Log& log) {
  Launcher threads;
  return check_run(options, log, threads);
}

}  // namespace ringtrain
