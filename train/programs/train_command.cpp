// The command `train`: command line in, exit code out. Everything else is in train/trainer.h.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/config/config_reference.h"
#include "framework/config/read_config.h"
#include "framework/profile/hash_progress.h"
#include "framework/standard_streams.h"
#include "framework/storage/files.h"
#include "layers/check_model.h"
#include "train/models/adapters/adapted_model.h"
#include "train/programs/command_line.h"
#include "train/programs/commands.h"
#include "train/programs/program.h"
#include "train/programs/version.h"
#include "train/run/checkpoint_space.h"
#include "train/run/config_lookup.h"
#include "train/trace_file.h"
#include "train/trainer.h"

using namespace ringtrain;

namespace {

/// Returns the folder of the run to which a path belongs: the path itself, or that of a checkpoint's run; "" if there
/// is none.
std::string run_folder_of(const std::string& path) {
  if (path.empty()) return "";
  for (const std::string& folder : {path, parent_directory(parent_directory(path))}) {
    if (is_directory(folder + "/checkpoints") && path_exists(RunFolder(folder).config_path())) return folder;
  }
  return "";
}

/// The contents of the command line.
struct TrainFlags {
  TrainOptions options;
  std::string config_path, verify_path;
  std::vector<std::string> settings;
  bool help_config = false;
};

/// Adds the flags that say what to train, from where, and up to which step.
void add_run_flags(CommandLine& app, TrainFlags& flags) {
  app.add_option("--config", flags.config_path, "FILE",
                 "the YAML config of the run; with --resume, the run's config is used if none is given");
  app.add_option("--output", flags.options.output, "DIR", "the run's folder (default: runs/<config's name>)");
  add_settings(app, flags.settings);
  app.add_option("--resume", flags.options.start.resume_path, "[PATH]",
                 "continue from a checkpoint, or from the newest intact one of a run's folder; without "
                 "a path, from that of --output, or start a new run if there is none")
      ->expected(0, 1);
  app.add_option("--init-from", flags.options.start.init_from, "PATH",
                 "start a new run with the sizes and weights of a run, a checkpoint, or a Hugging Face folder (like "
                 "model.from); the optimizer, data, length, and rope scaling are those of the config");
  app.add_option("--stop-after", flags.options.stop_after, "N",
                 "save and end after step N; the learning rate schedule does not change")
      ->check(at_least(1));
}

/// Adds the flags of a run's additional outputs.
void add_recording_flags(CommandLine& app, TrainFlags& flags) {
  TraceRequest& trace = flags.options.trace;
  auto* const file = app.add_option("--trace", trace.path, "FILE.json",
                                    "write a timeline of every rank to FILE (Chrome trace format: open it in "
                                    "ui.perfetto.dev); replaces an earlier one");
  const auto read_steps = [&trace](const std::string& text) { read_trace_steps(text, trace); };
  app.add_option_function<std::string>("--trace-steps", read_steps, "with --trace: only steps A to B")
      ->type_name("A:B")
      ->needs(file);
  auto* const step = app.add_option("--dump-step", flags.options.dump.step, "N",
                                    "write every named tensor of step N into --dump: inputs, activations, "
                                    "gradients; see check --compare")
                         ->check(at_least(1));
  auto* const dump = app.add_option("--dump", flags.options.dump.folder, "DIR",
                                    "the folder for --dump-step; an earlier dump in it is replaced");
  dump->needs(step);
  step->needs(dump);
}

/// Adds the flags that do something other than a run.
void add_other_flags(CommandLine& app, TrainFlags& flags) {
  app.add_flag("--dry-run", flags.options.dry_run,
               "check everything; print whether it fits, the plan, and the config; write nothing");
  app.add_option("--verify-checkpoint", flags.verify_path, "PATH",
                 "check every hash of a checkpoint, or of all checkpoints of a run's folder, and nothing "
                 "else; exits with 4 if one is damaged, or if the base of its adapters is missing or has changed");
}

void verify(const TrainFlags& flags) {
  std::set<std::string> found;  // bases, which all checkpoints of a run share
  verify_checkpoints(
      flags.verify_path, [](const std::string& line) { print_result(line + "\n"); },
      [&](const Checkpoint& checkpoint) {
        const auto& base = checkpoint.manifest.base;
        if (!base || found.contains(base->hash)) return;
        open_base(*base, checkpoint.path);
        found.insert(base->hash);
      });
}

/// Completes the options from the config and the flags.
void read_options(TrainFlags& flags, const Log& log) {
  TrainOptions& options = flags.options;
  if (flags.config_path.empty() && options.start.resume) {
    const std::string& resumed = options.start.resume_path;
    if (!resumed.empty() && !path_exists(resumed)) fail(ExitCode::usage, "--resume: {} does not exist", resumed);
    const std::string run_folder = run_folder_of(resumed.empty() ? options.output : resumed);
    if (!run_folder.empty()) flags.config_path = RunFolder(run_folder).config_path();
    if (options.output.empty()) options.output = run_folder;
  }
  if (flags.config_path.empty()) {
    const std::string& resumed = options.start.resume_path;
    if (resumed.empty()) fail(ExitCode::usage, "--config is required, except with --resume RUN");
    fail(ExitCode::usage, "--resume: {} is neither a run nor a checkpoint in a run, so --config is required", resumed);
  }
  options.trace.inputs = {flags.config_path};
  options.config = read_config(flags.config_path, flags.settings, use_of(options), check_model,
                               config_lookup(log, options.start.init_from));
  if (options.output.empty()) options.output = "runs/" + options.config.name;
  options.build = version_text().substr(0, version_text().find('\n'));
}

void dry_run(const Run& run, const Log& log, const Launcher& launcher) {
  if (launcher.is_rank_zero()) print_result(dry_run_report(run, launcher));
  flush_results();
  check_plan_memory(run, launcher);
  if (launcher.is_rank_zero()) check_space(checkpoint_space(run), log);
}

/// Returns the flags that say at which lengths `evaluate` can score a file: whole documents where none is longer.
std::string scored_lengths(const TokenFile& file, std::int64_t longest) {
  const auto offsets = file.document_offsets();
  const auto first = static_cast<std::size_t>(file.first_validation_document());
  for (std::size_t d = first + 1 < offsets.size() ? first : 0; longest >= 8 && d + 1 < offsets.size(); ++d) {
    if (offsets[d + 1] - offsets[d] > longest) return fmt::format("{},{},{}", longest / 4, longest / 2, longest);
  }
  return fmt::format("{} --stride {}", longest, longest);
}

/// Returns what a user can do after a finished run, as commands.
std::string next_commands(const Run& run) {
  const std::string at = fmt::format("--checkpoint {}", run.folder.path()), prefix = command_prefix();
  const TokenFile& validation = run.corpus.validation();
  std::string text = fmt::format("{} is done; next:", run.folder.path());
  const auto add = [&](const std::string& words) { text += fmt::format("\n  {}{}", prefix, words); };
  add(fmt::format("evaluate {} --data {} --context-lengths {}", at, validation.path(),
                  scored_lengths(validation, run.at(run.last_step).training.seq_len)));
  // The prompt has at most 16 tokens, and one before it.
  if (run.at(run.last_step).training.seq_len > 16 &&
      path_exists(ModelSource::tokenizer_folder(run.folder.path()) + "/tokenizer.json")) {
    add(fmt::format("generate {} --prompt 'Once upon a time'", at));
  }
  add(fmt::format("export {} --output {}-model", at, run.folder.path()));
  return text;
}

}  // namespace

int ringtrain::train_command(int argc, char** argv, Launcher& launcher) {
  CommandLine app{
      "Train a long-context transformer on a mesh of data x sequence ranks: threads of this process, or processes of "
      "an MPI launcher (scripts/launch -n N -- train ...).\n"
      "A run's folder holds config.yaml, metrics.jsonl (one object per line), and checkpoints/.\n"
      "SIGINT or SIGTERM: finish the step, save, and end; a second signal ends the run at once without saving. SIGHUP, "
      "SIGUSR1, SIGXCPU, and SIGPWR also save and end, however often they are sent.",
      "train"};
  TrainFlags flags;
  app.add_flag("--help-config", flags.help_config, "print all keys of a config with their defaults and meanings");
  add_run_flags(app, flags);
  add_recording_flags(app, flags);
  add_other_flags(app, flags);
  if (!parse_command_line(app, argc, argv, launcher.is_rank_zero())) return 0;
  if (flags.help_config) {
    if (launcher.is_rank_zero()) print_result(config_reference());
    return 0;
  }
  std::optional<HashProgress> hashing;  // for data and checkpoints, before the run begins
  if (launcher.is_rank_zero()) hashing.emplace("train");
  if (!flags.verify_path.empty()) {
    if (launcher.is_rank_zero()) verify(flags);
    return 0;
  }
  const Log log = [&](const std::string& line) {
    if (launcher.is_rank_zero()) write_message(stderr, fmt::format("train: {}\n", line));
  };
  flags.options.start.resume = app.count("--resume") > 0;
  read_options(flags, log);
  const Run run = prepare_run(flags.options, log, launcher);
  hashing.reset();
  if (flags.options.dry_run) {
    dry_run(run, log, launcher);
    return 0;
  }
  const ExitCode code = train(run, log, launcher);
  if (code == ExitCode::done && run.last_step < run.config.training.steps) {
    log(fmt::format("stopped after step {} of {}; --resume continues", run.last_step, run.config.training.steps));
  }
  const bool saved = run.last_step == run.config.training.steps && run.config.checkpoint.interval >= 0;
  if (code == ExitCode::done && saved && run.start.step < run.last_step) log(next_commands(run));
  return static_cast<int>(code);
}
