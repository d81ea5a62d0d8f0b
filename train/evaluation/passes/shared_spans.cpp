#include "train/evaluation/passes/shared_spans.h"

#include <algorithm>

#include "data/loader.h"
#include "parallel/shared_error.h"
#include "train/engine/first_pass.h"

namespace ringtrain {

bool for_each_span(RankState& state, const TokenFile& file, std::span<const ReadSpan> spans, const SpanPasses& passes) {
  const int data_index = state.mesh.data_index(state.rank);
  bool stopped = false;
  for (std::int64_t first = 0; first < std::ssize(spans); first += state.mesh.data) {
    stopped = passes.stop && passes.stop();
    if (stopped) break;
    const std::int64_t index = first + data_index;
    const bool has_span = index < std::ssize(spans);
    const std::optional<Error> problem = caught([&] {
      if (!has_span) return;
      const ReadSpan& span = spans[index];
      load_spans(state.batch, file, {&span.begin, 1}, span.length, span.targets, state.shard, span.begin_token);
    });
    if (const auto shared = shared_error(*state.world, problem, {"data of an evaluation"})) throw SharedError(*shared);
    std::string kind = passes.kind;  // plus the shapes of all data ranks
    for (std::int64_t i = first; i < std::min(first + state.mesh.data, std::ssize(spans)); ++i) {
      kind += fmt::format(" {}", spans[i].length);
    }
    FirstPass first_pass(state, kind);
    if (has_span) {
      passes.pass(index);
    } else {
      passes.nothing();
    }
    first_pass.end();
  }
  state.model->forget_loss_sum();
  state.model->take_ring_loads();
  return !stopped;
}

}  // namespace ringtrain
