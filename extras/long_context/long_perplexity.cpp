#include "extras/long_context/long_perplexity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/tokenizer/tokenizer.h"
#include "framework/counted.h"
#include "framework/error.h"
#include "framework/storage/hash.h"
#include "parallel/collectives.h"
#include "train/evaluation/evaluation_report.h"
#include "train/evaluation/evaluation_statistics.h"
#include "train/evaluation/passes/batch_targets.h"
#include "train/evaluation/passes/shared_spans.h"
#include "train/models/model_tokenizer.h"

namespace ringtrain {

namespace {

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
  std::optional<std::int32_t> begin_token = {};  // before the texts in which they are sought
  bool finds() const { return set.texts.empty(); }
};

/// What a text gave: sums of weight * nll, and of weights. Weights are those of the file.
struct LongPplSums {
  std::int64_t document = 0;  // of the file
  double nll = 0, weight = 0, key_nll = 0, key_weight = 0;
  std::int64_t tokens = 0, key_tokens = 0;
};

struct LongPplResult {
  KeySet set;  // by which it was scored: found here, or given
  bool own_contrast = true;
  std::vector<LongPplSums> texts;
  std::int64_t key_tokens = 0, tokens = 0;  // the latter all tokens of the texts, as longppl counts them
  Estimate key_nll, nll;                    // nats a key token, and a token; over documents
};

/// Returns the text of a document, with the hash of all of it and the intervals of what is read.
LongText text_of(const TokenFile& file, std::int64_t document, std::int64_t longest, const Tokenizer* tokenizer,
                 std::optional<std::int32_t> begin_token) {
  std::int64_t begin = file.document_offsets()[document];
  const std::int64_t end = file.document_offsets()[document + 1] - 1;  // without the end token
  if (begin_token && begin < end) {
    std::int32_t first = 0;
    file.read(begin, {&first, 1});
    begin += first == *begin_token;
    --longest;
  }
  const std::int64_t whole = end - begin;
  LongText text{.document = document, .begin = begin, .tokens = std::min(whole, longest), .hash = {}, .intervals = {}};
  std::vector<std::int32_t> ids(whole);
  file.read(begin, ids);
  if (tokenizer == nullptr) {
    text.hash = hash_bytes({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]});
    for (std::int64_t i = 0; i < text.tokens; ++i) text.intervals.push_back({i, i + 1});
    return text;
  }
  Hasher hasher;
  for (const std::int32_t id : ids) {
    if (tokenizer->is_special(id)) continue;
    const std::string bytes = tokenizer->token_text(id);
    hasher.update(bytes.data(), bytes.size());
  }
  text.hash = hasher.digest();
  text.intervals = character_intervals(*tokenizer, std::span(ids).first(static_cast<std::size_t>(text.tokens)));
  return text;
}

/// Returns the set with the texts of the file in their order.
KeySet fitted(const KeySet& given, const std::vector<LongText>& texts, const std::string& unit) {
  if (given.unit != unit) {
    fail(ExitCode::data,
         "--key-tokens: the set of {} counts in {}, but this text in {}: the tokenizers of both models must be there, "
         "or of neither",
         given.evaluator, given.unit, unit);
  }
  std::map<std::string, const KeySet::Text*> known;
  for (const KeySet::Text& one : given.texts) known.emplace(one.hash, &one);
  KeySet set{given.evaluator, given.unit, given.options, {}};
  for (const LongText& text : texts) {
    const auto found = known.find(text.hash);
    if (found == known.end()) {
      fail(ExitCode::data,
           "--key-tokens: the set of {} has {}, but not document {} of the file: score the same documents, with the "
           "same longest context length and targets",
           given.evaluator, counted(std::ssize(given.texts), "text"), text.document);
    }
    set.texts.push_back(*found->second);
  }
  return set;
}

/// What a pass finds of the tokens that it scores: their nll in the text, in the text after the begin token, in a short
/// window. A text that no begin token precedes is read once for the first two.
enum class PassKind { text, contrast, shortened };
constexpr std::int64_t values_per_token = 4;  // of each kind, and the weight

struct Pass {
  std::int64_t text = 0;
  ShortWindow window;  // of the text, behind a begin token if it has one; a whole text scores all but its first token
  PassKind kind = PassKind::text;
};

std::vector<Pass> passes_of(const LongPplTexts& texts) {
  std::vector<Pass> passes;
  const std::int64_t added = texts.begin_token.has_value();
  for (std::int64_t i = 0; i < std::ssize(texts.texts); ++i) {
    const std::int64_t tokens = texts.texts[i].tokens;
    passes.push_back({i, {0, tokens, tokens - 1}, PassKind::text});
    if (!texts.finds()) continue;
    if (added) passes.push_back({i, {-1, tokens + 1, tokens}, PassKind::contrast});
    for (ShortWindow window : short_windows(tokens + added, texts.set.options)) {
      window.begin -= added;
      passes.push_back({i, window, PassKind::shortened});
    }
  }
  return passes;
}

/// Sums up a text, and finds its key tokens if they are not known. values: of its tokens.
LongPplSums sums_of(const LongText& text, const double* values, const LongPplTexts& texts, KeySet::Text& set) {
  const auto at = [&](std::int64_t token) { return values + token * values_per_token; };
  const auto nll = [&](std::int64_t token, PassKind kind) { return at(token)[static_cast<int>(kind)]; };
  const auto weight = [&](std::int64_t token) { return at(token)[values_per_token - 1]; };
  if (texts.finds()) {
    const KeyTokenOptions& options = texts.set.options;
    const PassKind whole = texts.begin_token ? PassKind::contrast : PassKind::text;
    std::vector<TextInterval> key;
    for (std::int64_t token = options.trunc_len - texts.begin_token.has_value(); token < text.tokens; ++token) {
      const bool found = is_key(nll(token, PassKind::shortened), nll(token, whole), options);
      if (weight(token) > 0 && found) key.push_back(text.intervals[token]);
    }
    set = {text.hash, text.intervals.empty() ? 0 : text.intervals.back().end, merged(key)};
  }
  LongPplSums sums{.document = text.document, .tokens = text.tokens};
  for (std::int64_t token = 1; token < text.tokens; ++token) {
    sums.nll += weight(token) * nll(token, PassKind::text);
    sums.weight += weight(token);
  }
  for (const std::int64_t token : tokens_within(text.intervals, set.key)) {
    if (token == 0 || weight(token) == 0) continue;  // nothing predicts the first one
    sums.key_nll += weight(token) * nll(token, PassKind::text);
    sums.key_weight += weight(token);
    ++sums.key_tokens;
  }
  return sums;
}

/// Returns the sums of all texts. values: of each token; first: the first token of each text.
LongPplResult result_of(const LongPplTexts& texts, const std::string& evaluator, const std::vector<double>& values,
                        const std::vector<std::int64_t>& first) {
  LongPplResult result;
  result.set = texts.set;
  result.own_contrast = texts.finds();
  if (texts.finds()) {
    result.set.evaluator = evaluator;
    result.set.texts.resize(texts.texts.size());
  }
  std::vector<DocumentSum> key, all;
  for (std::size_t i = 0; i < texts.texts.size(); ++i) {
    const LongText& text = texts.texts[i];
    const LongPplSums sums = sums_of(text, values.data() + first[i] * values_per_token, texts, result.set.texts[i]);
    result.texts.push_back(sums);
    result.key_tokens += sums.key_tokens;
    result.tokens += sums.tokens;
    if (sums.key_weight > 0) key.push_back({text.document, sums.key_nll, sums.key_weight});
    if (sums.weight > 0) all.push_back({text.document, sums.nll, sums.weight});
  }
  result.key_nll = estimate_over(key);
  result.nll = estimate_over(all);
  if (!std::isfinite(result.nll.value)) {
    fail(ExitCode::numeric, "--longppl: the mean loss of the texts is {}: the weights are not usable",
         result.nll.value);
  }
  return result;
}

/// Returns the texts of the targets' documents; the longest context and trunc_len count the targets' begin token, which
/// belongs to no text. tokenizer: that of the file; null: intervals are in tokens. given: a
/// saved set, or null. Throws Error(usage) if no text is longer than options.trunc_len and none was given, Error(data)
/// if the set has not the same texts or another unit.
LongPplTexts long_texts(const TokenFile& file, const EvaluationTargets& targets, std::int64_t longest,
                        const KeyTokenOptions& options, const Tokenizer* tokenizer, const KeySet* given) {
  LongPplTexts result;
  result.set.unit = tokenizer == nullptr ? "tokens" : "characters";
  result.set.options = options;
  result.begin_token = targets.request.begin_token;
  std::set<std::int64_t> documents;
  for (const TargetBlock& block : targets.blocks) documents.insert(block.document);
  std::int64_t most = 0;
  for (const std::int64_t document : documents) {
    LongText text = text_of(file, document, longest, tokenizer, result.begin_token);
    most = std::max(most, text.tokens + result.begin_token.has_value());
    if (text.tokens >= 2) result.texts.push_back(std::move(text));
  }
  if (given != nullptr) {
    result.set = fitted(*given, result.texts, result.set.unit);
  } else if (most <= options.trunc_len) {
    fail(ExitCode::usage,
         "--longppl: the longest text has {} tokens, no more than --trunc-len {}, so no token has a long and a short "
         "context; give a longer --context-lengths, or a smaller --trunc-len",
         most, options.trunc_len);
  }
  return result;
}

/// Collective over state.world: all ranks pass the same and get the same. The model reads every text once, and, where
/// key tokens are to be found, each short window. progress may be null; every rank calls it with a sequence's tokens.
LongPplResult evaluate_long_perplexity(RankState& state, const TokenFile& file, const LongPplTexts& texts,
                                       const std::string& evaluator,
                                       const std::function<void(std::int64_t tokens)>& progress) {
  const std::vector<Pass> passes = passes_of(texts);
  std::vector<ReadSpan> spans;
  for (const auto& [text, window, kind] : passes) {
    // One label more than is scored: the last token is read, too, as longppl reads it.
    spans.push_back({texts.texts[text].begin + window.begin, window.length, window.scored + 1, {}});
    if (window.begin < 0) spans.back().begin_token = texts.begin_token;
  }
  std::vector<std::int64_t> first{0};  // token of each text
  for (const LongText& text : texts.texts) first.push_back(first.back() + text.tokens);
  std::vector<double> values(first.back() * values_per_token, 0.0);  // each by the rank that holds it
  const auto score = [&](std::int64_t index) {
    const auto& [text, window, kind] = passes[index];
    const TensorView nll = state.evaluation_nll.view().prefix({1, state.batch.T});
    state.model->evaluate(state.batch, nll);
    for_each_target(state.batch, [&](const BatchTarget& one) {
      const std::int64_t target = one.position + 1;
      if (target < window.length - window.scored || target == window.length) return;
      double* const to = values.data() + (first[text] + window.begin + target) * values_per_token;
      to[static_cast<int>(kind)] = nll.as<double>()[one.t];
      if (kind == PassKind::text) to[values_per_token - 1] = one.weight;
    });
    if (progress) progress(window.length);
  };
  for_each_span(state, file, spans, {score, [&] { state.model->evaluate_nothing(); }});
  all_reduce_sum(*state.world, std::span<double>(values), {"LongPPL"});
  return result_of(texts, evaluator, values, first);
}

/// Returns the object of `evaluate --output`: names are those of longppl, what does not exist is null.
nlohmann::ordered_json long_ppl_json(const LongPplResult& result) {
  nlohmann::ordered_json json{{"longppl", std::exp(result.key_nll.value)},
                              {"n_key_token", result.key_tokens},
                              {"ppl", std::exp(result.nll.value)},
                              {"n_token", result.tokens},
                              {"key_nll", result.key_nll.value},
                              {"key_ci95", {result.key_nll.ci95.low, result.key_nll.ci95.high}},
                              {"nll", result.nll.value},
                              {"ci95", {result.nll.ci95.low, result.nll.ci95.high}},
                              {"evaluator", result.set.evaluator},
                              {"own_contrast", result.own_contrast},
                              {"trunc_len", result.set.options.trunc_len},
                              {"sliding_window", result.set.options.sliding_window},
                              {"alpha", result.set.options.alpha},
                              {"beta", result.set.options.beta},
                              {"documents", nlohmann::ordered_json::array()}};
  for (const LongPplSums& text : result.texts) {
    json["documents"].push_back({{"document", text.document},
                                 {"longppl", std::exp(text.key_nll / text.key_weight)},
                                 {"n_key_token", text.key_tokens},
                                 {"ppl", std::exp(text.nll / text.weight)},
                                 {"n_token", text.tokens}});
  }
  return json;
}

/// Returns lines for people. intervals: whether documents are enough for them.
std::string long_ppl_lines(const LongPplResult& result, bool intervals) {
  const KeyTokenOptions& options = result.set.options;
  const auto interval = [&](const Estimate& estimate) {
    return intervals ? fmt::format(" [{:.4f}, {:.4f}]", std::exp(estimate.ci95.low), std::exp(estimate.ci95.high)) : "";
  };
  std::string text = "\nLongPPL: the perplexity of key tokens\n\n";
  text += result.key_tokens > 0 ? fmt::format("longppl {:.4f}{} over {}; ", std::exp(result.key_nll.value),
                                              interval(result.key_nll), counted(result.key_tokens, "key token"))
                                : std::string("no key token; ");
  text += fmt::format("ppl {:.4f}{} over all {} tokens of {}\n", std::exp(result.nll.value), interval(result.nll),
                      result.tokens, counted(std::ssize(result.texts), "text"));
  text += fmt::format(
      "Key by the contrast of {}: {}.\nKey: nll falls by more than {} from a context of {} to {} tokens to the whole "
      "text, to less than {}.\n",
      result.own_contrast ? "this model itself" : "another model", result.set.evaluator, options.alpha,
      options.trunc_len, options.trunc_len + options.sliding_window - 1, -options.beta);
  if (result.own_contrast) {
    text += "Another model has other key tokens: compare models on one set (--save-path, --key-tokens).\n";
  }
  return text;
}

class PreparedLongPpl : public PreparedMetric {
 public:
  PreparedLongPpl(const EvaluationSubject& subject, LongPplTexts texts) : subject_(subject), texts_(std::move(texts)) {}
  std::string identity() const override { return key_set_text(texts_.set); }
  std::int64_t sequences() const override { return std::ssize(passes_of(texts_)); }
  MetricResult evaluate(RankState& state, TargetScorer* /*scorer*/,
                        const std::function<void(std::int64_t)>& progress) const override {
    const LongPplResult result = evaluate_long_perplexity(state, subject_.file, texts_, subject_.source.path, progress);
    return {std::make_shared<const nlohmann::ordered_json>(long_ppl_json(result)),
            long_ppl_lines(result, subject_.targets.documents >= min_documents), key_set_text(result.set)};
  }

 private:
  const EvaluationSubject subject_;
  const LongPplTexts texts_;
};

class LongPplMetric : public EvaluationMetric {
 public:
  explicit LongPplMetric(LongPplRequest request) : request_(std::move(request)) {
    if (!request_.key_tokens.empty()) given_ = read_key_set(request_.key_tokens);
  }
  std::string name() const override { return "longppl"; }
  std::vector<std::string> inputs() const override {
    return given_ ? std::vector{request_.key_tokens} : std::vector<std::string>{};
  }
  std::optional<MetricOutput> output() const override {
    if (request_.save_path.empty()) return std::nullopt;
    return MetricOutput{
        request_.save_path, {"the key tokens of an evaluation", "--save-path"}, OutputMark::begins(key_set_head)};
  }
  std::unique_ptr<PreparedMetric> prepare(const EvaluationSubject& subject) const override {
    std::unique_ptr<Tokenizer> tokenizer = load_model_tokenizer(subject.source);
    if (!tokenizer && subject.file.tokenizer_hash() == read_tokenizer_identity("bytes")) {
      tokenizer = load_tokenizer("bytes");
    }
    return std::make_unique<PreparedLongPpl>(
        subject, long_texts(subject.file, subject.targets, subject.targets.request.context_lengths.back(),
                            request_.options, tokenizer.get(), given_ ? &*given_ : nullptr));
  }

 private:
  LongPplRequest request_;
  std::optional<KeySet> given_;
};

}  // namespace

std::shared_ptr<const EvaluationMetric> long_perplexity(LongPplRequest request) {
  return std::make_shared<LongPplMetric>(std::move(request));
}

}  // namespace ringtrain
