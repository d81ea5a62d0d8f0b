#include "train/generation/generator.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "data/loader.h"
#include "framework/error.h"
#include "framework/profile/clock.h"
#include "kernels/elementwise.h"
#include "layers/key_value_cache.h"
#include "parallel/collectives.h"
#include "train/engine/first_pass.h"

namespace ringtrain {

namespace {

/// Returns the logits of a decode step on the host, whichever device computed them.
TensorView on_host(RankState& state, const TensorView& logits) {
  if (state.logits.view().empty()) return logits;
  copy(state.stream, state.logits.view(), logits);
  return state.logits.view();
}

}  // namespace

GenerationRates generate(RankState& state, const GenerationRequest& request, const TokenObserver& observer) {
  ensure(state.cache != nullptr && state.mesh.data == 1, "a state made for generation, of one ring");
  ensure(!request.prompt.empty() && request.new_tokens >= 1, "a prompt and a new token");
  const bool is_rank_zero = state.rank == 0;
  TokenSampler sampler(request.sampling, state.parameters.table()[0].shape[0]);
  for (const std::int32_t token : request.prompt) sampler.add(token);
  GenerationRates rates;
  rates.prompt_tokens = std::ssize(request.prompt);
  const auto start = std::chrono::steady_clock::now();
  // The first decode step computes the prompt's last token, and so its logits.
  const std::span<const std::int32_t> before{request.prompt.data(), request.prompt.size() - 1};
  FirstPass first_pass(state, "generation");
  load_sequence(state.batch, before, state.shard);
  state.cache->begin(state.batch.segments);
  if (!before.empty()) state.model->prefill(state.batch, *state.cache);

  std::array<std::int32_t, 2> choice{request.prompt.back(), 1};  // rank 0 sends it to the others after a step
  auto& [token, goes_on] = choice;
  for (std::int64_t step = 0; step < request.new_tokens && goes_on != 0; ++step) {
    state.model->wait_for_batch();  // a GPU may still be copying the last batch
    load_token(state.batch, token, std::ssize(before) + step, state.shard);
    const TensorView logits = state.model->decode(state.batch, *state.cache, /*wants_logits=*/is_rank_zero);
    if (is_rank_zero) {
      token = sampler.sample(on_host(state, logits), static_cast<std::uint64_t>(step));
      sampler.add(token);
      rates.ended = std::ranges::find(request.end_tokens, token) != request.end_tokens.end();
      goes_on = !rates.ended && observer(token) ? 1 : 0;
    }
    broadcast(*state.world, host_view(choice.data(), {std::ssize(choice)}), 0, {"new token"});
    first_pass.end();
    if (step == 0) rates.prompt_seconds = seconds_since(start);
    ++rates.new_tokens;
  }
  rates.decode_seconds = seconds_since(start) - rates.prompt_seconds;
  return rates;
}

}  // namespace ringtrain
