#include "train/evaluation/evaluator.h"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <type_traits>

#include "parallel/collectives.h"
#include "parallel/shared_error.h"
#include "train/evaluation/evaluation_metric.h"
#include "train/evaluation/passes/batch_targets.h"
#include "train/evaluation/passes/shared_spans.h"

namespace ringtrain {

namespace {

/// Adds this rank's part of the batch's one sequence, from position `first` on. nll is float64 [1, T] on the host.
/// bytes_per_token: of the block's document.
void add_shard(BlockSums& sums, const Batch& batch, const TensorView& nll, std::int64_t first,
               std::int32_t end_of_document, double bytes_per_token) {
  for_each_target(batch, [&](const BatchTarget& target) {
    if (target.position < first) return;
    sums.nll += target.weight * nll.as<double>()[target.t];
    sums.weight += target.weight;
    sums.targets += 1;
    if (target.label != end_of_document) sums.bytes += target.weight * bytes_per_token;
  });
}

/// Collective. Adds up the sums of all ranks.
template <class Sums>
void add_over_ranks(Communicator& world, std::vector<Sums>& sums, const CallSite& site) {
  static_assert(std::is_trivially_copyable_v<Sums> && sizeof(Sums) == 4 * sizeof(double), "four doubles, and no more");
  all_reduce_sum(world, {reinterpret_cast<double*>(sums.data()), 4 * sums.size()}, site);
}

/// The sums of all buckets of positions, [lengths][blocks][buckets], for this rank's tokens.
class PositionTable {
 public:
  PositionTable(const EvaluationRequest& request, std::int64_t blocks)
      : lengths_(request.context_lengths),
        blocks_(blocks),
        buckets_(position_bucket(lengths_.back()) + 1),
        sums_(lengths_.size() * static_cast<std::size_t>(blocks * buckets_)) {}

  /// Adds this rank's part of a block's window at the i-th length. All windows of a block end with the same target, so
  /// the longest one gives the nll in it of every shorter one's tokens.
  void add(std::int64_t i, std::int64_t block, const Batch& batch, const TensorView& nll) {
    const bool longest = i + 1 == std::ssize(lengths_);
    for_each_target(batch, [&](const BatchTarget& target) {
      const double added = target.weight * nll.as<double>()[target.t];
      PositionSums& sums = at(i, block, target.position + 1);
      sums.nll += added;
      sums.weight += target.weight;
      sums.targets += 1;
      for (std::int64_t other = 0; longest && other <= i; ++other) {
        const std::int64_t position = target.position + 1 - (lengths_[i] - lengths_[other]);
        if (position >= 1) at(other, block, position).longest_nll += added;
      }
    });
  }

  /// Collective. Fills in the results from all ranks.
  void finish(Communicator& world, std::span<const std::int64_t> documents, std::vector<LengthResult>& results) {
    add_over_ranks(world, sums_, {"positions of an evaluation"});
    const auto row = static_cast<std::size_t>(blocks_ * buckets_);
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      results[i].by_position = summarize_positions(lengths_[i], std::span(sums_).subspan(i * row, row), documents);
    }
  }

 private:
  PositionSums& at(std::int64_t length, std::int64_t block, std::int64_t position) {
    return sums_[(length * blocks_ + block) * buckets_ + position_bucket(position)];
  }
  std::vector<std::int64_t> lengths_;
  std::int64_t blocks_, buckets_;
  std::vector<PositionSums> sums_;
};

/// The scores of all targets, each from the rank that holds it. A target's index is the same on every rank.
class TokenScores {
 public:
  TokenScores(const TokenFile& file, const EvaluationTargets& targets) {
    for (const std::int64_t length : targets.request.context_lengths) {
      for (const TargetSpan& span : spans_of(file, targets, length)) {
        first_.push_back(std::ssize(scores_));
        const std::int64_t end = span.begin + span.length + 1;  // after the last target
        for (std::int64_t index = end - span.targets; index < end; ++index) {
          scores_.push_back({length, targets.blocks[span.block].document, index, 0, 0});
        }
      }
    }
  }

  /// Adds this rank's part of a span: the i-th over all lengths.
  void add(std::int64_t i, const TargetSpan& span, const Batch& batch, const TensorView& nll) {
    for_each_target(batch, [&](const BatchTarget& target) {
      const std::int64_t index = target.position - (span.length - span.targets);
      if (index < 0) return;
      TokenScore& score = scores_[first_[i] + index];
      score.weight = target.weight;
      score.nll = nll.as<double>()[target.t];
    });
  }

  /// Collective. Returns all ranks' scores of targets that have a weight.
  std::vector<TokenScore> gather(Communicator& world) {
    std::vector<double> flat;
    for (const TokenScore& score : scores_) flat.insert(flat.end(), {score.weight, score.nll});
    all_reduce_sum(world, std::span<double>(flat), {"scores of tokens"});  // one rank has each; the others add 0
    std::vector<TokenScore> scored;
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      scores_[i].weight = flat[2 * i];
      scores_[i].nll = flat[2 * i + 1];
      if (scores_[i].weight != 0) scored.push_back(scores_[i]);
    }
    return scored;
  }

 private:
  std::vector<TokenScore> scores_;
  std::vector<std::int64_t> first_;  // index of each span's first score, over all lengths
};

/// All ranks have the same results.
void require_finite(const std::vector<LengthResult>& results) {
  for (const LengthResult& result : results) {
    if (std::isfinite(result.nll.value)) continue;
    const double nll = std::isnan(result.nll.value) ? NAN : result.nll.value;  // without NaN's sign
    throw SharedError(ExitCode::numeric, fmt::format("at context length {}, the loss is {}: damaged weights, or an "
                                                     "overflow (try float32)",
                                                     result.context_length, nll));
  }
}

}  // namespace

std::vector<std::int64_t> documents_of(const EvaluationTargets& targets) {
  std::vector<std::int64_t> documents;
  for (const TargetBlock& block : targets.blocks) documents.push_back(block.document);
  return documents;
}

std::optional<std::vector<LengthResult>> evaluate_targets(RankState& state, const TokenFile& file,
                                                          const EvaluationTargets& targets,
                                                          const EvaluationProgress& progress,
                                                          const EvaluationStop& stop,
                                                          std::vector<TokenScore>* per_token, TargetScorer* scorer) {
  const EvaluationRequest& request = targets.request;
  const std::int64_t blocks = std::ssize(targets.blocks);
  std::vector<BlockSums> sums(request.context_lengths.size() * targets.blocks.size());  // [lengths][blocks]
  std::optional<TokenScores> scores;
  if (per_token) scores.emplace(file, targets);
  std::optional<PositionTable> positions;
  if (request.by_position) positions.emplace(request, blocks);
  const auto nothing = [&] { scorer ? scorer->score_nothing(state) : state.model->evaluate_nothing(); };
  std::int64_t spans_before = 0;
  for (std::int64_t i = 0; i < std::ssize(request.context_lengths); ++i) {
    const auto spans = spans_of(file, targets, request.context_lengths[i]);
    std::vector<ReadSpan> read;
    for (const TargetSpan& span : spans) {
      read.push_back({span.begin, span.length, positions ? span.length : span.targets, request.begin_token});
    }
    const auto pass = [&](std::int64_t index) {
      const TargetSpan& span = spans[index];
      const std::int64_t first = span.length - span.targets;
      const TensorView nll = state.evaluation_nll.view().prefix({1, state.batch.T});
      scorer ? scorer->score(state, nll) : state.model->evaluate(state.batch, nll);
      if (scorer) scorer->add(i, span.block, state.batch, nll, first);
      add_shard(sums[i * blocks + span.block], state.batch, nll, first, file.end_of_document(),
                file.bytes_per_token(targets.blocks[span.block].document));
      if (scores) scores->add(spans_before + index, span, state.batch, nll);
      if (positions) positions->add(i, span.block, state.batch, nll);
      if (progress) progress(span.length);
    };
    if (!for_each_span(state, file, read, {pass, nothing, stop})) return std::nullopt;
    spans_before += std::ssize(spans);
  }
  const std::vector<std::int64_t> documents = documents_of(targets);
  add_over_ranks(*state.world, sums, {"evaluation"});
  std::vector<LengthResult> results = summarize(request.context_lengths, sums, documents);
  if (scores) *per_token = scores->gather(*state.world);
  if (positions) positions->finish(*state.world, documents, results);
  require_finite(results);
  return results;
}

}  // namespace ringtrain
