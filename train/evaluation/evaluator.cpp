#include "train/evaluation/evaluator.h"

#include <cmath>
#include <span>
#include <vector>

#include "data/loader.h"
#include "framework/error.h"
#include "parallel/collectives.h"
#include "parallel/shared_error.h"

namespace ringtrain {

namespace {

constexpr std::int64_t values_per_block = 4;

/// Returns what this rank's share of the batch's one sequence added. nll is float64 [1, T] on the host.
/// bytes_per_token: of the block's document.
BlockSums sums_of_shard(const Batch& batch, const TensorView& nll, std::int32_t end_of_document,
                        double bytes_per_token) {
  BlockSums sums;
  const double* values = nll.as<double>();
  const auto* labels = batch.labels().as<std::int32_t>();
  dispatch_float(batch.weights().dtype, [&]<class Real>() {
    const Real* weights = batch.weights().as<Real>();
    for (std::int64_t t = 0; t < batch.T; ++t) {
      if (labels[t] < 0) continue;
      const auto weight = static_cast<double>(weights[t]);
      sums.nll += weight * values[t];
      sums.weight += weight;
      sums.targets += 1;
      if (labels[t] != end_of_document) sums.bytes += weight * bytes_per_token;
    }
  });
  return sums;
}

}  // namespace

std::optional<std::vector<LengthResult>> evaluate_targets(RankState& state, const TokenFile& file,
                                                          const EvaluationRequest& request,
                                                          const EvaluationTargets& targets,
                                                          const EvaluationProgress& progress,
                                                          const EvaluationStop& stop) {
  const std::int64_t blocks = std::ssize(targets.blocks);
  const auto lengths = static_cast<std::int64_t>(request.context_lengths.size());
  const int data_index = state.mesh.data_index(state.rank);
  // (nll, weight, bytes, targets) of every length and block: what the spans of this data rank add.
  std::vector<double> flat(lengths * blocks * values_per_block, 0.0);
  std::int64_t done = 0, tokens = 0;
  bool stopped = false;
  for (std::int64_t i = 0; i < lengths && !stopped; ++i) {
    const auto spans = spans_of(file, request, targets, request.context_lengths[i]);
    for (std::int64_t first = 0; first < std::ssize(spans); first += state.mesh.data) {
      stopped = stop && stop();
      if (stopped) break;
      const bool has_span = first + data_index < std::ssize(spans);
      const TargetSpan span = has_span ? spans[first + data_index] : TargetSpan{};
      const std::optional<Error> problem = caught([&] {
        if (has_span) load_spans(state.batch, file, {&span.begin, 1}, span.length, span.targets, state.shard);
      });
      if (const auto shared = shared_error(*state.world, problem, {"data of an evaluation"}))
        throw SharedError(*shared);
      if (!has_span) {
        state.model.evaluate_nothing();
        continue;
      }
      const TensorView nll = state.evaluation_nll.view().prefix({1, state.batch.T});
      state.model.evaluate(state.batch, nll);
      const BlockSums sums = sums_of_shard(state.batch, nll, file.end_of_document(),
                                           file.bytes_per_token(targets.blocks[span.block].document));
      double* out = flat.data() + (i * blocks + span.block) * values_per_block;
      out[0] += sums.nll;
      out[1] += sums.weight;
      out[2] += sums.bytes;
      out[3] += sums.targets;
      tokens += span.length;
      if (progress && state.rank == 0) progress(++done, tokens);
    }
  }
  state.model.forget_loss_sum();  // forward adds to it; the next training step starts from zero
  state.model.take_ring_load();   // not of training
  if (stopped) return std::nullopt;
  all_reduce_sum(*state.world, std::span<double>(flat), {"evaluation"});

  std::vector<std::vector<BlockSums>> sums(lengths);
  std::vector<std::int64_t> documents;
  documents.reserve(targets.blocks.size());
  for (const TargetBlock& block : targets.blocks) documents.push_back(block.document);
  const double* at = flat.data();
  for (auto& row : sums) {
    for (std::int64_t block = 0; block < blocks; ++block, at += values_per_block)
      row.push_back({at[0], at[1], at[2], at[3]});
  }
  std::vector<LengthResult> results = summarise(request.context_lengths, sums, documents);
  for (const LengthResult& result : results) {
    if (!std::isfinite(result.nll.value)) {
      fail(ExitCode::numeric, "evaluation at context length {} gives a loss of {}: the weights are not usable",
           result.context_length, std::isnan(result.nll.value) ? NAN : result.nll.value);  // without its sign
    }
  }
  return results;
}

}  // namespace ringtrain
