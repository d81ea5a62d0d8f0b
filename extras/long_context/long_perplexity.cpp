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

/// The part of a document's text that the model reads.
struct LongText {
  std::int64_t document = 0;            // of the file
  std::int64_t begin = 0, tokens = 0;   // in the file, without a begin token
  std::string hash;                     // of the whole document's text
  std::vector<TextInterval> intervals;  // of each token
};

/// The result of a text, with the file's weights.
struct TextScore {
  DocumentSum all, key;
  std::int64_t key_tokens = 0;
};

/// Returns the text of a document, with the hash of all of it and the intervals of the part that is read.
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
         "--key-tokens: the set of {} counts in {}, but this text is counted in {}: either both models need their "
         "tokenizer, or neither may have one",
         given.evaluator, given.unit, unit);
  }
  std::map<std::string, const KeySet::Text*> known;
  for (const KeySet::Text& text : given.texts) known.emplace(text.hash, &text);
  KeySet set{given.evaluator, given.unit, given.options, {}};
  for (const LongText& text : texts) {
    const auto found = known.find(text.hash);
    if (found == known.end()) {
      fail(ExitCode::data,
           "--key-tokens: the set of {} has {}, but not document {} of the file; score the same documents, with the "
           "same longest context length and targets",
           given.evaluator, counted(std::ssize(given.texts), "text"), text.document);
    }
    set.texts.push_back(*found->second);
  }
  return set;
}

/// What a pass computes for the tokens that it scores: their nll in the text, in the text after the begin token, or in
/// a short window. Without a begin token, a text is read once for the first two.
enum class PassKind { text, contrast, shortened };
constexpr std::int64_t values_per_token = 4;  // of each kind, and the weight

struct Pass {
  std::int64_t text = 0;
  ShortWindow window;  // of the text, after a begin token if it has one; a whole text scores all but its first token
  PassKind kind = PassKind::text;
};

/// values: those of the text's tokens.
TextScore score_of(const LongText& text, const double* values, const KeySet::Text& set) {
  const auto nll = [&](std::int64_t token) { return values[token * values_per_token]; };  // in the text
  const auto weight = [&](std::int64_t token) { return values[(token + 1) * values_per_token - 1]; };
  TextScore score{.all = {.document = text.document}, .key = {.document = text.document}};
  for (std::int64_t token = 1; token < text.tokens; ++token) {
    score.all.sum += weight(token) * nll(token);
    score.all.weight += weight(token);
  }
  for (const std::int64_t token : tokens_within(text.intervals, set.key)) {
    if (token == 0 || weight(token) == 0) continue;  // nothing predicts the first one
    score.key.sum += weight(token) * nll(token);
    score.key.weight += weight(token);
    ++score.key_tokens;
  }
  return score;
}

/// The texts of the targets' documents. The longest context and trunc_len include the targets' begin token, which
/// belongs to no text.
class PreparedLongPpl : public PreparedMetric {
 public:
  /// tokenizer: that of the file; null: intervals are in tokens. given: a saved set, or null. Throws Error(usage) if no
  /// text is longer than options.trunc_len and no set was given, and Error(data) if the set has other texts or another
  /// unit.
  PreparedLongPpl(const EvaluationSubject& subject, const KeyTokenOptions& options, const Tokenizer* tokenizer,
                  const KeySet* given)
      : subject_(subject), begin_token_(subject.targets.request.begin_token) {
    set_.unit = tokenizer == nullptr ? "tokens" : "characters";
    set_.options = options;
    std::set<std::int64_t> documents;
    for (const TargetBlock& block : subject.targets.blocks) documents.insert(block.document);
    const std::int64_t longest = subject.targets.request.context_lengths.back();
    std::int64_t most = 0;
    for (const std::int64_t document : documents) {
      LongText text = text_of(subject.file, document, longest, tokenizer, begin_token_);
      most = std::max(most, text.tokens + begin_token_.has_value());
      if (text.tokens >= 2) texts_.push_back(std::move(text));
    }
    if (given != nullptr) {
      set_ = fitted(*given, texts_, set_.unit);
    } else if (most <= options.trunc_len) {
      fail(ExitCode::usage,
           "--longppl: the longest text has {} tokens, no more than --trunc-len {}, so no token has a long and a short "
           "context; give a longer --context-lengths, or a smaller --trunc-len",
           most, options.trunc_len);
    }
  }
  std::string identity() const override { return key_set_text(set_); }
  std::int64_t sequences() const override { return std::ssize(passes()); }
  /// Runs the model on every text once and, to find key tokens, on each short window.
  MetricResult evaluate(RankState& state, TargetScorer* /*scorer*/,
                        const std::function<void(std::int64_t)>& progress) const override {
    return result_of(token_values(state, progress));
  }

 private:
  bool finds() const { return set_.texts.empty(); }
  std::vector<Pass> passes() const {
    std::vector<Pass> passes;
    const std::int64_t added = begin_token_.has_value();
    for (std::int64_t i = 0; i < std::ssize(texts_); ++i) {
      const std::int64_t tokens = texts_[i].tokens;
      passes.push_back({i, {0, tokens, tokens - 1}, PassKind::text});
      if (!finds()) continue;
      if (added) passes.push_back({i, {-1, tokens + 1, tokens}, PassKind::contrast});
      for (ShortWindow window : short_windows(tokens + added, set_.options)) {
        window.begin -= added;
        passes.push_back({i, window, PassKind::shortened});
      }
    }
    return passes;
  }

  /// Collective over state.world. Returns values_per_token of each token of all texts.
  std::vector<double> token_values(RankState& state, const std::function<void(std::int64_t)>& progress) const {
    const std::vector<Pass> all = passes();
    std::vector<ReadSpan> spans;
    for (const auto& [text, window, kind] : all) {
      // One more label than is scored: the last token is also read, as in longppl.
      spans.push_back({texts_[text].begin + window.begin, window.length, window.scored + 1, {}});
      if (window.begin < 0) spans.back().begin_token = begin_token_;
    }
    std::vector<std::int64_t> first{0};  // token of each text
    for (const LongText& text : texts_) first.push_back(first.back() + text.tokens);
    std::vector<double> values(first.back() * values_per_token, 0.0);  // each from the rank that has it
    const auto score = [&](std::int64_t index) {
      const auto& [text, window, kind] = all[index];
      const TensorView nll = state.evaluation_nll.view().prefix({1, state.batch.T});
      state.model->evaluate(state.batch, nll);
      for_each_target(state.batch, [&](const BatchTarget& target) {
        const std::int64_t token = target.position + 1;
        if (token < window.length - window.scored || token == window.length) return;
        double* const to = values.data() + (first[text] + window.begin + token) * values_per_token;
        to[static_cast<int>(kind)] = nll.as<double>()[target.t];
        if (kind == PassKind::text) to[values_per_token - 1] = target.weight;
      });
      if (progress) progress(window.length);
    };
    for_each_span(state, subject_.file, spans, {score, [&] { state.model->evaluate_nothing(); }});
    all_reduce_sum(*state.world, std::span<double>(values), {"LongPPL"});
    return values;
  }

  /// Finds a text's key tokens. values: those of its tokens.
  KeySet::Text key_tokens_of(const LongText& text, const double* values) const {
    const PassKind whole = begin_token_ ? PassKind::contrast : PassKind::text;
    std::vector<TextInterval> key;
    for (std::int64_t token = set_.options.trunc_len - begin_token_.has_value(); token < text.tokens; ++token) {
      const double* const scores = values + token * values_per_token;
      const double shortened = scores[static_cast<int>(PassKind::shortened)], in_text = scores[static_cast<int>(whole)];
      if (scores[values_per_token - 1] > 0 && is_key(shortened, in_text, set_.options))
        key.push_back(text.intervals[token]);
    }
    return {text.hash, text.intervals.empty() ? 0 : text.intervals.back().end, merged(key)};
  }

  /// Returns the result for all texts. values: those of their tokens.
  MetricResult result_of(const std::vector<double>& values) const {
    KeySet set = set_;
    if (finds()) set.evaluator = subject_.source.path;
    std::vector<DocumentSum> key, all;
    std::int64_t key_tokens = 0, tokens = 0;
    auto documents = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const LongText& text = texts_[i];
      const double* const of_text = values.data() + tokens * values_per_token;
      if (finds()) set.texts.push_back(key_tokens_of(text, of_text));
      const TextScore score = score_of(text, of_text, set.texts[i]);
      key_tokens += score.key_tokens;
      tokens += text.tokens;
      if (score.key.weight > 0) key.push_back(score.key);
      if (score.all.weight > 0) all.push_back(score.all);
      documents.push_back({{"document", text.document},
                           {"longppl", std::exp(score.key.sum / score.key.weight)},
                           {"n_key_token", score.key_tokens},
                           {"ppl", std::exp(score.all.sum / score.all.weight)},
                           {"n_token", text.tokens}});
    }
    const Estimate key_nll = estimate_over(key), nll = estimate_over(all);
    if (!std::isfinite(nll.value)) {
      fail(ExitCode::numeric, "--longppl: the loss is {}: damaged weights, or an overflow (try float32)", nll.value);
    }
    // The names are those of longppl; a missing value is null.
    auto json = std::make_shared<nlohmann::ordered_json>();
    *json = {{"longppl", std::exp(key_nll.value)},
             {"n_key_token", key_tokens},
             {"ppl", std::exp(nll.value)},
             {"n_token", tokens},
             {"key_nll", key_nll.value},
             {"key_ci95", {key_nll.ci95.low, key_nll.ci95.high}},
             {"nll", nll.value},
             {"ci95", {nll.ci95.low, nll.ci95.high}},
             {"evaluator", set.evaluator},
             {"own_contrast", finds()},
             {"trunc_len", set.options.trunc_len},
             {"sliding_window", set.options.sliding_window},
             {"alpha", set.options.alpha},
             {"beta", set.options.beta},
             {"documents", std::move(documents)}};
    return {json, lines_of(*json), key_set_text(set)};
  }

  /// Returns lines for people.
  std::string lines_of(const nlohmann::ordered_json& json) const {
    const auto number = [&](const char* name) { return json[name].get<double>(); };
    const auto count = [&](const char* name) { return json[name].get<std::int64_t>(); };
    const auto perplexity = [&](const char* name, const char* interval) {
      std::string text = fmt::format("{} {:.4f}", name, number(name));
      if (subject_.targets.documents < min_documents) return text;
      const double low = json[interval][0], high = json[interval][1];
      return text + fmt::format(" [{:.4f}, {:.4f}]", std::exp(low), std::exp(high));
    };
    std::string text = "\nLongPPL: the perplexity of key tokens\n\n";
    text += count("n_key_token") > 0 ? fmt::format("{} over {}; ", perplexity("longppl", "key_ci95"),
                                                   counted(count("n_key_token"), "key token"))
                                     : std::string("no key tokens; ");
    text += fmt::format("{} over all {} tokens of {}\n", perplexity("ppl", "ci95"), count("n_token"),
                        counted(std::ssize(texts_), "text"));
    text += fmt::format(
        "Key tokens were found by {}: {}.\nA token is a key token if its nll falls by more than {} when its context "
        "grows from {}-{} tokens to the whole text, and is then below {}.\n",
        finds() ? "this model itself" : "another model", json["evaluator"].get<std::string>(), number("alpha"),
        count("trunc_len"), count("trunc_len") + count("sliding_window") - 1, -number("beta"));
    if (!finds()) return text;
    return text + "Another model has other key tokens; compare models on one set (--save-path, --key-tokens).\n";
  }

  const EvaluationSubject subject_;
  const std::optional<std::int32_t> begin_token_;  // before the texts in which key tokens are searched
  std::vector<LongText> texts_;                    // by document
  KeySet set_;                                     // the key tokens to score; without texts, they must be found
};

}  // namespace

EvaluationMetric long_perplexity(const LongPplRequest& request) {
  std::optional<KeySet> given;
  std::vector<std::string> inputs;
  if (!request.key_tokens.empty()) {
    given = read_key_set(request.key_tokens);
    inputs.push_back(request.key_tokens);
  }
  std::optional<MetricOutput> output;
  if (!request.save_path.empty()) {
    output = {request.save_path, {"a set of key tokens", "--save-path"}, OutputMark::begins(key_set_head)};
  }
  const auto prepare = [given, options = request.options](const EvaluationSubject& subject) {
    std::unique_ptr<Tokenizer> tokenizer = load_model_tokenizer(subject.source);
    if (!tokenizer && subject.file.tokenizer_hash() == read_tokenizer_identity("bytes")) {
      tokenizer = load_tokenizer("bytes");
    }
    return std::make_unique<PreparedLongPpl>(subject, options, tokenizer.get(), given ? &*given : nullptr);
  };
  return {.name = "longppl", .prepare = prepare, .inputs = [inputs] { return inputs; }, .output = output};
}

}  // namespace ringtrain
