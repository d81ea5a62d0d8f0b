#include "train/step/rope_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "data/loader.h"
#include "framework/profile/clock.h"
#include "layers/model_spec.h"
#include "parallel/collectives.h"
#include "parallel/shared_error.h"
#include "train/engine/first_pass.h"
#include "train/run/run_start.h"
#include "train/run/run_steps.h"

namespace ringtrain {

namespace {

constexpr std::int64_t most_tokens = 2048;
constexpr double most_nats = 1;

/// Returns rotary positions in words: "theta 10000, yarn x 2 of 8192 tokens".
std::string rope_text(const ModelConfig& model) {
  const RopeScalingConfig& scaling = model.rope_scaling;
  std::string text = fmt::format("theta {:g}, ", model.rope_theta);
  if (scaling.type == RopeType::none) return text + "no scaling";
  text += fmt::format("{} x {:g}", name_of(scaling.type), scaling.factor);
  const std::int64_t original = scaling.original_max_position_embeddings;
  return original > 0 ? text + fmt::format(" of {} tokens", original) : text;
}

std::string todo(std::int64_t length, const KnownRope& known) {
  if (known.length == 0 || length <= known.length) {
    return "restore model.rope_theta and model.rope_scaling of the model, or check whether its files say what it was "
           "trained with";
  }
  return fmt::format(
      "scale the rope: set model.rope_scaling to type yarn, factor {:.4g}, original_max_position_embeddings {}, or "
      "raise model.rope_theta",
      static_cast<double>(length) / static_cast<double>(known.length), known.length);
}

/// Collective. Returns the mean loss of the ends of the sequences of a step's first micro-batches.
std::optional<double> loss_of_ends(const RunSteps& run, const Corpus& corpus, RankState& state, std::int64_t step,
                                   const WindowEnd& end) {
  const Config& config = run.at(step);
  state.model->wait_for_batch();
  const std::optional<Error> problem = caught([&] {
    load_window_ends(state.batch, corpus, run.samples_of(step, state.mesh.data_index(state.rank), 0),
                     config.training.seq_len, config.data.packing, state.shard, end);
  });
  if (auto shared = shared_error(*state.world, problem, {"data that cannot be read"})) throw SharedError(*shared);
  state.model->evaluate(state.batch, {});
  std::array<double, 2> sums{state.model->take_loss_sum(), state.batch.weight_sum};
  state.model->take_ring_loads();
  all_reduce_sum(*state.world, sums, {"loss of a check of the rope"});
  if (!(sums[1] > 0)) return std::nullopt;
  return sums[0] / sums[1];
}

}  // namespace

std::int64_t rope_check_tokens(const Config& config, const KnownRope& known) {
  const ModelSpec spec = model_spec(config.model), other = model_spec(known.model);
  if (spec.ropes.empty() || spec.ropes.size() != other.ropes.size()) return 0;
  const std::int64_t length = config.training.seq_len;
  const std::int64_t tokens = std::min({most_tokens, known.length > 0 ? known.length : length, length});
  if (tokens < config.mesh.sequence) return 0;
  return tokens == length && !rescales(config.model, known.model) ? 0 : tokens;
}

std::vector<std::string> check_rope(const RunSteps& run, const Corpus& corpus, RankState& state, std::int64_t step,
                                    const KnownRope& known) {
  const Config& config = run.at(step);
  const std::int64_t tokens = rope_check_tokens(config, known);
  if (tokens == 0) return {};
  const auto start = std::chrono::steady_clock::now();
  const Span span(state.stream.trace(), "check of the rope");
  FirstPass first_pass(state, fmt::format("check of the rope at {} of {} tokens", tokens, config.training.seq_len));
  state.use_rope(known.model);
  const auto separate = loss_of_ends(run, corpus, state, step, {.tokens = tokens, .whole = false});
  state.use_rope(config.model);
  const auto behind = loss_of_ends(run, corpus, state, step, {.tokens = tokens, .whole = true});
  first_pass.end();
  if (!separate || !behind) return {};
  std::vector<std::string> lines{fmt::format(
      "check of the rope: the loss on the last {} of {} tokens is {:.4f} with this run's rope; with the original "
      "rope of the weights, and without the earlier tokens, it is {:.4f} (measured in {:.1f} s)",
      tokens, config.training.seq_len, *behind, *separate, seconds_since(start))};
  const std::string warning = rope_warning({.tokens = tokens, .separate = *separate, .behind = *behind}, config, known);
  if (!warning.empty()) lines.push_back(warning);
  return lines;
}

std::string rope_warning(const RopeCheck& check, const Config& config, const KnownRope& known) {
  if (!(check.behind > check.separate + most_nats)) return "";
  const std::int64_t length = config.training.seq_len;
  const std::string meant = known.length > 0 ? fmt::format(" and were made for {} tokens", known.length) : "";
  return fmt::format(
      "warning: the rope looks wrong: at the end of {} tokens the loss is {:.3f}, {:.3f} nats more than the {:.3f} of "
      "the last {} tokens without the earlier ones; this run uses {}, but its weights were trained with {}{}; {}",
      length, check.behind, check.behind - check.separate, check.separate, check.tokens, rope_text(config.model),
      rope_text(known.model), meant, todo(length, known));
}

}  // namespace ringtrain
