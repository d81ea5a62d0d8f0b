// The command `export`: a model as a Hugging Face folder, which transformers and most other programs load.
#include <fmt/ranges.h>

#include <string>
#include <utility>

#include "framework/profile/hash_progress.h"
#include "framework/profile/progress.h"
#include "framework/standard_streams.h"
#include "framework/system/signals.h"
#include "train/models/adapters/adapted_model.h"
#include "train/models/export_model.h"
#include "train/programs/command_line.h"
#include "train/programs/commands.h"
#include "train/programs/program.h"

using namespace ringtrain;

namespace {

StoredType dtype_of(const std::string& name) {
  return name == "float16" ? StoredType::float16 : name == "bfloat16" ? StoredType::bfloat16 : StoredType::float32;
}

int run_export(int argc, char** argv) {
  CommandLine app{
      "Writes a model as a Hugging Face folder: config.json, safetensors, and the tokenizer's files.\n"
      "Example: export --checkpoint runs/long_ctx --output my-model --dtype bfloat16",
      "export"};
  ExportOptions options;
  std::string checkpoint, dtype = "float32", shard = "50GB";
  app.add_option("--checkpoint", checkpoint, "PATH",
                 "a run (its newest checkpoint), a checkpoint, a Hugging Face or PEFT folder, or a GGUF file")
      ->required();
  app.add_option("--output", options.output, "DIR", "the folder to make; it must not exist")->required();
  app.add_option("--dtype", dtype, "float32|bfloat16|float16", "of the weights, rounded to nearest")
      ->capture_default_str()
      ->check(one_of({"float32", "bfloat16", "float16"}));
  app.add_option("--max-shard-size", shard, "SIZE",
                 "the largest file of weights, e.g. 5GB; a larger tensor has its own file")
      ->capture_default_str();
  app.add_option("--like", options.like, "PATH",
                 "the folder or GGUF file whose tokenizer, generation_config.json and chat template go along (default: "
                 "those of "
                 "the model, or of the one that the run began with)");
  bool merge = false;
  app.add_flag("--merge", merge,
               "adapters (lora) and their base as one model, without which adapters are a PEFT folder");
  std::string changes = "refused";
  app.add_option("--base-config-changes", changes, "refused|ok",
                 "of a PEFT folder: whether it may lose keys of the model in which the run differs from its base")
      ->capture_default_str()
      ->check(one_of({"refused", "ok"}));
  if (!parse_command_line(app, argc, argv)) return 0;

  options.dtype = dtype_of(dtype);
  options.base_config_changes = changes == "ok";
  options.max_shard_bytes = parse_byte_count(shard, "--max-shard-size");
  check_export(checkpoint, options);
  const HashProgress hashing("export");
  ModelSource source = open_model(checkpoint);
  for (const std::string& line : source.logs) write_message(stderr, fmt::format("export: {}\n", line));
  if (merge) source = merged(std::move(source));
  const SignalGuard guard;
  announce_signals({.program = "export", .first = "", .second = "ended at once; nothing was written"});
  const ExportSummary summary = export_model(source, options);
  const CarriedTokenizer& carried = summary.carried;
  print_result(fmt::format("{}: {} parameters of {} as {}, {} in {} file{}; carried along: {}\n", options.output,
                           human_count(static_cast<double>(summary.parameters)), source.path, dtype,
                           human_bytes(static_cast<double>(summary.bytes)), summary.files.size(),
                           summary.files.size() == 1 ? "" : "s",
                           carried.files.empty() ? "nothing" : fmt::format("{}", fmt::join(carried.files, ", "))));
  if (!summary.lost.empty()) {
    write_message(stderr, fmt::format("export: {} is not the run's model, for its base has other values: {}\n",
                                      options.output, summary.lost));
  }
  for (const std::string& sentence : source.no_end_tokens) {
    write_message(stderr, fmt::format("export: {}, so it is not written\n", sentence));
  }
  if (!source.no_begin_token.empty()) {
    write_message(stderr, fmt::format("export: {}, so it is not written\n", source.no_begin_token));
  }
  if (carried.remark) write_message(stderr, fmt::format("export: {}\n", *carried.remark));
  return 0;
}

}  // namespace

int ringtrain::export_command(int argc, char** argv) {
  return run_program("export", [&] { return run_export(argc, argv); });
}
