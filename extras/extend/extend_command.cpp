// The command `extend`: gives a model a longer context, and reports the results.
#include <algorithm>
#include <string>
#include <vector>

#include "extras/extend/extension.h"
#include "extras/planner/hardware.h"
#include "framework/profile/hash_progress.h"
#include "framework/storage/files.h"
#include "parallel/launch/launcher.h"
#include "train/models/hugging_face_config.h"
#include "train/programs/command_line.h"
#include "train/programs/commands.h"

namespace ringtrain {

namespace {

/// Returns the transformation of a path into an absolute one.
CLI::Validator to_whole_path() {
  const auto take = [](std::string& path) {
    if (!path.empty()) path = whole_path(path);
    return std::string(path.empty() ? "is empty; name a file or a folder" : "");
  };
  return {take, ""};
}

void add_options(CommandLine& app, ExtensionRequest& asked) {
  const auto texts = [&](const char* name, std::vector<std::string>& paths, const char* help) {
    return app.add_option(name, paths, "PATH", help)->allow_extra_args(name[0] != '-')->transform(to_whole_path());
  };
  app.add_option("MODEL", asked.model, "DIR", "a Hugging Face folder with a tokenizer")
      ->required()
      ->transform(to_whole_path());
  texts("TEXT", asked.texts, "files and folders of text to train on, or patterns")->required();
  app.add_option("--output", asked.output, "DIR", "the folder for all output");
  app.add_tokens("--to", asked.to, "N", "tokens of the new context, e.g. 16K")->required()->check(at_least(64));
  app.add_tokens("--from", asked.from, "N", "tokens that the model was trained for (default: read from its files)")
      ->check(at_least(1));
  app.add_real("--theta", asked.theta, real_above(0), "X", "a new rope_theta (default: the old one, with YaRN)");
  texts("--held-out", asked.held_out,
        "text to evaluate on, which is never trained on; may be repeated (default: a tenth of the documents of TEXT)");
  texts("--short", asked.short_texts, "short texts to mix in, to keep the quality at short contexts; may be repeated");
  app.add_real("--short-share", asked.short_share, real_within(0.001, 0.999), "X", "share of sequences from --short")
      ->capture_default_str();
  app.add_option("--ring", asked.ring, "N", "ranks that share each sequence, each with at least one core")
      ->check(within(1, 1024));
  app.add_option("--steps", asked.steps, "N", "steps at the new length")->check(at_least(1));
  app.add_option("--half-steps", asked.half_steps, "N", "steps at half the new length, run first")->check(at_least(1));
  app.add_real("--lr", asked.lr, real_above(0), "X", "the peak learning rate")->capture_default_str();
  app.add_option("--blocks", asked.blocks, "N", "windows of --to / 8 tokens to evaluate; intervals need 20 documents")
      ->check(at_least(1));
  app.add_option("--long-blocks", asked.long_blocks, "N",
                 "windows of --to / 4, --to / 2, and --to tokens to evaluate; they take most of the time")
      ->check(at_least(1));
  app.add_option("--needles", asked.needles, "N", "texts per length that hide 4 numbers (default: 2; 0 if --to < 2048)")
      ->check(within(0, 100));
  app.add_option("--hardware", asked.hardware, "NAME|FILE",
                 "the hardware for the predicted time, as in plan (default: this machine, measured in about a minute)");
  app.add_flag("--plan", asked.plan_only, "only print the predicted time and memory");
}

/// Returns the given options except those that change no result, and the path of the output.
OptionValues options_of(const CommandLine& app, const ExtensionRequest& asked) {
  OptionValues values;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->count() > 0) values[option->get_name()] = fmt::format("{}", fmt::join(option->results(), " "));
  }
  for (const char* const option : {"--plan", "--hardware"}) values.erase(option);
  values["--output"] = asked.output;
  return values;
}

void run_words(const std::vector<std::string>& words) {
  std::vector<std::string> texts = words;
  std::vector<char*> arguments(texts.size() + 1);  // the last one is null
  std::ranges::transform(texts, arguments.begin(), [](std::string& text) { return text.data(); });
  const int code = run_command(words[0].c_str(), static_cast<int>(words.size()), arguments.data());
  if (code == 0) return;
  fail(static_cast<ExitCode>(code), "{} did not finish (see its message above); run the same command line to continue",
       words[0]);
}

int run(int argc, char** argv) {
  CommandLine app{
      "Give a model a longer context, and show the result: predict time and memory, train the model on texts, first at "
      "half the new length, and evaluate it before and after. E.g.:\n"
      "  extend SmolLM2-135M books/ --to 16K --held-out bible.txt --short articles/\n"
      "To continue after an interruption, run it again with the same options; it stops if a model or a text has "
      "changed. In the folder of --output, index.html shows the results, and model is the extended model.",
      "extend"};
  ExtensionRequest asked;
  add_options(app, asked);
  if (!parse_command_line(app, argc, argv)) return 0;
  asked.output = whole_path(asked.output);
  if (app.count("--needles") == 0 && asked.to < 2048) asked.needles = 0;  // they may not fit into such windows
  if (Launcher::expects_processes()) {
    fail(ExitCode::usage, "start extend as one process: its ranks are threads, and --ring sets their number");
  }
  if (!is_hugging_face_folder(asked.model)) {
    fail(ExitCode::usage, "{}: is not a Hugging Face folder: it has no config.json (export makes one from a run){}",
         asked.model, hub_hint(asked.model));
  }
  if (!asked.hardware.empty()) asked.hardware = find_hardware(asked.hardware);
  const HashProgress hashing("extend");
  extend(asked, options_of(app, asked), run_words);
  return 0;
}

}  // namespace

int (*const extend_command)(int argc, char** argv) = run;

}  // namespace ringtrain
