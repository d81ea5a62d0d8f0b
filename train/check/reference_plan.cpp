#include "train/check/reference_plan.h"

#include <algorithm>
#include <chrono>

#include "framework/config/config.h"
#include "framework/error.h"
#include "framework/profile/clock.h"
#include "framework/profile/progress.h"
#include "layers/model/step_work.h"
#include "layers/model_spec.h"
#include "reference/operations.h"
#include "train/check/rounding.h"

namespace ringtrain {

ReferencePlan plan_reference(const Config& config, const ParameterTable& table) {
  const ModelSpec spec = model_spec(config.model);
  const std::int64_t C = spec.hidden_size, F = spec.intermediate_size, D = spec.head_dim;
  const std::int64_t heads = spec.num_attention_heads * D, keys = spec.num_key_value_heads * D;
  const std::int64_t wide = std::max({C, F, heads});
  // Every tensor and its gradient: per layer, four of width C, three of the queries' and three of the keys' width, and
  // those of the feedforward; the embedding, the last norm, and the nll.
  const std::int64_t layer = 8 * C + 6 * heads + 6 * keys + (spec.gated_feedforward ? 6 : 4) * F;
  const std::int64_t row = spec.num_hidden_layers() * layer + 4 * C + 1;
  const auto element = static_cast<std::int64_t>(sizeof(double));
  ReferencePlan plan;
  // The exact tensors and those of one try; a layer's scratch; the row itself, and one tensor of the dump.
  plan.bytes_per_token = element * (2 * row + 8 * wide + 8);
  // Weights, which exist twice while a model has them; gradients, exact and of each try; the head's transpose and its
  // logits.
  plan.fixed_bytes = element * ((3 + Rounding::tries) * table.count() + spec.vocab_size * (C + 4));
  const auto S = static_cast<double>(config.training.seq_len);
  Config whole = config;  // for the reference, nothing is frozen, and adapters are part of the weights
  whole.model.lora = {};
  whole.training.trainable.clear();
  const LayerPairs pairs =  // it visits every pair, whatever the mask
      layer_pairs(mask_counts(whole.model, whole.training), [&](const AttentionMask&) { return S * (S + 1) / 2; });
  plan.flops = (1 + Rounding::tries) * (step_flops(whole.model, whole.training, pairs).total());
  return plan;
}

void require_reference_fits(const Config& config, const ReferencePlan& plan, std::int64_t available) {
  const std::int64_t S = config.training.seq_len, needed = plan.bytes(S);
  if (needed <= available) return;
  const std::int64_t tokens = (available - plan.fixed_bytes) / plan.bytes_per_token;
  const auto bytes = [](std::int64_t n) { return human_bytes(static_cast<double>(std::max<std::int64_t>(n, 0))); };
  if (tokens < 1) {
    fail(ExitCode::usage,
         "the reference needs {} for only the weights and gradients of {} layers, but this machine has {} free; check "
         "fewer layers (--layers)",
         bytes(plan.fixed_bytes), config.model.num_hidden_layers, bytes(available));
  }
  fail(ExitCode::usage,
       "the reference needs {} for a sequence of {} tokens, but this machine has {} left; use --seq-len {}, which "
       "fits, or check fewer layers (--layers)",
       bytes(needed), S, bytes(available), tokens);
}

double reference_rate() {
  constexpr std::int64_t width = 128, tokens = 64;
  const reference::Vector x(tokens * width, 0.5), w(width * width, 0.25);
  const auto start = std::chrono::steady_clock::now();
  double sum = 0;
  int calls = 0;
  for (; calls < 3 || seconds_since(start) < 0.005; ++calls) sum += reference::linear(x, w, width)[0];
  ensure(sum > 0, "a sum of positive products is positive");
  return 2.0 * tokens * width * width * calls / seconds_since(start);
}

}  // namespace ringtrain
