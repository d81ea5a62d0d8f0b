#include "data/preparation/recall.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "data/token_file_writer.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "framework/random.h"
#include "framework/system/signals.h"

namespace ringtrain {

namespace {

/// The random numbers of one document: its own range of 2^32 indices.
class Draw {
 public:
  Draw(std::uint64_t seed, std::int64_t document) : seed_(seed), next_(static_cast<std::uint64_t>(document) << 32) {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(seed_, Purpose::synthetic_data, next_++, static_cast<std::uint64_t>(bound)));
  }
  void shuffle(std::vector<std::int64_t>& list) {
    for (std::int64_t i = std::ssize(list); i > 1; --i) std::swap(list[i - 1], list[below(i)]);
  }

 private:
  std::uint64_t seed_, next_;
};

/// Returns the pairs, counted from a document's first pair, that may be the first occurrences of far keys: [begin,
/// end).
struct Range {
  std::int64_t begin, end;
};
Range far_range(std::int64_t length, std::int64_t pairs) {
  // Every recall is at least L/2 back: the first recall is 2 P + 1 tokens before the end.
  return {(length / 16 + 1) / 2, (length - length / 2 - 2 * pairs - 1) / 2};
}

void check(const RecallOptions& options) {
  constexpr std::int64_t max_documents = 100'000'000;  // each has its own range of random numbers
  const auto require = [](const char* flag, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most) fail(ExitCode::usage, "{} {} is not between 1 and {}", flag, value, most);
  };
  require("--documents", options.documents, max_documents);
  require("--pairs", options.pairs, recall_keys - recall_practice);
  require("--length", options.length, INT32_MAX);
  const Range range = far_range(options.length, options.pairs);
  if (range.end - range.begin < 2 * options.pairs) {
    fail(ExitCode::usage, "--length {} is too short for --pairs {}; use at least --length {}", options.length,
         options.pairs, 16 * options.pairs + 16);
  }
}

/// Returns the number of far keys of a short document: as many as a long one has, if they fit.
std::int64_t short_pairs(const RecallOptions& options) {
  const std::int64_t length = options.length / recall_short;
  std::int64_t pairs = options.pairs;
  while (pairs > 0 && far_range(length, pairs).end - far_range(length, pairs).begin < pairs) --pairs;
  return pairs;
}

enum class Kind { training_short, training_long, validation };

/// Calls body(document, kind) for every document: short ones followed by a long one for training, and only long ones
/// for validation.
template <class Body>
void for_documents(const RecallOptions& options, Body&& body) {
  const std::uint64_t seed = options.prepare.seed;
  const std::int64_t short_length = options.length / recall_short, pairs = short_pairs(options);
  const std::int64_t trained =
      options.documents - validation_count(options.documents, options.prepare.validation_fraction);
  for (std::int64_t group = 0; group < options.documents; ++group) {
    throw_if_signalled();
    const std::int64_t index = group * (recall_short + 1);
    for (std::int64_t i = 0; group < trained && i < recall_short; ++i) {
      const std::int64_t remainder = i == recall_short - 1 ? options.length % recall_short : 0;
      body(make_recall_document(seed, index + i, short_length + remainder, pairs), Kind::training_short);
    }
    body(make_recall_document(seed, index + recall_short, options.length, options.pairs),
         group < trained ? Kind::training_long : Kind::validation);
  }
}

/// Computes what follows from the options and from a first pass over all documents, which are cheap to make twice.
RecallSummary survey(const RecallOptions& options) {
  RecallSummary summary;
  summary.chance_nll = std::log(static_cast<double>(recall_values));
  summary.validation_documents = validation_count(options.documents, options.prepare.validation_fraction);
  summary.validation_tokens = summary.validation_documents * options.length;
  summary.shortest_distance = options.length;
  std::int64_t targets = 0, unpredictable = 0;
  for_documents(options, [&](const RecallDocument& document, Kind kind) {
    const std::int64_t length = std::ssize(document.tokens) + 1;
    summary.lengths.push_back(length);
    summary.tokens += length;
    if (kind != Kind::training_short) {
      summary.shortest_distance = std::min(summary.shortest_distance, std::ranges::min(document.distances));
      summary.longest_distance = std::max(summary.longest_distance, std::ranges::max(document.distances));
    }
    if (kind != Kind::validation) {
      targets += (length - 1) / 2;
      unpredictable += document.unpredictable;
    }
  });
  summary.documents = std::ssize(summary.lengths);
  summary.bytes = summary.tokens - summary.documents;
  summary.training_floor_nll = static_cast<double>(unpredictable) / static_cast<double>(targets) * summary.chance_nll;
  return summary;
}

}  // namespace

RecallDocument make_recall_document(std::uint64_t seed, std::int64_t index, std::int64_t length, std::int64_t pairs) {
  Draw draw(seed, index);
  std::vector<std::int64_t> keys(recall_keys), values(recall_keys);
  for (std::int64_t key = 0; key < recall_keys; ++key) {
    keys[key] = key;
    values[key] = draw.below(recall_values);
  }
  draw.shuffle(keys);                         // the first `pairs` are far, the next are for practice
  const std::int64_t all = (length - 1) / 2;  // pairs of the document
  std::vector<std::int64_t> pair_keys(all);
  for (std::int64_t& key : pair_keys) key = keys[pairs + draw.below(recall_practice)];

  // Positions of the first occurrences of the far keys: distinct ones of the range.
  const Range range = far_range(length, pairs);
  std::vector<std::int64_t> first_places;
  while (std::ssize(first_places) < pairs) {
    const std::int64_t position = range.begin + draw.below(range.end - range.begin);
    if (std::ranges::find(first_places, position) == first_places.end()) first_places.push_back(position);
  }
  std::vector<std::int64_t> order(pairs);
  std::iota(order.begin(), order.end(), 0);
  draw.shuffle(order);
  RecallDocument document;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t far = order[i];
    const std::int64_t recall = all - pairs + i;
    pair_keys[first_places[far]] = keys[far];
    pair_keys[recall] = keys[far];
    document.distances.push_back(2 * (recall - first_places[far]));
  }

  if (length % 2 == 0) document.tokens.push_back(recall_filler);
  for (const std::int64_t key : pair_keys) {
    document.tokens.push_back(static_cast<std::int32_t>(key));
    document.tokens.push_back(static_cast<std::int32_t>(recall_keys + recall_values * key + values[key]));
  }
  document.unpredictable = std::ssize(std::set(pair_keys.begin(), pair_keys.end()));
  return document;
}

RecallSummary prepare_recall(const RecallOptions& options, const CopyProgress& progress) {
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
  std::int64_t tokens = 0;
  for_documents(options, [&](const RecallDocument& document, Kind kind) {
    const std::int64_t size = std::ssize(document.tokens);
    const std::int64_t first = kind == Kind::validation ? size - 2 * options.pairs : size % 2;
    std::vector<float> weights(document.tokens.size());
    for (std::int64_t key = first; key < size; key += 2) weights[key + 1] = 1;
    writer.append(document.tokens, weights);
    writer.end_document(0);
    tokens += size + 1;
    if (progress) progress(tokens, summary.tokens);
  });
  summary.hash = writer.finish();
  return summary;
}

}  // namespace ringtrain
