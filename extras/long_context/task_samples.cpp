#include "extras/long_context/task_samples.h"

#include <algorithm>
#include <ranges>

#include "data/tokens_in_memory.h"
#include "framework/error.h"
#include "framework/profile/progress.h"
#include "framework/random.h"
#include "framework/system/system_memory.h"

namespace ringtrain {

namespace {

using Ids = std::vector<std::int32_t>;

Ids encoded(Encoder& encoder, std::string_view text, Preceding preceding) {
  Ids ids;
  if (!text.empty()) encoder.encode(text, ids, preceding);
  return ids;
}

/// Chooses candidates of an answer: wrong ones that share its tokens up to a position, and differ there from it and
/// from each other. Prefers the earliest such position, and the first of the wrong ones.
void choose_candidates(Encoder& encoder, const TaskAnswer& answer, const Ids& right, TaskKind kind, std::int64_t wanted,
                       TaskTrial& trial) {
  std::vector<Ids> others;
  others.reserve(answer.others.size());
  for (const std::string& text : answer.others) others.push_back(encoded(encoder, text, Preceding::text));
  std::size_t most = 0;
  for (std::size_t index = 0; index < right.size(); ++index) {
    Ids candidates{right[index]};
    for (const Ids& other : others) {
      if (other.size() <= index ||
          !std::equal(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(index), other.begin())) {
        continue;
      }
      if (std::ranges::find(candidates, other[index]) == candidates.end()) candidates.push_back(other[index]);
      if (std::ssize(candidates) < wanted) continue;
      trial.decisive = trial.first + static_cast<std::int64_t>(index);
      trial.candidates = std::move(candidates);
      return;
    }
    most = std::max(most, candidates.size());
  }
  fail(ExitCode::usage,
       "--tasks: in task {}, no token of this model tells more than {} answers apart, but --task-candidates is {}; "
       "give at most {}",
       name_of(kind), most, wanted, most);
}

/// Returns a text's answer as tokens. Adds its parts, whose positions are relative to the answer's beginning.
Ids answer_tokens(Encoder& encoder, const TaskText& text, TaskKind kind, std::int64_t candidates,
                  std::vector<TaskTrial>& parts) {
  Ids ids;
  for (const TaskAnswer& part : text.answers) {
    const Ids before = encoded(encoder, part.before, Preceding::text),
              right = encoded(encoder, part.right, Preceding::text);
    ids.insert(ids.end(), before.begin(), before.end());
    TaskTrial trial{.depth = part.depth, .first = std::ssize(ids), .tokens = std::ssize(right)};
    choose_candidates(encoder, part, right, kind, candidates, trial);
    ids.insert(ids.end(), right.begin(), right.end());
    parts.push_back(std::move(trial));
  }
  return ids;
}

/// Returns the tokens of the longest prompt with at most this many.
Ids longest_prompt(Encoder& encoder, const TaskText& text, const TaskSettings& settings, std::uint64_t draw,
                   std::int64_t most, TaskKind kind, std::int64_t length) {
  const auto prompt = [&](std::int64_t sentences) {
    return encoded(encoder, prompt_of(text, settings, sentences, draw), Preceding::nothing);
  };
  const Ids shortest = prompt(0);
  if (std::ssize(shortest) > most) {
    fail(ExitCode::usage,
         "--tasks: task {} does not fit in a context of {} tokens: its instruction, needles, and question take {} "
         "tokens and its answer {}; use longer --context-lengths or other tasks",
         name_of(kind), length, shortest.size(), length - most);
  }
  const auto sentences = std::views::iota(1, static_cast<int>(most) + 1);  // each has a token or more
  const auto fits = [&](int count) { return std::ssize(prompt(count)) <= most; };
  return prompt(*std::ranges::partition_point(sentences, fits) - 1);
}

/// Throws Error(usage) if the machine's memory cannot hold the texts. Returns their maximum number of tokens.
std::int64_t planned_tokens(std::span<const TaskKind> kinds, std::span<const std::int64_t> lengths,
                            const TaskSettings& settings) {
  double tokens = 0;
  for (const std::int64_t length : lengths) tokens += static_cast<double>(length) + 1;  // the text's end
  const double texts = static_cast<double>(std::ssize(kinds) * settings.depths) * static_cast<double>(settings.samples);
  const double bytes = texts * tokens * (sizeof(std::int32_t) + sizeof(float)),
               room = static_cast<double>(available_memory());
  if (bytes > room) {
    fail(ExitCode::usage,
         "--tasks: {} tasks at {} depths with {} samples each take {} of tokens, but {} are available; give fewer "
         "--task-samples or --task-depths, or shorter --context-lengths",
         kinds.size(), settings.depths, settings.samples, human_bytes(bytes), human_bytes(room));
  }
  return static_cast<std::int64_t>(texts * tokens);
}

}  // namespace

TaskSamples make_task_samples(std::span<const TaskKind> kinds, std::span<const std::int64_t> lengths,
                              const TaskSettings& settings, const Tokenizer& tokenizer, std::int64_t vocab_size,
                              std::optional<std::int32_t> begin_token) {
  const std::int64_t planned = planned_tokens(kinds, lengths, settings);
  TaskSamples samples;
  samples.kinds.assign(kinds.begin(), kinds.end());
  samples.lengths.assign(lengths.begin(), lengths.end());
  samples.settings = settings;
  const std::unique_ptr<Encoder> encoder = tokenizer.make_encoder(SpecialTokens::text);
  MemoryTokens memory{.vocab_size = vocab_size, .tokens = {}, .offsets = {0}, .weights = {}};
  memory.tokens.reserve(static_cast<std::size_t>(planned));
  memory.weights.reserve(static_cast<std::size_t>(planned));
  const auto add_text = [&](std::int64_t task, std::int64_t length, std::int64_t depth, std::int64_t sample) {
    const TaskKind kind = kinds[task];
    const TaskText text = make_task(kind, settings, lengths[length], depth, sample);
    std::vector<TaskTrial> parts;
    const Ids answer = answer_tokens(*encoder, text, kind, settings.candidates, parts);
    const std::uint64_t draw =
        random_bits(settings.seed + 1, Purpose::synthetic_data, static_cast<std::uint64_t>(samples.spans.size()));
    const std::int64_t room = lengths[length] - std::ssize(answer) - begin_token.has_value();
    Ids prompt = longest_prompt(*encoder, text, settings, draw, room, kind, lengths[length]);
    if (begin_token) prompt.insert(prompt.begin(), *begin_token);
    const std::int64_t begin = std::ssize(memory.tokens), asked = std::ssize(prompt);
    memory.tokens.insert(memory.tokens.end(), prompt.begin(), prompt.end());
    memory.tokens.insert(memory.tokens.end(), answer.begin(), answer.end());
    memory.weights.resize(memory.tokens.size(), 0.0F);
    for (TaskTrial& trial : parts) {
      trial.text = std::ssize(samples.spans);
      trial.task = task;
      trial.length = length;
      trial.first += asked;
      trial.decisive += asked;
      std::fill_n(memory.weights.begin() + begin + trial.first, trial.tokens, 1.0F);
      samples.trials.push_back(std::move(trial));
    }
    samples.spans.push_back({begin, asked + std::ssize(answer) - 1, std::ssize(answer)});
    memory.tokens.push_back(last_token(vocab_size));
    memory.weights.push_back(0.0F);
    memory.offsets.push_back(std::ssize(memory.tokens));
  };
  for (std::int64_t task = 0; task < std::ssize(kinds); ++task) {
    for (std::int64_t length = 0; length < std::ssize(lengths); ++length) {
      for (std::int64_t depth = 0; depth < settings.depths; ++depth) {
        for (std::int64_t sample = 0; sample < settings.samples; ++sample) add_text(task, length, depth, sample);
      }
    }
  }
  samples.tokens = tokens_in_memory("the texts of --tasks", std::move(memory));
  return samples;
}

}  // namespace ringtrain
