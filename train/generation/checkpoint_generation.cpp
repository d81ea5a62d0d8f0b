#include "train/generation/checkpoint_generation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "data/vocabulary.h"
#include "framework/config/config.h"
#include "framework/counted.h"
#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/storage/hash.h"
#include "framework/storage/plain_text.h"
#include "framework/text/text_reader.h"
#include "layers/model_spec.h"
#include "parallel/launch/agreement.h"
#include "parallel/launch/communicator_factory.h"
#include "train/engine/memory_check.h"
#include "train/generation/streamed_text.h"
#include "train/models/load_weights.h"
#include "train/models/model_tokenizer.h"

namespace ringtrain {

namespace {

/// Returns how many positions a model has: the rows of its table, or its trained length.
std::int64_t context_of(const Config& config) {
  const ModelSpec spec = model_spec(config.model);
  return spec.positions == Positions::learned ? spec.max_position_embeddings : config.training.seq_len;
}

/// Returns the tokenizer between text and tokens; null if prompt and output are ids.
std::unique_ptr<Tokenizer> tokenizer_of(const GenerationOptions& options, const ModelSource& source) {
  if (!options.tokens.empty() || !options.tokens_file.empty()) return nullptr;
  std::string path = options.tokenizer;
  const ExitCode damaged = path.empty() ? ExitCode::checkpoint : ExitCode::data;
  if (path.empty() && !source.tokenizer.empty() && holds_tokenizer(source.tokenizer)) path = source.tokenizer;
  if (path.empty() && source.checkpoint) path = "bytes";
  if (path.empty()) {
    fail(ExitCode::usage, "{} has no tokenizer; name one with --tokenizer, or give ids with --tokens", source.path);
  }
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(path, damaged);
  check_tokenizer(source, *tokenizer, path);
  if (tokenizer->vocab_size() > source.model.vocab_size) {
    fail(ExitCode::usage,
         "the tokenizer {} has {} tokens, but the model's vocabulary has {}; name the model's tokenizer with "
         "--tokenizer, or give ids with --tokens",
         path, tokenizer->vocab_size(), source.model.vocab_size);
  }
  return tokenizer;
}

/// Returns the largest number of bytes in a prompt: a few times the longest tokens that fit in the context, because
/// tokenization may shrink text (NFC, spaces that a token swallows), and at least what any terminal or editor sends.
/// tokenizer: null if the prompt is ids, which have at most 10 digits and one space each.
std::int64_t most_prompt_bytes(const Tokenizer* tokenizer, std::int64_t context) {
  constexpr std::int64_t least = std::int64_t{1} << 20, most = std::int64_t{256} << 20;
  std::size_t longest = 4;  // a character that has no token
  for (std::int32_t token = 0; tokenizer != nullptr && token < tokenizer->vocab_size(); ++token) {
    longest = std::max(longest, tokenizer->token_text(token).size());
  }
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::int64_t>(4 * longest), context, &bytes)) return most;
  return std::clamp(bytes, least, most);
}

/// Returns the token with which the prompt should begin.
std::optional<std::int32_t> begin_token_of(const GenerationOptions& options, const Tokenizer* tokenizer) {
  if (options.begin_token) return *options.begin_token < 0 ? std::nullopt : options.begin_token;
  return tokenizer ? tokenizer->begin_of_text() : std::nullopt;
}

/// Returns the ids in a file's text. Throws Error(usage), which names the file and the position of a word that is not
/// an id.
std::vector<std::int32_t> read_ids(const std::string& text, const std::string& file, const Vocabulary& vocabulary) {
  std::vector<std::int32_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::string where = fmt::format("--tokens-file {}, id {}", file, ids.size() + 1);
    const std::optional<std::int64_t> id = number_of<std::int64_t>(word);
    if (!id) {
      fail(ExitCode::usage, "{}: \"{}\" is not a token id; ids are decimal digits with white space between them", where,
           plain_text(word));
    }
    ids.push_back(vocabulary.token(*id, ExitCode::usage, where));
  }
  if (ids.empty())
    fail(ExitCode::usage, "--tokens-file {}: it contains no token id; a prompt needs at least one", file);
  return ids;
}

/// Returns the prompt's tokens.
std::vector<std::int32_t> prompt_of(const GenerationOptions& options, const ModelSource& source,
                                    const Tokenizer* tokenizer, std::int64_t context) {
  const Vocabulary vocabulary(source.model.vocab_size);
  std::vector<std::int32_t> prompt;
  for (const std::int64_t id : options.tokens) prompt.push_back(vocabulary.token(id, ExitCode::usage, "--tokens"));
  const std::string text =
      options.read_prompt ? options.read_prompt(most_prompt_bytes(tokenizer, context)) : options.prompt;
  if (!options.tokens_file.empty()) {
    prompt = read_ids(text, options.tokens_file, vocabulary);
  } else if (tokenizer) {
    for (const std::int32_t id :
         tokenizer->encode(text, options.parse_special ? SpecialTokens::parse : SpecialTokens::text)) {
      prompt.push_back(vocabulary.token(id, ExitCode::usage, "the prompt's tokenizer"));
    }
  }
  if (prompt.empty()) {
    fail(ExitCode::usage, "the prompt is empty; give at least one character, or one id with --tokens");
  }
  if (const std::optional<std::int32_t> begin = begin_token_of(options, tokenizer)) {
    const std::int32_t token = vocabulary.token(*begin, ExitCode::usage, "--begin-token");
    if (prompt.front() != token) prompt.insert(prompt.begin(), token);
  }
  return prompt;
}

/// Throws Error(usage) if some ranks would hold no token of a text of at most this many positions, as in training.
void check_ring(std::int64_t ranks, std::int64_t positions) {
  if (ranks <= positions) return;
  fail(ExitCode::usage,
       "--mesh 1x{}: the text has at most {} positions, so some ranks would hold none; give at most 1x{}", ranks,
       positions, positions);
}

/// Returns the tokens that end a text: those in the model's files, and those of --stop-token.
std::vector<std::int32_t> end_tokens_of(const GenerationOptions& options, const ModelSource& source,
                                        const Tokenizer* tokenizer) {
  const Vocabulary vocabulary(source.model.vocab_size);
  std::vector<std::int32_t> tokens;
  const auto add = [&](std::optional<std::int32_t> end) {
    if (end && std::ranges::find(tokens, *end) == tokens.end()) tokens.push_back(*end);
  };
  for (const std::int64_t id : source.ends.ends) add(vocabulary.token(id, ExitCode::checkpoint, source.path));
  if (tokens.empty() && source.checkpoint) {  // if a run's checkpoint names none: its documents' default end token
    if (tokenizer) add(tokenizer->end_of_document());
    if (tokens.empty()) tokens.push_back(last_token(source.model.vocab_size));
  }
  for (const std::string& stop : options.stops) add(tokenizer ? tokenizer->find_special(stop) : std::nullopt);
  for (const std::int64_t id : options.stop_tokens) add(vocabulary.token(id, ExitCode::usage, "--stop-token"));
  return tokens;
}

/// Returns the request to the ranks. Throws Error(usage) if it does not fit in the context, or if some ranks would be
/// empty.
GenerationRequest request_of(const GenerationOptions& options, const ModelSource& source, const Tokenizer* tokenizer,
                             std::int64_t context) {
  GenerationRequest request{.prompt = prompt_of(options, source, tokenizer, context), .sampling = options.sampling};
  const std::int64_t prompt = std::ssize(request.prompt), room = context - prompt + 1;
  if (room < 1) {
    fail(ExitCode::usage, "the prompt has {}, but the model's context is {}; shorten the prompt, or begin a new chat",
         counted(prompt, "token"), context);
  }
  request.new_tokens = std::min(options.max_new_tokens, room);
  check_ring(options.sequence_ranks, prompt + request.new_tokens - 1);
  request.end_tokens = end_tokens_of(options, source, tokenizer);
  return request;
}

/// Returns the facts that must be the same on all ranks.
std::vector<AgreedValue> facts_of(const GenerationOptions& options, const ModelSource& source,
                                  const GenerationRequest& request) {
  const SamplingOptions& s = options.sampling;
  Hasher hasher;
  hasher.update(request.prompt.data(), request.prompt.size() * sizeof(request.prompt[0]));
  return {{"the checkpoint", source.identity},
          {"the prompt's hash", hasher.digest()},
          {"the list of end tokens", fmt::format("{}", fmt::join(request.end_tokens, ","))},
          {"--max-new-tokens", std::to_string(options.max_new_tokens)},
          {"--threads-per-rank", std::to_string(options.threads_per_rank)},
          {"the list of sampling flags",
           fmt::format("--temperature {} --top-k {} --top-p {} --min-p {} --repetition-penalty {} --seed {}",
                       s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, s.seed)}};
}

/// Passes on tokens as text, or as a list of ids.
class TokenPrinter {
 public:
  /// tokenizer: null to pass on ids.
  TokenPrinter(const GenerationOptions& options, const Tokenizer* tokenizer, const Printer& print)
      : tokenizer_(tokenizer), special_(options.raw), text_(options.stops, options.raw), print_(print) {}

  /// Returns whether the text continues.
  bool add(std::int32_t token) {
    if (tokenizer_ == nullptr) {
      print_(first_ ? fmt::format("{}", token) : fmt::format(",{}", token));
      first_ = false;
      return true;
    }
    // A model's vocabulary may be padded beyond the tokenizer's.
    if (token < tokenizer_->vocab_size() && (special_ || !tokenizer_->is_special(token))) {
      hand_on(text_.add(tokenizer_->token_text(token)));
    }
    return !text_.stopped();
  }
  void finish() { hand_on(text_.finish()); }
  bool stopped() const { return text_.stopped(); }

 private:
  void hand_on(const std::string& text) const {
    if (!text.empty()) print_(text);
  }
  const Tokenizer* tokenizer_;
  bool special_, first_ = true;
  StreamedText text_;
  const Printer& print_;
};

/// Returns what a user should know about the model's files and the prompt's beginning.
std::vector<std::string> remarks_of(const GenerationOptions& options, const ModelSource& source,
                                    const Tokenizer* tokenizer) {
  std::vector<std::string> remarks = source.logs;
  for (const std::string& sentence : source.unknown_ends) remarks.push_back(sentence + ", so it is not used");
  if (const auto begin = begin_token_of(options, tokenizer); begin && !options.begin_token) {
    remarks.push_back(
        fmt::format("the prompt begins with token {}, which the tokenizer puts first; see --begin-token", *begin));
  }
  return remarks;
}

/// Throws Error(usage) for options that produce no text.
void check_options(const GenerationOptions& options, const Printer& print) {
  check_sampling(options.sampling);
  if (options.max_new_tokens < 1)
    fail(ExitCode::usage, "--max-new-tokens {}: must be 1 or more", options.max_new_tokens);
  if (std::ranges::count(options.stops, std::string()) > 0) {
    fail(ExitCode::usage, "--stop: a stop string must have at least one character");
  }
  if (!print) fail(ExitCode::usage, "generate_from_checkpoint() needs a function that receives the new text");
}

std::string rate_text(std::int64_t tokens, double seconds) {
  return fmt::format("{} in {:.3f} s, {:.1f} tokens/s", counted(tokens, "token"), seconds,
                     tokens / std::max(seconds, 1e-9));
}

std::string ending_text(const GenerationSummary& summary) {
  if (summary.ending == Ending::context) {
    return fmt::format("the model's context of {} is full", counted(summary.context, "token"));
  }
  return summary.ending == Ending::stop_string       ? "a stop string was generated"
         : summary.ending == Ending::end_of_document ? "the document ended"
                                                     : "--max-new-tokens is reached";
}

}  // namespace

GenerationSummary generate_from_checkpoint(const GenerationOptions& options, Launcher& launcher, const Printer& print) {
  check_options(options, print);
  const LaunchOptions launch{static_cast<int>(options.sequence_ranks)};
  launcher.check(launch);
  const std::vector<int> here = launcher.ranks_here(launch.ranks);
  const int threads = threads_per_rank(options.threads_per_rank, static_cast<int>(here.size()));
  require_runnable(std::ssize(here), threads);
  const ModelSource source = open_model(options.checkpoint, options.model);
  Config config = config_of(source);
  set_computation(config, options, /*data=*/1, options.sequence_ranks);

  GenerationSummary summary;
  summary.context = context_of(config);
  check_ring(options.sequence_ranks, summary.context);  // before waiting for a prompt
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(options, source);
  const GenerationRequest request = request_of(options, source, tokenizer.get(), summary.context);
  summary.remarks = remarks_of(options, source, tokenizer.get());
  const RankPurpose purpose{
      .training = false, .prompt_tokens = std::ssize(request.prompt), .new_tokens = request.new_tokens};
  const ParameterTable table = options.model.table(config.model);
  check_memory(config, plan_ranks(config, table, purpose, options.model),
               {here, launcher.ranks_of_process(launch.ranks)});

  TokenPrinter printer(options, tokenizer.get(), print);
  const auto generate_on_rank = [&](Communicator& world) {
    require_agreement(world, facts_of(options, source, request));
    ThreadPool pool(threads);
    const Device device = device_of(config.training, world.rank(), here);
    require_carrier(config.mesh, world, device, launcher);
    RankState state(config, table, purpose, world.rank(), device, pool, &world, nullptr, options.model);
    load_weights(state, &source);
    abort_on_error(world, [&] {
      const GenerationRates rates = generate(state, request, [&](std::int32_t token) { return printer.add(token); });
      if (world.rank() == 0) summary.rates = rates;
      state.close();
    });
  };
  launcher.launch({launch.ranks, config.mesh.timeout_seconds}, generate_on_rank);
  if (!launcher.is_rank_zero()) return summary;
  if (!printer.stopped()) printer.finish();
  summary.ending = printer.stopped()                             ? Ending::stop_string
                   : summary.rates.ended                         ? Ending::end_of_document
                   : request.new_tokens < options.max_new_tokens ? Ending::context
                                                                 : Ending::max_new_tokens;
  return summary;
}

std::string summary_text(const GenerationSummary& summary) {
  const GenerationRates& rates = summary.rates;
  std::string text = fmt::format("prompt: {}", rate_text(rates.prompt_tokens, rates.prompt_seconds));
  if (rates.new_tokens > 1) {
    text += fmt::format("; decode: {}", rate_text(rates.new_tokens - 1, rates.decode_seconds));
  }
  return text + "; " + ending_text(summary);
}

}  // namespace ringtrain
