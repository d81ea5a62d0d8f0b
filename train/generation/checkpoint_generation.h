// The program `generate` without its command line: opens a model and its tokenizer, turns a prompt into tokens, builds
// the model and a cache on a separate ring, and passes on the text as it comes.
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

/// Reads and returns a prompt. most_bytes: a longer prompt cannot fit in the model's context, so the reader throws
/// Error(usage) as soon as this many bytes have arrived.
using PromptReader = std::function<std::string(std::int64_t most_bytes)>;

struct GenerationOptions : Computation {
  std::string checkpoint;    // anything that open_model() takes
  std::string tokenizer;     // anything that load_tokenizer() takes; "": the model's own; bytes for a run without one
  std::string prompt;        // text; or
  PromptReader read_prompt;  // reads text once the model is known; or
  /// The prompt's token ids, if not empty: the new tokens are then printed as ids, too.
  std::vector<std::int64_t> tokens;
  std::string tokens_file;     // if not empty: read_prompt returns ids separated by white space, from this file
  bool parse_special = false;  // <|im_start|> and the like in the prompt's text are tokens, not letters
  // The token that begins the prompt, once. Empty: text begins as the tokenizer says.
  std::optional<std::int32_t> begin_token;  // -1: no token
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stops;         // strings that end the text before them
  std::vector<std::int64_t> stop_tokens;  // ids that end the text, in addition to the model's own end tokens
  bool raw = false;                       // prints bytes as they come: replaces nothing, and includes special tokens
  std::int64_t sequence_ranks = 1;
  /// The definition of the checkpoint's model. Error(usage) for one that cannot generate (Model::prefill).
  ModelDefinition model = transformer_definition();
};

/// Why a text ended.
enum class Ending { max_new_tokens, end_of_document, stop_string, context };

/// What was generated, and how fast.
struct GenerationSummary {
  GenerationRates rates;
  Ending ending = Ending::max_new_tokens;
  std::int64_t context = 0;          // positions that the model has
  std::vector<std::string> remarks;  // messages about what the model's files say and cannot mean
};

/// Called with pieces of the new text, or of the list of its ids, in rank 0's process.
using Printer = std::function<void(std::string_view text)>;

/// Throws Error: usage (prompt, an id that is not a token, lengths, ranks, memory), checkpoint, numeric, rank, and
/// whatever print throws: then every rank stops.
GenerationSummary generate_from_checkpoint(const GenerationOptions& options, Launcher& launcher, const Printer& print);

/// Returns one line with tokens, seconds, rates, and why the text ended.
std::string summary_text(const GenerationSummary& summary);

}  // namespace ringtrain
