// The command `export`: a model as a Hugging Face folder, which transformers and most other programs load.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>

#include "framework/counted.h"
#include "framework/profile/hash_progress.h"
#include "framework/profile/progress.h"
#include "framework/standard_streams.h"
#include "framework/system/signals.h"
#include "train/models/adapters/adapted_model.h"
#include "train/models/export_model.h"
#include "train/programs/command_line.h"
#include "train/programs/commands.h"

using namespace ringtrain;

namespace {

/// Writes the folder, unless a signal comes, and prints its contents.
void write(const ModelSource& source, const ExportOptions& options) {
  const SignalGuard guard;
  announce_signals({.program = "export", .first = "", .second = "ended immediately; nothing was written"});
  const ExportSummary summary = export_model(source, options);
  print_result(fmt::format("{}: {} parameters of {} as {}, {} in {}; copied: {}\n", options.output,
                           human_count(summary.parameters), source.path, torch_name(options.dtype),
                           human_bytes(summary.bytes), counted(std::ssize(summary.files), "file"),
                           summary.carried.empty() ? "nothing" : fmt::format("{}", fmt::join(summary.carried, ", "))));
  for (const std::string& sentence : source.unknown_ends)
    write_message(stderr, fmt::format("export: {}, so it is not written\n", sentence));
}

}  // namespace

int ringtrain::export_command(int argc, char** argv) {
  CommandLine app{
      "Write a model as a Hugging Face folder: config.json, safetensors, and the tokenizer's files.\n"
      "Example: export --checkpoint runs/long_ctx --output my-model --dtype bfloat16",
      "export"};
  std::string checkpoint;
  ExportOptions options;
  app.add_option("--checkpoint", checkpoint, "PATH",
                 "a run (its newest checkpoint), a checkpoint, or a Hugging Face or PEFT folder")
      ->required();
  app.add_option("--output", options.output, "DIR", "the folder to make; it must not exist")->required();
  app.add_choice<StoredType>(
         "--dtype", options.dtype,
         {{"float32", StoredType::float32}, {"bfloat16", StoredType::bfloat16}, {"float16", StoredType::float16}},
         "data type of the weights, rounded to nearest")
      ->default_str("float32");
  app.add_bytes("--max-shard-size", options.max_shard_bytes, "SIZE",
                "the largest file of weights, e.g. 5GB; a larger tensor has its own file")
      ->default_str("50GB");
  bool merge = false;
  app.add_flag("--merge", merge,
               "merge adapters (lora) and their base into one model; without this flag, adapters become a PEFT folder");
  if (!parse_command_line(app, argc, argv)) return 0;

  check_export(checkpoint, options);
  const HashProgress hashing("export");
  ModelSource source = open_model(checkpoint);
  for (const std::string& line : source.logs) write_message(stderr, fmt::format("export: {}\n", line));
  if (merge) source = merged(std::move(source));
  write(source, options);
  return 0;
}
