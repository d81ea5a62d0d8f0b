#include "train/step/step_batches.h"

#include <array>
#include <optional>
#include <span>

#include "data/loader.h"
#include "parallel/collectives.h"
#include "parallel/ring/ring_load.h"
#include "parallel/shared_error.h"
#include "train/engine/rank_state.h"
#include "train/run/run_steps.h"

namespace ringtrain {

/// Each rank's batches count only its own shard's weights, so the plain sum counts each target once; the first rank of
/// a ring counts the pairs of its sequences.
double load_batches(const RunSteps& run, const Corpus& corpus, RankState& state, const std::vector<MaskCount>& masks,
                    StepResult& result) {
  state.model->wait_for_batch();  // returns at once: the previous step has read its loss
  const Config& config = run.at(result.step);
  const std::int64_t seq_len = config.training.seq_len;
  const int data_rank = state.mesh.data_index(state.rank);
  std::array<double, 5> sums{};  // one message transfers them
  auto& [weights, tokens, forward_pairs, backward_pairs, unreadable_ranks] = sums;
  const std::optional<Error> problem = caught([&] {
    for (std::int64_t micro = 0; micro < run.micro_batches(result.step); ++micro) {
      const Span span(state.stream.trace(), "batch", {{"micro", micro}});
      Batch& batch = state.batch_of(micro);
      const std::vector<Sample> samples = run.samples_of(result.step, data_rank, micro);
      load_windows(batch, corpus, samples, seq_len, config.data.packing, state.shard);
      weights += batch.weight_sum;
      if (state.shard.ring_rank > 0) continue;
      for (std::size_t b = 0; b < samples.size(); ++b) {
        const Segment held{0, 1, corpus.window(samples[b].file, samples[b].window, seq_len).tokens};
        std::span<const DocumentStarts> documents;
        if (batch.has_documents) documents = {&batch.document_starts[b], 1};
        const LayerPairs pairs = layer_pairs(masks, [&](const AttentionMask& mask) {
          return static_cast<double>(visible_pairs(mask, {&held, 1}, {&held, 1}, 1, documents));
        });
        tokens += static_cast<double>(held.count);
        forward_pairs += pairs.forward;
        backward_pairs += pairs.backward;
      }
    }
  });
  if (problem) unreadable_ranks = 1;
  all_reduce_sum(*state.world, sums, {"sum of target weights"});
  if (unreadable_ranks > 0) {
    if (auto shared = shared_error(*state.world, problem, {"data that cannot be read"})) throw SharedError(*shared);
  }
  result.held_tokens = tokens;
  result.pairs = {.forward = forward_pairs, .backward = backward_pairs};
  result.empty = !(weights > 0);
  return weights;
}

}  // namespace ringtrain
