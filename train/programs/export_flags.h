// The flags of export, and the sentences that say what was written.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "framework/profile/progress.h"
#include "framework/standard_streams.h"
#include "framework/system/signals.h"
#include "train/models/export_model.h"
#include "train/programs/command_line.h"

namespace ringtrain {

/// The flags --output, --dtype and --max-shard-size, which must outlive the parsing.
struct ExportFlags {
  std::string output, dtype = "float32", shard = "50GB";

  void add_to(CommandLine& app) {
    app.add_option("--output", output, "DIR", "the folder to make; it must not exist")->required();
    app.add_option("--dtype", dtype, "float32|bfloat16|float16", "of the weights, rounded to nearest")
        ->check(one_of({"float32", "bfloat16", "float16"}));
    app.add_option("--max-shard-size", shard, "SIZE",
                   "the largest file of weights, e.g. 5GB; a larger tensor has its own file");
  }
  /// Returns what they say. Throws Error(usage) for a size that is none.
  ExportOptions options() const {
    const StoredType type = dtype == "float16"    ? StoredType::float16
                            : dtype == "bfloat16" ? StoredType::bfloat16
                                                  : StoredType::float32;
    return {.output = output, .dtype = type, .max_shard_bytes = parse_byte_count(shard, "--max-shard-size")};
  }
  /// Writes the folder, until a signal comes, and says what is in it.
  void write(const char* program, const ModelSource& source, const ExportOptions& options) const {
    const SignalGuard guard;
    announce_signals({.program = program, .first = "", .second = "ended at once; nothing was written"});
    const ExportSummary summary = export_model(source, options);
    print_result(fmt::format(
        "{}: {} parameters of {} as {}, {} in {} file{}; carried along: {}\n", options.output,
        human_count(static_cast<double>(summary.parameters)), source.path, dtype,
        human_bytes(static_cast<double>(summary.bytes)), summary.files.size(), summary.files.size() == 1 ? "" : "s",
        summary.carried.empty() ? "nothing" : fmt::format("{}", fmt::join(summary.carried, ", "))));
    if (!summary.lost.empty()) {
      write_message(stderr, fmt::format("{}: {} is not the run's model, for its base has other values: {}\n", program,
                                        options.output, summary.lost));
    }
    for (const std::string& sentence : source.no_end_tokens) {
      write_message(stderr, fmt::format("{}: {}, so it is not written\n", program, sentence));
    }
    if (!source.no_begin_token.empty()) {
      write_message(stderr, fmt::format("{}: {}, so it is not written\n", program, source.no_begin_token));
    }
  }
};

}  // namespace ringtrain
