// LongPPL: the perplexity of only the key tokens (extras/long_context/key_tokens.h). A model reads each text whole. The
// evaluator, which finds the key tokens, is the model itself, or the one whose set was saved. The text of a document
// that an evaluation scores is the part of it in the longest context length, without its end token. If a tokenizer
// begins texts with a token, longppl searches for key tokens in texts with it and scores texts without it; so does this
// metric.
#pragma once

#include <string>

#include "extras/long_context/key_tokens.h"
#include "train/evaluation/evaluation_metric.h"

namespace ringtrain {

struct LongPplRequest {
  KeyTokenOptions options;
  std::string key_tokens = {};  // a saved set, whose options apply; "": this model finds the key tokens
  std::string save_path = {};   // where the set is written; "": it is not
};

/// The metric `--longppl`, on the texts of the longest context length.
EvaluationMetric long_perplexity(const LongPplRequest& request);

}  // namespace ringtrain
