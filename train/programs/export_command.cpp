// The command `export`: a model as a Hugging Face folder, which transformers and most other programs load.
#include <string>
#include <utility>

#include "framework/profile/hash_progress.h"
#include "train/models/adapters/adapted_model.h"
#include "train/programs/commands.h"
#include "train/programs/export_flags.h"
#include "train/programs/program.h"

using namespace ringtrain;

namespace {

int run_export(int argc, char** argv) {
  CommandLine app{
      "Writes a model as a Hugging Face folder: config.json, safetensors, and the tokenizer's files.\n"
      "Example: export --checkpoint runs/long_ctx --output my-model --dtype bfloat16",
      "export"};
  ExportFlags flags;
  std::string checkpoint, like;
  app.add_option("--checkpoint", checkpoint, "PATH",
                 "a run (its newest checkpoint), a checkpoint, or a Hugging Face or PEFT folder")
      ->required();
  flags.add_to(app);
  app.add_option("--like", like, "PATH",
                 "the folder whose tokenizer, generation_config.json and chat template go along (default: those of the "
                 "model, or of the one that the run began with)");
  bool merge = false;
  app.add_flag("--merge", merge,
               "adapters (lora) and their base as one model, without which adapters are a PEFT folder");
  std::string changes = "refused";
  app.add_option("--base-config-changes", changes, "refused|ok",
                 "of a PEFT folder: whether it may lose keys of the model in which the run differs from its base")
      ->check(one_of({"refused", "ok"}));
  if (!parse_command_line(app, argc, argv)) return 0;

  ExportOptions options = flags.options();
  options.like = like;
  options.base_config_changes = changes == "ok";
  check_export(checkpoint, options);
  const HashProgress hashing("export");
  ModelSource source = open_model(checkpoint);
  for (const std::string& line : source.logs) write_message(stderr, fmt::format("export: {}\n", line));
  if (merge) source = merged(std::move(source));
  flags.write("export", source, options);
  return 0;
}

}  // namespace

int ringtrain::export_command(int argc, char** argv) {
  return run_program("export", [&] { return run_export(argc, argv); });
}
