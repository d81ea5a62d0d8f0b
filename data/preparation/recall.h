// The recall corpus: synthetic documents whose last targets can be predicted only from far back, with losses known in
// advance. It shows whether a model trained on a ring really uses its whole context.
//
// A document is a sequence of pairs: a key byte, then one of the eight value bytes that belong only to that key. At the
// end it has token 256 (preceded by one filler byte at the document's start if the length is even). Each document draws
// which of its eight values a key has, so the value can only be known from an earlier pair of the same key in the same
// document.
//
//   tokens 0 .. L/2           pairs of practice keys, drawn at random; between L/16 and L/2 every *far* key once
//   from there                pairs of practice keys
//   the last 2 P before 256   every far key once more, in random order: the recalls, L/2 to 15 L/16 tokens back
//
// The weights select what can be measured: keys, filler, and the end have weight 0. In the training part all values
// have weight 1, including a key's first one, which nothing predicts: this teaches the model to predict evenly what is
// not in its context. In the validation part only the recalls have weight 1. Their entropy is exactly 0 nats for a
// context that covers the distance, and exactly ln 8 for one that does not: the key determines its eight values, and
// nothing else determines which of them.
//
// In the training part, 16 short documents precede every long one and together have L tokens: small copies of it, with
// as many far keys as fit. They give a step the values of many documents instead of one, and a short distance to start
// with. Windows of L tokens are still either one long document or 16 short ones.
//
// The corpus is deliberately easy to learn. The meaning of a value token does not depend on the token before it. So a
// head that finds earlier values of the same key and copies them is sufficient, and lowers the loss from the first
// step. All practice pairs train the same head: hundreds per document, at all distances.
#pragma once

#include <cstdint>
#include <vector>

#include "data/preparation/prepare.h"

namespace ringtrain {

inline constexpr std::int64_t recall_keys = 28;      // bytes 0 .. 27
inline constexpr std::int64_t recall_values = 8;     // of key k: bytes 28 + 8 k .. 28 + 8 k + 7, up to 251
inline constexpr std::int64_t recall_filler = 255;   // a byte
inline constexpr std::int64_t recall_practice = 12;  // practice keys per document: of 28, at most 16 are far
inline constexpr std::int64_t recall_short = 16;     // short documents before every long one for training

struct RecallOptions {
  std::int64_t documents = 0;  // long ones, including those for validation
  std::int64_t length = 0;     // L, tokens of a long document with its end token
  std::int64_t pairs = 0;      // P, far keys per document
  PrepareOptions prepare;
};

struct RecallSummary : CorpusSummary {
  double chance_nll = 0;          // of a recall outside the context: ln 8
  double floor_nll = 0;           // of a recall within it: 0
  double training_floor_nll = 0;  // mean over the training part's targets, including first values
  std::int64_t shortest_distance = 0, longest_distance = 0;  // tokens from a far key's first value to its recall
};

/// One document as tokens, without its end token.
struct RecallDocument {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> distances;  // of the recalls, in their order; the last 2 P tokens hold them
  std::int64_t unpredictable = 0;       // keys, each of which has a first value
};

/// Returns document `index` of a corpus: a pure function of (seed, index, length, pairs).
RecallDocument make_recall_document(std::uint64_t seed, std::int64_t index, std::int64_t length, std::int64_t pairs);

/// Writes the corpus, with recall_floor_nll, recall_chance_nll, and the distances as attributes of the file. Throws
/// Error(usage) if the numbers do not fit each other or the output cannot be written.
RecallSummary prepare_recall(const RecallOptions& options, const CopyProgress& progress);

}  // namespace ringtrain
