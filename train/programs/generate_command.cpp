// The command `generate`: text that a model writes after a prompt.
#include <algorithm>
#include <cstdio>
#include <string>

#include "framework/standard_streams.h"
#include "framework/storage/files.h"
#include "train/generation/checkpoint_generation.h"
#include "train/programs/command_line.h"
#include "train/programs/commands.h"

using namespace ringtrain;

namespace {

/// most: the largest number of bytes in a prompt for this model.
std::string read_standard_input(std::int64_t most) {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t bytes = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, bytes);
    if (std::ssize(text) > most) {
      fail(ExitCode::usage,
           "-: the standard input has more than {} bytes, but no prompt of that size fits into the model's context",
           most);
    }
  }
  if (std::ferror(stdin)) fail(ExitCode::usage, "-: the standard input cannot be read");
  return text;
}

struct GenerateFlags {
  GenerationOptions options;
  std::string mesh = "1x1", prompt_file, dash;
};

/// Adds the prompt's flags: where it comes from, and how it becomes tokens.
void add_prompt_flags(CommandLine& app, GenerateFlags& flags) {
  GenerationOptions& options = flags.options;
  app.add_option("--prompt", options.prompt, "TEXT",
                 "the prompt; give exactly one of --prompt, --prompt-file, "
                 "--tokens-file, --tokens, and -");
  app.add_option("--prompt-file", flags.prompt_file, "FILE", "a file with the prompt");
  app.add_refused("--chat", "was removed: use `python3 -m ringtrain_data chat` for conversations (docs/datasets.md)");
  app.add_option("--tokens-file", options.tokens_file, "FILE|-",
                 "a file with the prompt's token ids, or the standard input: decimal, with white "
                 "space between them; the new ones are printed as ids");
  app.add_option("--tokens", options.tokens, "I,I,...", "the prompt as token ids; the new ones are printed as ids")
      ->delimiter(',')
      ->check(number<std::int32_t>());
  app.add_option("STDIN", flags.dash, "-", "-: the standard input is the prompt")->check(one_of({"-"}));
  app.add_option("--tokenizer", options.tokenizer, "PATH",
                 "bytes, a folder or a file (default: the model's tokenizer, or bytes for a run without one)");
  app.add_choice<bool>("--special-tokens", options.parse_special, {{"text", false}, {"parse", true}},
                       "how to read <|im_start|> and similar names in the prompt")
      ->default_str("text");
  add_begin_token(app, options.begin_token,
                  "the token before the prompt (default: what the tokenizer puts before a text)");
}

/// Adds the flags that say how each new token is chosen.
void add_sampling_flags(CommandLine& app, SamplingOptions& sampling) {
  const auto add_real = [&](const char* name, double& value, const char* type, const char* description) {
    app.add_real(name, value, number<double>(), type, description)->capture_default_str();
  };
  add_real("--temperature", sampling.temperature, "T",
           "0: always take the likeliest token; above 0: draw from the distribution of logits / temperature");
  app.add_option("--top-k", sampling.top_k, "K", "draw among the K likeliest tokens; 0: all")->capture_default_str();
  add_real("--top-p", sampling.top_p, "P", "draw among the fewest likeliest tokens whose probabilities sum to P");
  add_real("--min-p", sampling.min_p, "P", "draw among tokens at least P times as probable as the likeliest");
  add_real("--repetition-penalty", sampling.repetition_penalty, "R",
           "divides the positive logits of tokens that have occurred, and multiplies the negative ones");
  app.add_option("--seed", sampling.seed, "S", "seed for sampling: the same seed gives the same text")
      ->capture_default_str();
}

/// Declares the command line. Returns false if only help was requested.
bool parse(GenerateFlags& flags, int argc, char** argv, bool prints) {
  CommandLine app{
      "Continue a prompt with a model. Print the text to stdout as it is generated, and rates to stderr. Keys and "
      "values stay on the rank that holds their positions.\n\n"
      "example: generate --checkpoint runs/long_ctx --prompt \"int main(\" --max-new-tokens 200 --temperature 0.8\n",
      "generate"};
  GenerationOptions& options = flags.options;
  app.add_option("--checkpoint", options.checkpoint, "PATH",
                 "a run (its newest checkpoint), a checkpoint, or a Hugging Face folder")
      ->required();
  add_prompt_flags(app, flags);
  app.add_tokens("--max-new-tokens", options.max_new_tokens, "N", "the largest number of tokens to add")
      ->check(at_least(1));
  add_sampling_flags(app, options.sampling);
  app.add_option("--stop", options.stops, "TEXT", "end before this text; may be given several times")
      ->allow_extra_args(false)  // else CLI11 would read "[END]" as a list, and take the next argument, too
      ->take_all();
  app.add_option("--stop-token", options.stop_tokens, "ID,...", "also end at these tokens, which are not printed")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--raw", options.raw,
               "print bytes as they are generated: nothing is replaced or left out, no newline is added");
  for (const char* of_text : {"--special-tokens", "--stop", "--raw"}) {
    for (const char* ids : {"--tokens", "--tokens-file"}) app.get_option(of_text)->excludes(app.get_option(ids));
  }
  app.add_option("--mesh", flags.mesh, "1xN", "sequence ranks that share the prompt and the cache");
  app.add_computation(options);
  if (!parse_command_line(app, argc, argv, prints)) return false;
  const auto sources = {"--prompt", "--prompt-file", "--tokens", "--tokens-file", "STDIN"};
  if (std::ranges::count_if(sources, [&](const char* source) { return app.count(source) > 0; }) != 1) {
    fail(ExitCode::usage,
         "give exactly one of --prompt, --prompt-file, --tokens, --tokens-file, and -; see generate --help");
  }
  return true;
}

/// Completes the options from combinations of flags.
void settle(GenerateFlags& flags, const Launcher& launcher) {
  GenerationOptions& options = flags.options;
  std::int64_t data = 0;
  read_mesh(flags.mesh, data, options.sequence_ranks);
  if (data != 1) fail(ExitCode::usage, "--mesh {}: must be 1xN: one text has no data ranks", flags.mesh);
  const std::string file = flags.prompt_file + options.tokens_file + flags.dash;  // at most one
  if (file == "-") {
    if (launcher.processes() > 1) {
      fail(ExitCode::usage, "-: only one of several processes can read stdin; give --prompt-file or --tokens");
    }
    options.read_prompt = read_standard_input;
  } else if (!file.empty()) {
    options.read_prompt = [file](std::int64_t most) { return read_file(file, ExitCode::usage, most); };
  }
}

}  // namespace

int ringtrain::generate_command(int argc, char** argv, Launcher& launcher) {
  GenerateFlags flags;
  if (!parse(flags, argc, argv, launcher.is_rank_zero())) return 0;
  settle(flags, launcher);
  if (launcher.is_rank_zero()) require_results();
  const GenerationSummary summary = generate_from_checkpoint(flags.options, launcher, write_results);
  if (!launcher.is_rank_zero()) return 0;
  if (!flags.options.raw) write_results("\n");
  flush_results();  // before the messages, which would otherwise continue the text's line
  for (const std::string& sentence : summary.remarks) write_message(stderr, "generate: " + sentence + "\n");
  write_message(stderr, "generate: " + summary_text(summary) + "\n");
  return 0;
}
