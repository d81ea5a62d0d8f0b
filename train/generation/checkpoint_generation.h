// The program `generate` without its command line: opens a model and its tokenizer, turns a prompt into tokens, builds
// the model and a cache on a ring of its own, and hands on the text as it comes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/model/model_definition.h"
#include "parallel/launch/launcher.h"
#include "train/engine/computation.h"
#include "train/generation/generator.h"

namespace ringtrain {

/// Returns a prompt that is not read yet. most_bytes: no longer one can fit into the model's context, so it is
/// refused with an Error(usage) as soon as so many have come.
using PromptReader = std::function<std::string(std::int64_t most_bytes)>;

struct GenerationOptions : Computation {
  std::string checkpoint;    // whatever open_model() takes
  std::string tokenizer;     // whatever load_tokenizer() takes; "": the model's own; of a run that has none bytes
  std::string prompt;        // text; or
  PromptReader read_prompt;  // text that is asked for once the model is known; or
  std::vector<std::int64_t>
      tokens;                  // the prompt's token ids, if not empty: then the new ones are handed on as ids, too
  std::string tokens_file;     // if not empty: read_prompt returns ids with white space between them, from this file
  bool parse_special = false;  // <|im_start|> and its like within the prompt's text are tokens, not letters
  // What the prompt begins with, once. Nothing: a text with what the tokenizer puts before it.
  std::optional<std::int32_t> begin_token;  // -1: no token
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stops;         // texts that end the text before them
  std::vector<std::int64_t> stop_tokens;  // ids that end the text, as the model's own end tokens do
  bool raw = false;                       // bytes as they come: nothing is replaced, special tokens are there
  std::int64_t sequence_ranks = 1;
  /// Of the checkpoint's model. Error(usage) for one that does not generate (Model::prefill).
  ModelDefinition model = transformer_definition();
};

/// Why a text ended.
enum class Ending { max_new_tokens, end_of_document, stop_string, context };

/// What was generated, and how fast.
struct GenerationSummary {
  GenerationRates rates;
  Ending ending = Ending::max_new_tokens;
  std::int64_t context = 0;          // positions that the model has
  std::vector<std::string> remarks;  // a sentence each on what the model says and cannot hold
};

/// Given pieces of the new text, or of the list of its ids, in the process of rank 0.
using Printer = std::function<void(std::string_view text)>;

/// Throws Error: usage (prompt, a token that is none, lengths, ranks, memory), checkpoint, numeric, rank, and whatever
/// print throws: then no rank goes on.
GenerationSummary generate_from_checkpoint(const GenerationOptions& options, Launcher& launcher, const Printer& print);

/// Returns one line on tokens, seconds and rates, and why the text ended.
std::string summary_text(const GenerationSummary& summary);

}  // namespace ringtrain
