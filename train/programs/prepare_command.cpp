// prepare: text files or a synthetic recall corpus to a token file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>

#include "data/preparation/prepare.h"
#include "data/preparation/recall.h"
#include "data/preparation/text_blocks.h"
#include "data/token_file_writer.h"
#include "framework/cores.h"
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

struct Arguments {
  std::vector<std::string> inputs;
  std::string output, synthetic;
  std::string tokenizer = "bytes", special_tokens = "text", document_start, document_end;
  JsonRules json;
  std::string chat = "template";
  bool skip_broken_lines = false;
  int threads = 0;
  double validation_fraction = 0.1;
  std::int64_t seed = 1234;
  std::int64_t documents = 1000, length = 4096, pairs = 16;
};

/// Declares the command line. Returns false if only help was wanted.
bool parse(Arguments& arguments, int argc, char** argv) {
  CommandLine app(
      "Make a token file for train and evaluate.\n"
      "Text: every file becomes a document, and of .jsonl files every line; .gz and .zst files are decompressed. "
      "Documents are shuffled, the last of them are kept for validation. Binary, empty and repeated files are left out "
      "and counted, and so are links that lead out of the inputs. Tokens are bytes, ended by token 256, or those of "
      "--tokenizer.\n"
      "Synthetic: a seeded corpus that can only be predicted by looking far back, with known losses.",
      "prepare");
  app.footer(
      "Examples:\n"
      "  prepare --input /usr/include --output headers.h5\n"
      "  prepare --input book.txt logs/ --output text.h5 --validation-fraction 0.05\n"
      "  prepare --input 'shards/*.jsonl.zst' --tokenizer models/SmolLM2-135M --output web.h5\n"
      "  prepare --synthetic recall --documents 500 --length 4096 --output recall.h5\n\n"
      "Exit codes: 0 done, 2 usage or an output that cannot be written, 3 an input that cannot be read, "
      "130 or 143 after SIGINT or SIGTERM. Whatever the end, but for 0 nothing is left.");
  app.add_option("--input", arguments.inputs, "PATH",
                 "Files and folders of text, or patterns; folders with all below them");
  app.add_option("--output", arguments.output, "FILE.h5", "The token file to make; it must not exist yet")->required();
  app.add_real("--validation-fraction", arguments.validation_fraction, RealRange::within(0, 0.99), "X",
               "Share of the documents that training never sees; above 0 it is at least one document")
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "S", "Of the documents' order, and of all that is synthetic")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--tokenizer", arguments.tokenizer, "PATH", "bytes, or a tokenizer.json, or a folder that holds one")
      ->capture_default_str();
  app.add_option("--special-tokens", arguments.special_tokens, "text|parse",
                 "What <|endoftext|> and its like are within texts")
      ->check(one_of({"text", "parse"}))
      ->capture_default_str();
  app.add_option("--document-start", arguments.document_start, "TOKEN",
                 "A special token before each document (default: none)");
  app.add_option("--document-end", arguments.document_end, "TOKEN",
                 "The special token after each document (default: the tokenizer's own)");
  auto* text_field =
      app.add_option("--text-field", arguments.json.text_field, "NAME", "JSONL: the field that holds a document's text")
          ->capture_default_str();
  app.add_option("--train-on", arguments.json.train_on, "ROLE",
                 "JSONL with conversations: the roles that are learned, the others weigh 0 (default: assistant)")
      ->delimiter(',');
  app.add_option("--chat", arguments.chat, "template|chatml|plain",
                 "JSONL with conversations: written as the tokenizer's chat template does, if it is known here; in "
                 "ChatML; as plain lines of role and content")
      ->check(one_of({"template", "chatml", "plain"}))
      ->capture_default_str();
  app.add_flag("--skip-broken-lines", arguments.skip_broken_lines, "JSONL: leave broken lines out, and count them");
  app.add_option("--threads", arguments.threads, "N", "That tokenize (default: one a core)")->check(within(1, 1024));
  app.add_option("--synthetic", arguments.synthetic, "recall", "Make a corpus instead of reading one")
      ->check(one_of({"recall"}));
  const char* only = "recall: ";
  app.add_option("--documents", arguments.documents, "N",
                 std::string(only) + "how many long documents; 16 short ones come with each for training")
      ->capture_default_str();
  app.add_tokens("--length", arguments.length, "L", std::string(only) + "tokens of a long one, its end token included")
      ->capture_default_str();
  app.add_option("--pairs", arguments.pairs, "P", std::string(only) + "pairs to be recalled over more than half of L")
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return false;

  arguments.json.text_field_named = text_field->count() > 0;
  if (arguments.output.empty()) fail(ExitCode::usage, "--output is empty; name the token file to make");
  if (arguments.inputs.empty() == arguments.synthetic.empty()) {
    fail(ExitCode::usage, "give either --input or --synthetic; see prepare --help");
  }
  for (const char* option : {"--documents", "--length", "--pairs"}) {
    if (arguments.synthetic.empty() && app.count(option) > 0) {
      fail(ExitCode::usage, "{} goes with --synthetic recall, not with --input", option);
    }
  }
  for (const char* option : {"--tokenizer", "--special-tokens", "--document-start", "--document-end", "--text-field",
                             "--train-on", "--chat", "--skip-broken-lines", "--threads"}) {
    if (!arguments.synthetic.empty() && app.count(option) > 0) {
      fail(ExitCode::usage, "{} goes with --input, not with --synthetic recall", option);
    }
  }
  return true;
}

void print(const char* name, const std::string& value) {
  print_result(fmt::format("  {:<22} {}\n", name, value));
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

/// Returns e.g. "512", "4K", "16M".
std::string short_count(std::int64_t count) {
  for (const char* unit : {"", "K", "M", "G"}) {
    if (count < 1024) return fmt::format("{}{}", count, unit);
    count /= 1024;
  }
  return fmt::format("{}T", count);
}

/// Prints how many documents there are of each length, and which share of all tokens they hold: a long context is
/// learned from long documents alone.
void print_lengths(const std::vector<std::int64_t>& lengths) {
  constexpr std::int64_t shortest = 256, step = 4;
  constexpr double widest = 24;
  const std::int64_t longest = *std::ranges::max_element(lengths);
  const auto all = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
  print("longest document", grouped(longest) + " tokens");
  bool seen = false;
  print("lengths", fmt::format("{:>13}  {:>6}", "documents", "tokens"));
  for (std::int64_t begin = 0, end = shortest; begin <= longest; begin = end, end *= step) {
    std::int64_t documents = 0, tokens = 0;
    for (const std::int64_t length : lengths) {
      if (length < begin || length >= end) continue;
      ++documents;
      tokens += length;
    }
    seen = seen || documents > 0;
    if (!seen) continue;  // shorter than all
    const double share = static_cast<double>(tokens) / all;
    const std::string name = begin == 0 ? fmt::format("  below {}", short_count(end))
                                        : fmt::format("  {} to {}", short_count(begin), short_count(end));
    const std::string bar(static_cast<std::size_t>(std::lround(share * widest)), '#');
    print(name.c_str(),
          fmt::format("{:>13}  {:>5.1f}%{}{}", grouped(documents), share * 100, bar.empty() ? "" : "  ", bar));
  }
}

void print_summary(const std::string& path, const CorpusSummary& summary) {
  print_result(path + "\n");
  print("documents", grouped(summary.documents));
  print("  for validation", grouped(summary.validation_documents));
  print("tokens", grouped(summary.tokens));
  print("  for validation", grouped(summary.validation_tokens));
  print_lengths(summary.lengths);
  print("hash", summary.hash);
}

/// Returns the id of a special token that the user named with an option.
std::int32_t special_token(const Tokenizer& tokenizer, const std::string& content, const char* option) {
  const std::optional<std::int32_t> id = tokenizer.find_special(content);
  if (!id) fail(ExitCode::usage, "{} {}: the tokenizer has no special token of this name", option, content);
  return *id;
}

TextOptions text_options(const Arguments& arguments, const Tokenizer& tokenizer) {
  TextOptions options;
  options.tokenizer = &tokenizer;
  options.special = arguments.special_tokens == "parse" ? SpecialTokens::parse : SpecialTokens::text;
  options.json = arguments.json;
  options.skip_broken_lines = arguments.skip_broken_lines;
  options.threads = arguments.threads > 0 ? arguments.threads : available_cores();
  if (!arguments.document_start.empty()) {
    options.document_start = special_token(tokenizer, arguments.document_start, "--document-start");
  }
  if (!arguments.document_end.empty()) {
    options.document_end = special_token(tokenizer, arguments.document_end, "--document-end");
  } else if (const auto end = tokenizer.end_of_document()) {
    options.document_end = *end;
  } else {
    fail(ExitCode::usage, "the tokenizer {} has no token that is known to end documents; name one with --document-end",
         arguments.tokenizer);
  }
  return options;
}

ChatChoice chat_choice(const std::string& name) {
  return name == "chatml" ? ChatChoice::chatml : name == "plain" ? ChatChoice::plain : ChatChoice::of_template;
}

void print_chats(const ChatFormat& chats, const CorpusSummary& summary) {
  if (summary.conversations > 0) {
    print("chats", fmt::format("{}, written in {}", grouped(summary.conversations), chats.name()));
  }
  if (summary.learned_tokens < summary.tokens) {
    print("learned",
          fmt::format("{} tokens, {:.1f}%; the others are context alone", grouped(summary.learned_tokens),
                      100 * static_cast<double>(summary.learned_tokens) / static_cast<double>(summary.tokens)));
  }
  if (summary.left_out_systems > 0) {
    print("log", fmt::format("the template writes a system message only before a last message of the user: {} left out",
                             grouped(summary.left_out_systems)));
  }
}

void print_left_out(const SourceList& sources, const CorpusSummary& summary) {
  print("left out",
        fmt::format("{} duplicates, {} binary, {} empty, {} unreadable, {} special files, {} links out of the inputs",
                    sources.duplicates, sources.binary + summary.binary, sources.empty, sources.unreadable,
                    sources.special, sources.links));
  if (std::ranges::any_of(sources.sources, [](const Source& source) { return is_json_lines(source.path); })) {
    print("lines left out", fmt::format("{} broken, {} without text", summary.broken_lines, summary.empty_lines));
  }
  if (summary.replaced > 0) {
    print("replaced", fmt::format("{} stretches of bytes that are no UTF-8, by U+FFFD", grouped(summary.replaced)));
  }
}

void prepare_text_corpus(const Arguments& arguments) {
  TokenFileWriter::check_output(arguments.output);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(arguments.tokenizer);
  const ChatFormat chats(*tokenizer, read_chat_template(arguments.tokenizer), chat_choice(arguments.chat));
  TextOptions options = text_options(arguments, *tokenizer);
  options.chats = &chats;
  std::optional<OutputFolder> kept;
  if (arguments.tokenizer != "bytes") {
    kept.emplace(tokenizer_beside(arguments.output), ExitCode::usage);
    EndIds ends{{}, {options.document_end}};
    if (const auto end = chats.end_of_answer()) ends.add({{}, {*end}});
    carry_tokenizer(arguments.tokenizer, kept->content(), ends, OwnGeneration::left, ExitCode::usage);
  }
  std::unique_ptr<Progress> hashing;
  const SourceList sources =
      find_sources(arguments.inputs, [&](std::int64_t files, std::int64_t all, std::int64_t bytes) {
        if (!hashing) hashing = std::make_unique<Progress>("prepare", all);
        hashing->update(files, "hashing", static_cast<double>(bytes), "bytes");
      });
  hashing.reset();
  CorpusSummary summary;
  {
    auto progress = std::make_unique<Progress>("prepare", sources.bytes);
    bool tokenizing = true;
    summary = prepare_text(
        sources, {arguments.output, arguments.validation_fraction, static_cast<std::uint64_t>(arguments.seed)}, options,
        [&](std::int64_t bytes) { progress->update(bytes, "tokenizing", static_cast<double>(bytes), "bytes"); },
        [&](std::int64_t tokens, std::int64_t all) {
          if (tokenizing) progress = std::make_unique<Progress>("prepare", all);
          tokenizing = false;
          progress->update(tokens, "writing", static_cast<double>(tokens));
        });
  }
  if (kept) kept->publish();
  print_summary(arguments.output, summary);
  print("tokenizer", fmt::format("{}, {} tokens, {} ends a document; hash {}", tokenizer->kind(),
                                 grouped(tokenizer->vocab_size()), options.document_end, tokenizer->identity()));
  print("text",
        fmt::format("{} bytes, {:.2f} a token, sources' hash {}", grouped(summary.bytes),
                    static_cast<double>(summary.bytes) / static_cast<double>(summary.tokens - summary.documents),
                    summary.sources_hash));
  print_chats(chats, summary);
  if (kept) print("  kept in", tokenizer_beside(arguments.output));
  print_left_out(sources, summary);
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

int run_prepare(int argc, char** argv) {
  Arguments arguments;
  if (!parse(arguments, argc, argv)) return 0;
  const SignalGuard guard;
  announce_signals({.program = "prepare", .first = "", .second = "ended at once; nothing was written"});
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

int ringtrain::prepare_command(int argc, char** argv) {
  return run_program("prepare", [&] { return run_prepare(argc, argv); });
}
