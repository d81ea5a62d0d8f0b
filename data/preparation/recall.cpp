#include "data/preparation/recall.h"

#include <algorithm>
#include <cmath>

#include "data/token_file_writer.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "framework/random.h"
#include "framework/system/signals.h"

namespace ringtrain {

namespace {

constexpr std::int64_t max_pairs = recall_keys - recall_practice;

/// The random numbers of one document: its own stretch of 2^32 indices.
class Draw {
 public:
  Draw(std::uint64_t seed, std::int64_t document) : seed_(seed), next_(static_cast<std::uint64_t>(document) << 32) {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(seed_, Purpose::synthetic_data, next_++, static_cast<std::uint64_t>(bound)));
  }
  template <class Element>
  void shuffle(std::vector<Element>& list) {
    for (std::size_t i = list.size(); i > 1; --i) {
      std::swap(list[i - 1], list[below(static_cast<std::int64_t>(i))]);
    }
  }

 private:
  std::uint64_t seed_, next_;
};

/// Returns the pairs, counted from a document's first, that far keys may take at first: [begin, end).
struct Range {
  std::int64_t begin, end;
};
Range far_range(std::int64_t length, std::int64_t pairs) {
  // Every recall is at least L/2 back: the first recall stands 2 P + 1 before the end.
  return {(length / 16 + 1) / 2, (length - length / 2 - 2 * pairs - 1) / 2};
}

void check(const RecallOptions& options) {
  constexpr std::int64_t max_documents = 100'000'000;  // each has its stretch of random numbers
  if (options.documents < 1 || options.documents > max_documents) {
    fail(ExitCode::usage, "--documents {} is not between 1 and {}", options.documents, max_documents);
  }
  if (options.pairs < 1 || options.pairs > max_pairs) {
    fail(ExitCode::usage, "--pairs {} is not between 1 and {}", options.pairs, max_pairs);
  }
  if (options.length < 1 || options.length > INT32_MAX) {
    fail(ExitCode::usage, "--length {} is not between 1 and {}", options.length, INT32_MAX);
  }
  const Range range = far_range(options.length, options.pairs);
  if (range.end - range.begin < 2 * options.pairs) {
    fail(ExitCode::usage, "--length {} is too short for --pairs {}; use at least --length {}", options.length,
         options.pairs, 16 * options.pairs + 16);
  }
}

}  // namespace

RecallDocument make_recall_document(std::uint64_t seed, std::int64_t index, std::int64_t length, std::int64_t pairs) {
  Draw draw(seed, index);
  std::vector<std::int64_t> keys(recall_keys), values(recall_keys);
  for (std::int64_t key = 0; key < recall_keys; ++key) {
    keys[key] = key;
    values[key] = draw.below(recall_values);
  }
  draw.shuffle(keys);                         // the first `pairs` are far, the next ones are for practice
  const std::int64_t all = (length - 1) / 2;  // pairs of the document
  std::vector<std::int64_t> pair_keys(all);
  for (std::int64_t& key : pair_keys) key = keys[pairs + draw.below(recall_practice)];

  // First places of the far keys: distinct ones of the range.
  const Range range = far_range(length, pairs);
  std::vector<std::int64_t> first_places;
  while (static_cast<std::int64_t>(first_places.size()) < pairs) {
    const std::int64_t place = range.begin + draw.below(range.end - range.begin);
    if (std::ranges::find(first_places, place) == first_places.end()) first_places.push_back(place);
  }
  std::vector<std::int64_t> order(pairs);
  for (std::int64_t i = 0; i < pairs; ++i) order[i] = i;
  draw.shuffle(order);
  RecallDocument document;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const auto far = static_cast<std::size_t>(order[i]);
    const std::int64_t recall = all - pairs + i;
    pair_keys[first_places[far]] = keys[far];
    pair_keys[recall] = keys[far];
    document.distances.push_back(2 * (recall - first_places[far]));
  }

  if (length % 2 == 0) {
    document.tokens.push_back(recall_filler);
    document.weights.push_back(0);
  }
  std::vector<bool> seen(recall_keys, false);
  for (const std::int64_t key : pair_keys) {
    const auto k = static_cast<std::size_t>(key);
    document.tokens.push_back(static_cast<std::int32_t>(key));
    document.tokens.push_back(static_cast<std::int32_t>(recall_keys + recall_values * key + values[k]));
    document.weights.push_back(0);
    document.weights.push_back(1);
    document.unpredictable += !seen[k];
    seen[k] = true;
  }
  return document;
}

namespace {

/// Returns the far keys of a short document: as many as a long one has, if they fit.
std::int64_t short_pairs(const RecallOptions& options) {
  const std::int64_t length = options.length / recall_short;
  std::int64_t pairs = options.pairs;
  while (pairs > 0 && far_range(length, pairs).end - far_range(length, pairs).begin < pairs) --pairs;
  return pairs;
}

/// Calls body(document, is_long) for every document of one group: for training the short ones and the long one behind
/// them, for validation a long one alone.
template <class Body>
void for_group(const RecallOptions& options, std::int64_t group, bool training, Body&& body) {
  throw_if_signalled();
  const std::uint64_t seed = options.prepare.seed;
  const std::int64_t index = group * (recall_short + 1), short_length = options.length / recall_short;
  for (std::int64_t i = 0; training && i < recall_short; ++i) {
    const std::int64_t rest = i == recall_short - 1 ? options.length % recall_short : 0;
    body(make_recall_document(seed, index + i, short_length + rest, short_pairs(options)), false);
  }
  body(make_recall_document(seed, index + recall_short, options.length, options.pairs), true);
}

/// Fills in what follows from the options and from a first look at all documents, which are cheap to make twice.
RecallSummary survey(const RecallOptions& options) {
  RecallSummary summary;
  summary.chance_nll = std::log(static_cast<double>(recall_values));
  summary.validation_documents = validation_count(options.documents, options.prepare.validation_fraction);
  summary.validation_tokens = summary.validation_documents * options.length;
  summary.shortest_distance = options.length;
  double targets = 0, unpredictable = 0;
  for (std::int64_t group = 0; group < options.documents; ++group) {
    const bool training = group < options.documents - summary.validation_documents;
    for_group(options, group, training, [&](const RecallDocument& document, bool is_long) {
      const auto length = static_cast<std::int64_t>(document.tokens.size()) + 1;
      summary.lengths.push_back(length);
      summary.tokens += length;
      if (is_long) {
        summary.shortest_distance = std::min(summary.shortest_distance, std::ranges::min(document.distances));
        summary.longest_distance = std::max(summary.longest_distance, std::ranges::max(document.distances));
      }
      if (training) {
        const std::int64_t document_pairs = (length - 1) / 2;
        targets += static_cast<double>(document_pairs);
        unpredictable += static_cast<double>(document.unpredictable);
      }
    });
  }
  summary.documents = static_cast<std::int64_t>(summary.lengths.size());
  summary.bytes = summary.tokens - summary.documents;
  summary.training_floor_nll = unpredictable / targets * summary.chance_nll;
  return summary;
}

}  // namespace

RecallSummary prepare_recall(const RecallOptions& options, const WriteProgress& progress) {
  check(options);
  TokenFileWriter::check_output(options.prepare.output);
  RecallSummary summary = survey(options);

  TokenFilePlan plan;
  plan.vocab_size = byte_vocab_size;
  plan.document_start = -1;
  plan.tokens = summary.tokens;
  plan.documents = summary.documents;
  plan.first_validation_document = summary.documents - summary.validation_documents;
  plan.weights = true;
  plan.byte_count = summary.bytes;
  plan.attributes = {{"kind", "recall"},
                     {"source_hashes", ""},
                     {"sources_hash", ""},
                     {"seed", static_cast<std::int64_t>(options.prepare.seed)},
                     {"recall_pairs", options.pairs},
                     {"recall_chance_nll", summary.chance_nll},
                     {"recall_floor_nll", summary.floor_nll},
                     {"recall_training_floor_nll", summary.training_floor_nll},
                     {"recall_shortest_distance", summary.shortest_distance},
                     {"recall_longest_distance", summary.longest_distance}};
  TokenFileWriter writer(options.prepare.output, plan);
  std::int64_t written = 0, tokens = 0;
  for (std::int64_t group = 0; group < options.documents; ++group) {
    const bool training = group < options.documents - summary.validation_documents;
    for_group(options, group, training, [&](RecallDocument document, bool) {
      if (!training) std::fill(document.weights.begin(), document.weights.end() - 2 * options.pairs, 0.0f);
      writer.append(document.tokens, document.weights);
      writer.end_document(0);
      tokens += static_cast<std::int64_t>(document.tokens.size()) + 1;
      if (progress) progress(++written, tokens);
    });
  }
  summary.hash = writer.finish();
  return summary;
}

}  // namespace ringtrain
