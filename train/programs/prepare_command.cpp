// The command `prepare`: makes a token file from text files, or from a synthetic recall corpus.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>

#include "data/preparation/prepare.h"
#include "data/preparation/recall.h"
#include "data/token_file_writer.h"
#include "framework/cores.h"
#include "framework/counted.h"
#include "framework/output/output_folder.h"
#include "framework/profile/hash_progress.h"
#include "framework/profile/progress.h"
#include "framework/standard_streams.h"
#include "framework/system/signals.h"
#include "train/models/carried_tokenizer.h"
#include "train/models/model_tokenizer.h"
#include "train/programs/command_line.h"
#include "train/programs/commands.h"
#include "train/programs/program.h"

namespace ringtrain {
namespace {

struct PrepareFlags {
  std::vector<std::string> inputs;
  std::string synthetic;
  PrepareOptions file;
  std::int64_t seed = 1234;
  std::string tokenizer = "bytes", document_start, document_end;
  TextOptions text;
  RecallOptions recall{.documents = 1000, .length = 4096, .pairs = 16, .prepare = {}};
};

void add_file_flags(CommandLine& app, PrepareFlags& flags) {
  app.add_option("--input", flags.inputs, "PATH",
                 "files and folders of text, or patterns; folders are read with all their subfolders")
      ->expected(1, 1 << 20)
      ->allow_extra_args(false);  // CLI11 would split "[ab]*.c" like a list
  app.add_option("--output", flags.file.output, "FILE.h5", "the token file to make; it must not exist yet")->required();
  app.add_real("--validation-fraction", flags.file.validation_fraction, real_within(0, 0.99), "X",
               "share of the documents that training never sees; above 0 it is at least one document")
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "S", "seed that shuffles the documents and generates synthetic corpora")
      ->check(at_least(0));
}

void add_text_flags(CommandLine& app, PrepareFlags& flags) {
  app.add_option("--tokenizer", flags.tokenizer, "PATH", "bytes, or a tokenizer.json, or a folder that holds one");
  app.add_choice<SpecialTokens>("--special-tokens", flags.text.special,
                                {{"text", SpecialTokens::text}, {"parse", SpecialTokens::parse}},
                                "how to read <|endoftext|> and similar names in texts")
      ->default_str("text");
  app.add_option(
      "--document-start", flags.document_start, "TOKEN",
      "a special token before each document, or none (default: what the tokenizer itself puts before a text)");
  app.add_option("--document-end", flags.document_end, "TOKEN",
                 "the special token after each document (default: what the tokenizer itself puts there, or else the "
                 "known end token of this tokenizer)");
  app.add_option("--text-field", flags.text.json.text_field, "NAME", "JSONL: the field that holds a document's text");
  app.add_flag("--skip-broken-lines", flags.text.skip_broken_lines, "JSONL: leave broken lines out, and count them");
  for (const char* flag : {"--chat", "--train-on"}) {
    app.add_refused(
        flag,
        "was removed: make a token file of conversations with `python3 -m ringtrain_data convert` (docs/datasets.md)");
  }
  flags.text.threads = 0;  // all cores
  app.add_option("--threads", flags.text.threads, "N", "threads that tokenize (default: one per core)")
      ->check(within(1, 1024));
}

void add_recall_flags(CommandLine& app, PrepareFlags& flags) {
  app.add_option("--synthetic", flags.synthetic, "recall", "make a corpus instead of reading one")
      ->check(one_of({"recall"}));
  app.add_option("--documents", flags.recall.documents, "N",
                 "recall: number of long documents; each adds 16 short ones for training");
  app.add_tokens("--length", flags.recall.length, "L", "recall: tokens in a long document, including its end token");
  app.add_option("--pairs", flags.recall.pairs, "P", "recall: pairs to recall from more than L/2 tokens back");
}

/// Declares the command line. Returns false if only help was requested.
bool parse(PrepareFlags& flags, int argc, char** argv) {
  CommandLine app(
      "Make a token file for train and evaluate.\n"
      "Text: each file becomes one document; in .jsonl files, each line does. .gz and .zst files are decompressed. For "
      "datasets in other formats, prepare stops and prints the command that reads them. Documents are shuffled, and "
      "the last ones are kept for validation. Binary, empty, and repeated files and symlinks that point outside the "
      "inputs are skipped and counted. Tokens are bytes, ended by token 256, or those of --tokenizer.\n"
      "Synthetic: a seeded corpus that can only be predicted by looking far back, with known losses.",
      "prepare");
  app.footer(
      "Examples:\n"
      "  prepare --input /usr/include --output headers.h5\n"
      "  prepare --input book.txt logs/ --output text.h5 --validation-fraction 0.05\n"
      "  prepare --input 'shards/*.jsonl.zst' --tokenizer models/SmolLM2-135M --output web.h5\n"
      "  prepare --synthetic recall --documents 500 --length 4096 --output recall.h5\n\n"
      "Exit codes: 0 done, 2 usage or an output that cannot be written, 3 an input that cannot be read, 130 or 143 "
      "after SIGINT or SIGTERM. Unless the exit code is 0, no output is left.");
  add_file_flags(app, flags);
  add_text_flags(app, flags);
  add_recall_flags(app, flags);
  CLI::Option *const input = app.get_option("--input"), *const synthetic = app.get_option("--synthetic");
  for (const char* of_recall : {"--documents", "--length", "--pairs"}) app.get_option(of_recall)->needs(synthetic);
  for (const char* of_text : {"--tokenizer", "--special-tokens", "--document-start", "--document-end", "--text-field",
                              "--skip-broken-lines", "--threads"}) {
    app.get_option(of_text)->needs(input);
  }
  if (!parse_command_line(app, argc, argv)) return false;
  if (flags.inputs.empty() == flags.synthetic.empty()) {
    fail(ExitCode::usage, "give either --input or --synthetic; see prepare --help");
  }
  flags.file.seed = static_cast<std::uint64_t>(flags.seed);
  flags.recall.prepare = flags.file;
  if (flags.text.threads == 0) flags.text.threads = available_cores();
  flags.text.json.text_field_named = app.count("--text-field") > 0;
  return true;
}

/// Prints a line of the summary.
template <class... Values>
void print(std::string_view name, fmt::format_string<Values...> format, Values&&... values) {
  print_result(fmt::format("  {:<22} {}\n", name, fmt::format(format, std::forward<Values>(values)...)));
}

/// Returns, for example, "1,234,567".
std::string grouped(std::int64_t count) {
  std::string text = std::to_string(count);  // a count is never negative
  for (std::int64_t i = std::ssize(text) - 3; i > 0; i -= 3) text.insert(static_cast<std::size_t>(i), ",");
  return text;
}

/// Returns, for example, "512", "4K", "16M".
std::string short_count(std::int64_t count) {
  for (const char* unit : {"", "K", "M", "G"}) {
    if (count < 1024) return fmt::format("{}{}", count, unit);
    count /= 1024;
  }
  return fmt::format("{}T", count);
}

/// Prints how many documents there are of each length, and their share of all tokens: only long documents can teach a
/// long context.
void print_lengths(const std::vector<std::int64_t>& lengths) {
  constexpr std::int64_t shortest = 256, step = 4;
  constexpr double widest = 24;
  const std::int64_t longest = *std::ranges::max_element(lengths);
  const auto all = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
  print("longest document", "{}", counted(grouped(longest), "token"));
  bool seen = false;
  print("lengths", "{:>13}  {:>6}", "documents", "tokens");
  for (std::int64_t begin = 0, end = shortest; begin <= longest; begin = end, end *= step) {
    std::int64_t documents = 0, tokens = 0;
    for (const std::int64_t length : lengths) {
      if (length < begin || length >= end) continue;
      ++documents;
      tokens += length;
    }
    seen = seen || documents > 0;
    if (!seen) continue;  // no document is this short
    const double share = static_cast<double>(tokens) / all;
    const std::string name = begin == 0 ? fmt::format("  below {}", short_count(end))
                                        : fmt::format("  {} to {}", short_count(begin), short_count(end));
    const std::string bar(static_cast<std::size_t>(std::lround(share * widest)), '#');
    print(name, "{:>13}  {:>5.1f}%{}{}", grouped(documents), share * 100, bar.empty() ? "" : "  ", bar);
  }
}

void print_summary(const std::string& path, const CorpusSummary& summary) {
  print_result(path + "\n");
  print("documents", "{}", grouped(summary.documents));
  print("  for validation", "{}", grouped(summary.validation_documents));
  print("tokens", "{}", grouped(summary.tokens));
  print("  for validation", "{}", grouped(summary.validation_tokens));
  print_lengths(summary.lengths);
  print("hash", "{}", summary.hash);
}

/// Returns the id of a special token that the user named with an option.
std::int32_t special_token(const Tokenizer& tokenizer, const std::string& content, const char* option) {
  const std::optional<std::int32_t> id = tokenizer.find_special(content);
  if (!id) fail(ExitCode::usage, "{} {}: the tokenizer has no special token of this name", option, content);
  return *id;
}

/// Sets the tokenizer, and the tokens that begin and end documents.
void set_tokenizer(PrepareFlags& flags, const Tokenizer& tokenizer) {
  TextOptions& options = flags.text;
  options.tokenizer = &tokenizer;
  if (flags.document_start.empty()) {
    options.document_start = tokenizer.begin_of_text();
  } else if (flags.document_start != "none") {
    options.document_start = special_token(tokenizer, flags.document_start, "--document-start");
  }
  if (!flags.document_end.empty()) {
    options.document_end = special_token(tokenizer, flags.document_end, "--document-end");
  } else if (const auto end = tokenizer.end_of_text() ? tokenizer.end_of_text() : tokenizer.end_of_document()) {
    options.document_end = *end;
  } else {
    fail(ExitCode::usage, "the tokenizer {} has no token that is known to end documents; name one with --document-end",
         flags.tokenizer);
  }
}

/// Prints whether documents begin as the tokenizer begins a text.
void print_start(const Tokenizer& tokenizer, const TextOptions& options) {
  const std::optional<std::int32_t> begin_token = tokenizer.begin_of_text();
  if (!begin_token) return;
  const std::string name = fmt::format("{} ({})", tokenizer.token_text(*begin_token), *begin_token);
  if (options.document_start == begin_token) {
    print("documents begin", "with {}, which the tokenizer puts before a text; --document-start none leaves it out",
          name);
  } else {
    print("documents begin", "without {}, which the tokenizer puts before a text", name);
  }
}

void print_learned(const CorpusSummary& summary) {
  if (summary.learned_tokens == summary.tokens) return;
  print("trained on", "{}, {:.1f}%; the others are context", counted(grouped(summary.learned_tokens), "token"),
        100.0 * summary.learned_tokens / summary.tokens);
}

void print_left_out(const SourceList& sources, const CorpusSummary& summary) {
  print("left out", "{}, {} binary, {} empty, {} unreadable, {}, {} to outside the inputs",
        counted(sources.duplicates, "duplicate"), sources.binary + summary.binary, sources.empty, sources.unreadable,
        counted(sources.special, "special file"), counted(sources.links, "link"));
  if (sources.cards > 0) {
    print("not data", "{} in data folders: README*, LICENSE*, *.md, .*", counted(grouped(sources.cards), "file"));
  }
  if (sources.data_as_text > 0) {
    print("read as text",
          "{} such as .json or .csv, because the folder has other files, too; name such a file to read it as data",
          counted(grouped(sources.data_as_text), "file"));
  }
  if (std::ranges::any_of(sources.sources, &Source::lines)) {
    print("lines left out", "{} broken, {} without text", summary.broken_lines, summary.empty_lines);
  }
  if (summary.replaced > 0) {
    print("replaced", "{} with U+FFFD (not UTF-8)", counted(grouped(summary.replaced), "sequence"));
  }
}

SourceList hash_sources(const std::vector<std::string>& inputs) {
  std::optional<Progress> progress;
  return find_sources(inputs, [&](std::int64_t files, std::int64_t all, std::int64_t bytes) {
    if (!progress) progress.emplace("prepare", all);
    progress->update(files, "hashing", static_cast<double>(bytes), "bytes");
  });
}

CorpusSummary write_tokens(const SourceList& sources, const PrepareFlags& flags) {
  Progress reading("prepare", sources.bytes);
  std::optional<Progress> writing;
  return prepare_text(
      sources, flags.file, flags.text,
      [&](std::int64_t bytes) { reading.update(bytes, "tokenizing", static_cast<double>(bytes), "bytes"); },
      [&](std::int64_t tokens, std::int64_t all) {
        reading.finish();
        if (!writing) writing.emplace("prepare", all);
        writing->update(tokens, "writing", static_cast<double>(tokens));
      });
}

void prepare_text_corpus(PrepareFlags& flags) {
  TokenFileWriter::check_output(flags.file.output);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(flags.tokenizer);
  set_tokenizer(flags, *tokenizer);
  std::optional<OutputFolder> kept;
  if (flags.tokenizer != "bytes") {
    kept.emplace(tokenizer_of_token_file(flags.file.output), ExitCode::usage);
    const EndIds ends{{}, {flags.text.document_end}};
    carry_tokenizer(flags.tokenizer, kept->content(), ends, OwnGeneration::left, ExitCode::usage);
  }
  const SourceList sources = hash_sources(flags.inputs);
  const CorpusSummary summary = write_tokens(sources, flags);
  if (kept) kept->publish();
  print_summary(flags.file.output, summary);
  print("tokenizer", "{}, {} tokens, token {} ends a document; hash {}", tokenizer->kind(),
        grouped(tokenizer->vocab_size()), flags.text.document_end, tokenizer->identity());
  if (kept) print("  copied to", "{}", tokenizer_of_token_file(flags.file.output));
  print_start(*tokenizer, flags.text);
  print("text", "{}, {:.2f} per token; hash of the sources {}", counted(grouped(summary.bytes), "byte"),
        1.0 * summary.bytes / (summary.tokens - summary.documents), summary.sources_hash);
  print_learned(summary);
  print_left_out(sources, summary);
  if (summary.validation_documents == 0 && flags.file.validation_fraction > 0) {
    print("note", "there is no validation part, because a single document cannot be split");
  }
}

void prepare_recall_corpus(const RecallOptions& options) {
  std::optional<Progress> progress;
  const RecallSummary summary = prepare_recall(options, [&](std::int64_t tokens, std::int64_t all) {
    if (!progress) progress.emplace("prepare", all);
    progress->update(tokens, "writing", static_cast<double>(tokens));
  });
  progress.reset();
  print_summary(options.prepare.output, summary);
  print("recall", "{} per document, {} values per key, {} to {} tokens back", counted(options.pairs, "key"),
        recall_values, summary.shortest_distance, summary.longest_distance);
  print("floor", "{:.6f} nats per validation target (perplexity {:.4f}) if the context covers the distance",
        summary.floor_nll, std::exp(summary.floor_nll));
  print("chance", "{:.6f} nats (perplexity {:.4f}) if it does not", summary.chance_nll, std::exp(summary.chance_nll));
  print("training floor", "{:.6f} nats, because the first value of a key cannot be predicted",
        summary.training_floor_nll);
}

}  // namespace

int prepare_command(int argc, char** argv) {
  PrepareFlags flags;
  if (!parse(flags, argc, argv)) return 0;
  const SignalGuard guard;
  announce_signals({.program = "prepare", .first = "", .second = "ended immediately; nothing was written"});
  const HashProgress hashing("prepare");
  if (flags.synthetic.empty()) {
    prepare_text_corpus(flags);
  } else {
    prepare_recall_corpus(flags.recall);
  }
  print("next", "{}train --config CONFIG.yaml --set data.train={}", command_prefix(), flags.file.output);
  return 0;
}

}  // namespace ringtrain
