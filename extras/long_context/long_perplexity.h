// LongPPL: the perplexity of key tokens alone (extras/long_context/key_tokens.h). A model reads each text whole. The
// evaluator, which finds the key tokens, is the model itself, or the one whose set was saved. Of each document that an
// evaluation scores the text is what the longest context length holds of it, without its end token. Where a tokenizer
// begins texts with a token, longppl seeks key tokens in texts with it and scores texts without it, and so does this.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "extras/long_context/key_tokens.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/evaluation_metric.h"
#include "train/evaluation/evaluation_statistics.h"
#include "train/evaluation/evaluation_targets.h"

namespace ringtrain {

/// A document's text as the model reads it.
struct LongText {
  std::int64_t document = 0;            // of the file
  std::int64_t begin = 0, tokens = 0;   // in the file, without a begin token
  std::string hash;                     // of the whole document's text
  std::vector<TextInterval> intervals;  // of each token
};

/// What key tokens are sought in, or taken from.
struct LongPplTexts {
  std::vector<LongText> texts;                   // by document
  KeySet set;                                    // whose key tokens count; without texts: they are to be found
  std::optional<std::int32_t> begin_token = {};  // stands before the texts in which they are sought
  bool finds() const { return set.texts.empty(); }
};

/// What a text gave: sums of weight * nll, and of weights. Weights are those of the file.
struct LongPplSums {
  double nll = 0, weight = 0, key_nll = 0, key_weight = 0;
  std::int64_t tokens = 0, key_tokens = 0;
};

struct LongPplResult {
  KeySet set;  // by which it was scored: found here, or given
  bool own_contrast = true;
  std::vector<std::int64_t> documents;  // of each text
  std::vector<LongPplSums> sums;
  std::int64_t key_tokens = 0, tokens = 0;  // the latter all tokens of the texts, as longppl counts them
  Estimate key_nll, nll;                    // nats a key token, and a token; over documents
};

/// Returns the texts of the targets' documents; the longest context and trunc_len count the targets' begin token, which
/// belongs to no text. tokenizer: that of the file; null: intervals are in tokens. given: a
/// saved set, or null. Throws Error(usage) if no text is longer than options.trunc_len and none was given, Error(data)
/// if the set has not the same texts or another unit.
LongPplTexts long_texts(const TokenFile& file, const EvaluationTargets& targets, std::int64_t longest,
                        const KeyTokenOptions& options, const Tokenizer* tokenizer, const KeySet* given);

/// Collective over state.world: all ranks pass the same and get the same. The model reads every text once, and, where
/// key tokens are to be found, each short window. progress may be null: told on every rank of each sequence's tokens.
LongPplResult evaluate_long_perplexity(RankState& state, const TokenFile& file, const LongPplTexts& texts,
                                       const std::string& evaluator,
                                       const std::function<void(std::int64_t tokens)>& progress);

/// Returns the object of `evaluate --output`: names are those of longppl, what does not exist is null.
nlohmann::ordered_json long_ppl_json(const LongPplResult& result);
/// Returns lines for people. intervals: whether documents are enough for them.
std::string long_ppl_lines(const LongPplResult& result, bool intervals);

struct LongPplRequest {
  KeyTokenOptions options;
  std::string key_tokens = {};  // a saved set, whose options count; "": key tokens are found by this model
  std::string save_path = {};   // where the set is written; "": nowhere
};

/// The metric `--longppl`, on the texts of the longest context length. found, if not null, receives the result, and
/// must outlive the evaluation.
std::shared_ptr<const EvaluationMetric> long_perplexity(LongPplRequest request,
                                                        std::optional<LongPplResult>* found = nullptr);

}  // namespace ringtrain
