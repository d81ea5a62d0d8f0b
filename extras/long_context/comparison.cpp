#include "extras/long_context/comparison.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "extras/long_context/logits_scores.h"
#include "framework/error.h"
#include "framework/standard_streams.h"
#include "layers/logits_pass.h"
#include "layers/model_parameters.h"
#include "parallel/collectives.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/evaluation/evaluation_report.h"
#include "train/evaluation/evaluator.h"
#include "train/evaluation/passes/batch_targets.h"
#include "train/models/load_weights.h"
#include "train/models/model_tokenizer.h"
#include "train/run/run_folder.h"

namespace ringtrain {

namespace {

/// Adds the results of a column of sums for the two models: means over targets, paired by document. sums: those of the
/// first block; stride: from one block to the next.
nlohmann::ordered_json with_numbers(nlohmann::ordered_json json, const double* sums, std::int64_t stride,
                                    std::span<const std::int64_t> documents) {
  std::vector<DocumentSum> against, difference, kl;
  double targets = 0;
  for (const std::int64_t document : documents) {
    const double weight = sums[0], nll = sums[2], others = sums[3], divergence = sums[4];
    targets += sums[1];
    sums += stride;
    if (weight == 0) continue;
    against.push_back({document, others, weight});
    difference.push_back({document, nll - others, weight});
    kl.push_back({document, divergence, weight});
  }
  json["targets"] = std::llround(targets);
  const auto add = [&](const char* name, const char* interval, const std::vector<DocumentSum>& by_document) {
    const Estimate estimate = estimate_over(by_document);
    json[name] = estimate.value;
    json[interval] = {estimate.ci95.low, estimate.ci95.high};
  };
  add("against_nll", "against_ci95", against);
  add("difference_nll", "difference_ci95", difference);
  add("kl", "kl_ci95", kl);
  return json;
}

/// Returns a row of the table for users. intervals: whether there are enough documents for them.
std::string table_row(std::int64_t length, const std::string& position, const nlohmann::ordered_json& at,
                      bool intervals) {
  const auto number = [&](const char* name) { return at[name].get<double>(); };
  const auto interval = [&](const char* name) {
    return intervals ? fmt::format("[{:.4f}, {:.4f}]", at[name][0].get<double>(), at[name][1].get<double>()) : "-";
  };
  return fmt::format("{:>9}  {:>15}  {:>9}  {:>9.4f}  {:>10}  {:>20}  {:>9.6f}  {:>18}\n", length, position,
                     at["targets"].get<std::int64_t>(), number("against_nll"),
                     fmt::format("{:+.4f}", number("difference_nll")), interval("difference_ci95"), number("kl"),
                     interval("kl_ci95"));
}

/// The other model, under the config of the checkpoint's evaluation.
struct ComparedModel {
  ModelSource source;
  Config config;
  ParameterTable table;
};

/// Scores the targets with both models on one rank. In addition to the other model, it holds 16 bytes for each token of
/// the rank's sequence, and 40 for each length, block, and bucket.
class Comparison : public TargetScorer {
 public:
  /// Collective over the world of `state`, whose thread pool and communicator the other model shares.
  Comparison(const ComparedModel& other, const RankPurpose& purpose, const EvaluationTargets& targets, RankState& state)
      : path_(other.source.path),
        other_(other.config, other.table, purpose, state.world->rank(), Device::cpu(), state.stream.pool(),
               state.world),
        lengths_(targets.request.context_lengths),
        blocks_(std::ssize(targets.blocks)),
        columns_(targets.request.by_position ? position_bucket(lengths_.back()) + 2 : 1),
        other_nll_(other_.evaluation_nll.view().numel()),
        divergence_(other_nll_.size()),
        sums_(std::ssize(lengths_) * blocks_ * columns_ * values, 0.0) {
    load_weights(other_, &other.source);
  }

  /// Runs state.batch through both models. nll receives the checkpoint's.
  void score(RankState& state, const TensorView& nll) override {
    // Both get their head's weights before the first chunk, because all ranks must gather in one order, even if their
    // rows differ.
    const LogitsPass own_pass = state.model->begin_logits(state.batch);
    const LogitsPass others = other_.model->begin_logits(state.batch);
    const std::int64_t rows = state.batch.T, chunk = std::min(own_pass.most_rows, others.most_rows);
    const auto* const labels = state.batch.labels().as<std::int32_t>();
    auto* const own_nll = nll.as<double>();
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
      const std::int64_t end = std::min(rows, begin + chunk);
      std::fill(own_nll + begin, own_nll + end, 0.0);
      if (std::none_of(labels + begin, labels + end, [](std::int32_t label) { return label >= 0; })) continue;
      const TensorView own_logits = own_pass.rows(begin, end), other_logits = others.rows(begin, end);
      const std::int64_t V = own_logits.dim(1);
      dispatch_dtype(own_logits.dtype, [&]<class S, class>() {
        state.stream.pool().run(end - begin, [&](std::int64_t row, int) {
          const std::int64_t t = begin + row;
          if (labels[t] < 0) return;
          const S* const from = other_logits.as<S>() + row * V;
          const S* const to = own_logits.as<S>() + row * V;
          const double from_sum = log_sum_exp(from, V), to_sum = log_sum_exp(to, V);
          own_nll[t] = to_sum - static_cast<double>(widened(to[labels[t]]));
          other_nll_[t] = from_sum - static_cast<double>(widened(from[labels[t]]));
          divergence_[t] = divergence(from, from_sum, to, to_sum, V);
        });
      });
    }
  }

  void score_nothing(RankState& state) override {
    state.model->evaluate_nothing();
    other_.model->evaluate_nothing();
  }

  /// Adds the targets of a block and, on request, all other predictions by position.
  void add(std::int64_t i, std::int64_t block, const Batch& batch, const TensorView& nll,
           std::int64_t first_target) override {
    for_each_target(batch, [&](const BatchTarget& target) {
      const auto add_to = [&](double* sums) {
        sums[0] += target.weight;
        sums[1] += 1;
        sums[2] += target.weight * nll.as<double>()[target.t];
        sums[3] += target.weight * other_nll_[target.t];
        sums[4] += target.weight * divergence_[target.t];
      };
      if (target.position >= first_target) add_to(at(i, block, 0));
      if (columns_ > 1) add_to(at(i, block, 1 + position_bucket(target.position + 1)));
    });
  }

  /// Collective, at the end. Returns the result for the targets of all ranks.
  MetricResult finish(const EvaluationTargets& targets) {
    all_reduce_sum(*other_.world, std::span<double>(sums_), {"comparison of two models"});
    other_.close();
    const std::vector<std::int64_t> documents = documents_of(targets);
    const bool intervals = targets.documents >= min_documents;
    auto json = std::make_shared<nlohmann::ordered_json>();
    *json = {{"checkpoint", path_}, {"results", nlohmann::ordered_json::array()}};
    std::string rows;
    for (std::int64_t i = 0; i < std::ssize(lengths_); ++i) {
      const auto column = [&](nlohmann::ordered_json head, std::int64_t column_index) {
        return with_numbers(std::move(head), at(i, 0, column_index), columns_ * values, documents);
      };
      nlohmann::ordered_json row = column({{"context_length", lengths_[i]}}, 0);
      const double nll = row["against_nll"], kl = row["kl"];
      if (!std::isfinite(nll) || !std::isfinite(kl)) {
        fail(ExitCode::numeric,
             "--against: at context length {}, the other model's loss is {} and the divergence is {}: damaged weights, "
             "or an overflow in this dtype (try float32)",
             lengths_[i], nll, kl);
      }
      rows += table_row(lengths_[i], "targets", row, intervals);
      for (std::int64_t bucket = 0; bucket + 1 < columns_; ++bucket) {
        const std::int64_t first = bucket == 0 ? 1 : (std::int64_t{1} << (bucket - 1)) + 1,
                           last = std::min(std::int64_t{1} << bucket, lengths_[i]);
        nlohmann::ordered_json some = column({{"first", first}, {"last", last}}, bucket + 1);
        if (some["targets"] == 0) continue;
        rows += table_row(lengths_[i], fmt::format("{}-{}", first, last), some, intervals);
        row["by_position"].push_back(std::move(some));
      }
      (*json)["results"].push_back(std::move(row));
    }
    return {
        std::move(json),
        fmt::format(
            "\nAgainst {}, on the same targets\n\n{:>9}  {:>15}  {:>9}  {:>9}  {:>10}  {:>20}  {:>9}  {:>18}\n{}\n"
            "its nll: nll of the other model; difference: nll of the checkpoint minus its nll, paired by document;\n"
            "KL: divergence of the checkpoint's predictions from the other's, KL(other || checkpoint), nats per "
            "target\n",
            path_, "context", "position", "targets", "its nll", "difference", "95% CI", "KL", "95% CI", rows),
        {}};
  }

 private:
  double* at(std::int64_t i, std::int64_t block, std::int64_t column) {
    return sums_.data() + ((i * blocks_ + block) * columns_ + column) * values;
  }

  static constexpr std::int64_t values = 5;  // weight, targets, nll, nll of the other, divergence
  const std::string path_;                   // of the other model
  RankState other_;
  const std::vector<std::int64_t> lengths_;
  const std::int64_t blocks_, columns_;  // column 0: the targets; then the buckets of positions
  std::vector<double> other_nll_, divergence_, sums_;
};

/// Returns a description of how a tokenizer begins a text.
std::string begin_text(const Tokenizer& tokenizer) {
  const std::optional<std::int32_t> begin = tokenizer.begin_of_text();
  return begin ? fmt::format("token {}", *begin) : "no token";
}

/// Throws Error(usage) if the models' tokenizers begin texts differently, and the user does not say how windows begin.
void check_begin_tokens(const ModelSource& other, const EvaluationSubject& subject) {
  if (subject.begin_token_given) return;
  const auto tokenizer = load_model_tokenizer(subject.source), another = load_model_tokenizer(other);
  if (!tokenizer || !another || tokenizer->begin_of_text() == another->begin_of_text()) return;
  fail(ExitCode::usage,
       "--against {}: its tokenizer begins a text with {}, that of {} with {}; set what windows begin with for both: "
       "--begin-token none or --begin-token ID",
       other.path, begin_text(*another), subject.source.path, begin_text(*tokenizer));
}

/// Throws Error(usage) unless both models predict the same tokens.
void check_tokens_of(const ModelSource& other, const EvaluationSubject& subject) {
  const ModelSource& source = subject.source;
  if (other.model.vocab_size != subject.config.model.vocab_size) {
    fail(ExitCode::usage,
         "--against {}: its vocabulary has {} tokens, but that of {} has {}, so their predictions cannot be compared",
         other.path, other.model.vocab_size, source.path, subject.config.model.vocab_size);
  }
  check_tokens(other, subject.file);
  const std::string hash = tokenizer_identity(source), other_hash = tokenizer_identity(other);
  if (!hash.empty() && !other_hash.empty() && hash != other_hash) {
    fail(ExitCode::usage, "--against {}: it has another tokenizer than {} (hashes {} and {})", other.path, source.path,
         other_hash, hash);
  }
}

class PreparedAgainst : public PreparedMetric {
 public:
  PreparedAgainst(const std::string& path, const EvaluationSubject& subject)
      : subject_(subject), other_{open_model(path), subject.config, {}} {
    check_tokens_of(other_.source, subject);
    check_begin_tokens(other_.source, subject);
    other_.config.model = other_.source.model;
    other_.table = make_parameter_table(other_.config.model);
    check_lengths(subject.targets.request, other_.config);
    std::vector<std::string> remarks = other_.source.logs;
    const std::int64_t longest = subject.targets.request.context_lengths.back();
    if (const auto beyond = beyond_context(other_.source, longest, "--context-lengths")) remarks.push_back(*beyond);
    for (const std::string& line : remarks) write_message(stderr, fmt::format("evaluate: --against: {}\n", line));
  }

  std::string identity() const override { return other_.source.identity; }
  std::vector<RankPlan> plans(const RankPurpose& purpose) const override {
    return plan_ranks(other_.config, other_.table, purpose);
  }
  std::unique_ptr<TargetScorer> make_scorer(RankState& state, const RankPurpose& purpose) const override {
    return std::make_unique<Comparison>(other_, purpose, subject_.targets, state);
  }
  MetricResult evaluate(RankState& /*state*/, TargetScorer* scorer,
                        const std::function<void(std::int64_t)>& /*progress*/) const override {
    return static_cast<Comparison*>(scorer)->finish(subject_.targets);
  }

 private:
  const EvaluationSubject subject_;
  ComparedModel other_;
};

}  // namespace

EvaluationMetric against_model(const std::string& path) {
  const auto prepare = [path](const EvaluationSubject& subject) {
    if (subject.config.training.device == Device::Kind::cuda) {
      fail(ExitCode::usage, "--against: the logits of two models are compared on the CPU; give --device cpu");
    }
    return std::make_unique<PreparedAgainst>(path, subject);
  };
  return {.name = "against", .prepare = prepare, .inputs = [path] { return files_of_model(path); }};
}

}  // namespace ringtrain
