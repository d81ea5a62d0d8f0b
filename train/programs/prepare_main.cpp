// prepare: text files or a synthetic recall corpus to a token file.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "data/prepare.h"
#include "data/recall.h"
#include "data/token_file_writer.h"
#include "framework/profile/hash_progress.h"
#include "framework/profile/progress.h"
#include "framework/system/signals.h"
#include "train/programs/command_line.h"
#include "train/programs/program.h"

namespace ringtrain {
namespace {

struct Arguments {
  std::vector<std::string> inputs;
  std::string output, synthetic;
  double validation_fraction = 0.1;
  std::int64_t seed = 1234;
  std::int64_t documents = 1000, length = 4096, pairs = 16;
};

/// Return what is wrong with the text of a seed, "" if nothing is. (CLI11 brings numbers that are too large or negative
/// silently into its type's range.)
std::string unfit_seed(const std::string& text) {
  std::int64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc{} && end == text.data() + text.size() && seed >= 0) return "";
  return fmt::format("{} must be a whole number from 0 to {}", text, INT64_MAX);
}

/// Declares the command line. Return false if only help was wanted.
bool parse(Arguments& arguments, int argc, char** argv) {
  CLI::App app(
      "Make a token file for train and evaluate.\n"
      "Text: every file becomes one document of byte tokens, ended by token 256; documents are shuffled, the last of "
      "them are kept for validation. Binary, empty and repeated files are left out and counted, and so are links that "
      "lead out of the inputs.\n"
      "Synthetic: a seeded corpus that can only be predicted by looking far back, with known losses.",
      "prepare");
  app.footer(
      "Examples:\n"
      "  prepare --input /usr/include --output headers.h5\n"
      "  prepare --input book.txt logs/ --output text.h5 --validation-fraction 0.05\n"
      "  prepare --synthetic recall --documents 500 --length 4096 --output recall.h5\n\n"
      "Exit codes: 0 done, 2 usage or an output that cannot be written, 3 an input that cannot be read, "
      "130 or 143 after SIGINT or SIGTERM. Whatever the end, but for 0 nothing is left.");
  app.get_formatter()->column_width(36);
  app.add_option("--input", arguments.inputs, "Files and folders of text; folders with all below them")
      ->type_name("PATH");
  app.add_option("--output", arguments.output, "The token file to make; it must not exist yet")
      ->type_name("FILE.h5")
      ->required();
  app.add_option("--validation-fraction", arguments.validation_fraction,
                 "Share of the documents that training never sees; above 0 it is at least one document")
      ->type_name("X")
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "Of the documents' order, and of all that is synthetic")
      ->check(unfit_seed)
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--synthetic", arguments.synthetic, "Make a corpus instead of reading one: recall")
      ->type_name("KIND")
      ->check(CLI::IsMember({"recall"}));
  const char* only = "recall: ";
  app.add_option("--documents", arguments.documents,
                 std::string(only) + "how many long documents; 16 short ones come with each for training")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--length", arguments.length, std::string(only) + "tokens of a long one, its end token included")
      ->type_name("L")
      ->capture_default_str();
  app.add_option("--pairs", arguments.pairs, std::string(only) + "pairs to be recalled over more than half of L")
      ->type_name("P")
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return false;

  if (arguments.output.empty()) fail(ExitCode::usage, "--output is empty; name the token file to make");
  if (!std::isfinite(arguments.validation_fraction)) {  // CLI11's range lets a NaN pass
    fail(ExitCode::usage, "--validation-fraction {}: must be a number from 0 to 0.99", arguments.validation_fraction);
  }
  if (arguments.inputs.empty() == arguments.synthetic.empty()) {
    fail(ExitCode::usage, "give either --input or --synthetic; see prepare --help");
  }
  for (const char* option : {"--documents", "--length", "--pairs"}) {
    if (arguments.synthetic.empty() && app.count(option) > 0) {
      fail(ExitCode::usage, "{} goes with --synthetic recall, not with --input", option);
    }
  }
  return true;
}

void print(const char* name, const std::string& value) {
  std::fputs(fmt::format("  {:<22} {}\n", name, value).c_str(), stdout);
}

std::string grouped(std::int64_t count) {
  const std::string digits = std::to_string(count);  // of a count: never negative
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

void print_summary(const std::string& path, const CorpusSummary& summary) {
  std::fputs((path + "\n").c_str(), stdout);
  print("documents", grouped(summary.documents));
  print("  for validation", grouped(summary.validation_documents));
  print("tokens", grouped(summary.tokens));
  print("  for validation", grouped(summary.validation_tokens));
  print("longest document", grouped(*std::ranges::max_element(summary.lengths)) + " tokens");
  for (std::int64_t length = 1024; length <= std::int64_t{1} << 40; length *= 4) {
    const auto count = std::ranges::count_if(summary.lengths, [&](std::int64_t one) { return one >= length; });
    if (count == 0) break;
    print(fmt::format("  of {}K and longer", length / 1024).c_str(), grouped(count) + " documents");
  }
  print("hash", summary.hash);
}

void prepare_text_corpus(const Arguments& arguments) {
  TokenFileWriter::check_output(arguments.output);
  std::unique_ptr<Progress> hashing;
  const SourceList sources =
      find_sources(arguments.inputs, [&](std::int64_t files, std::int64_t all, std::int64_t bytes) {
        if (!hashing) hashing = std::make_unique<Progress>("prepare", all);
        hashing->update(files, "hashing", static_cast<double>(bytes), "bytes");
      });
  hashing.reset();
  CorpusSummary summary;
  {
    Progress progress("prepare", static_cast<std::int64_t>(sources.sources.size()));
    summary = prepare_text(
        sources, {arguments.output, arguments.validation_fraction, static_cast<std::uint64_t>(arguments.seed)},
        [&](std::int64_t documents, std::int64_t tokens) {
          progress.update(documents, "writing", static_cast<double>(tokens));
        });
  }
  print_summary(arguments.output, summary);
  print("text", grouped(summary.bytes) + " bytes, sources' hash " + summary.sources_hash);
  print("left out",
        fmt::format("{} duplicates, {} binary, {} empty, {} unreadable, {} special files, {} links out of the inputs",
                    sources.duplicates, sources.binary, sources.empty, sources.unreadable, sources.special,
                    sources.links));
  if (summary.validation_documents == 0 && arguments.validation_fraction > 0) {
    print("log", "one document alone cannot be split: there is no validation part");
  }
}

void prepare_recall_corpus(const Arguments& arguments) {
  const RecallOptions options{
      arguments.documents,
      arguments.length,
      arguments.pairs,
      {arguments.output, arguments.validation_fraction, static_cast<std::uint64_t>(arguments.seed)}};
  const std::int64_t validation = validation_count(options.documents, arguments.validation_fraction);
  Progress progress("prepare", options.documents + recall_short * (options.documents - validation));
  const RecallSummary summary = prepare_recall(options, [&](std::int64_t documents, std::int64_t tokens) {
    progress.update(documents, "writing", static_cast<double>(tokens));
  });
  progress.finish();
  print_summary(arguments.output, summary);
  print("recall", fmt::format("{} keys a document, {} values a key, from {} to {} tokens back", options.pairs,
                              recall_values, summary.shortest_distance, summary.longest_distance));
  print("floor",
        fmt::format("{:.6f} nats a target of validation (perplexity {:.4f}) if the context covers the distance",
                    summary.floor_nll, std::exp(summary.floor_nll)));
  print("chance", fmt::format("{:.6f} nats (perplexity {:.4f}) if it does not", summary.chance_nll,
                              std::exp(summary.chance_nll)));
  print("training floor",
        fmt::format("{:.6f} nats: keys asked for the first time cannot be predicted", summary.training_floor_nll));
}

int prepare(int argc, char** argv) {
  Arguments arguments;
  if (!parse(arguments, argc, argv)) return 0;
  const SignalGuard guard;
  const HashProgress hashing("prepare");
  if (arguments.synthetic.empty()) {
    prepare_text_corpus(arguments);
  } else {
    prepare_recall_corpus(arguments);
  }
  return 0;
}

}  // namespace
}  // namespace ringtrain

int main(int argc, char** argv) {
  return ringtrain::run_program("prepare", [&] { return ringtrain::prepare(argc, argv); });
}
