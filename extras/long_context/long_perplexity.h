// LongPPL: the perplexity of key tokens alone (extras/long_context/key_tokens.h). A model reads each text whole. The
// evaluator, which finds the key tokens, is the model itself, or the one whose set was saved. Of each document that an
// evaluation scores the text is what the longest context length holds of it, without its end token. Where a tokenizer
// begins texts with a token, longppl seeks key tokens in texts with it and scores texts without it, and so does this.
#pragma once

#include <string>

#include "extras/long_context/key_tokens.h"
#include "train/evaluation/evaluation_metric.h"

namespace ringtrain {

struct LongPplRequest {
  KeyTokenOptions options;
  std::string key_tokens = {};  // a saved set, whose options count; "": key tokens are found by this model
  std::string save_path = {};   // where the set is written; "": nowhere
};

/// The metric `--longppl`, on the texts of the longest context length.
EvaluationMetric long_perplexity(const LongPplRequest& request);

}  // namespace ringtrain
