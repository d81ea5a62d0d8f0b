#include "train/step/short_context.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringtrain {

namespace {

constexpr std::int64_t longest = 2048;
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

}  // namespace

std::int64_t short_context_tokens(const Config& config, std::int64_t context_length) {
  const std::int64_t own = context_length > 0 ? context_length : longest;
  const std::int64_t tokens = std::min({longest, own, config.training.seq_len});
  return tokens >= config.mesh.sequence ? tokens : 0;
}

std::string rope_warning(const ShortContext& own, double first_loss, const Config& config, const ModelSource& source) {
  if (!(first_loss > own.loss + most_nats)) return "";
  const std::int64_t length = config.training.seq_len;
  const bool beyond = length > source.context_length;
  const std::string todo =
      beyond ? fmt::format(
                   "scale them: model.rope_scaling with type yarn, factor {:.4g} and "
                   "original_max_position_embeddings {}, or a larger model.rope_theta",
                   static_cast<double>(length) / static_cast<double>(source.context_length), source.context_length)
             : std::string(
                   "put back model.rope_theta and model.rope_scaling as the model has them, or look whether its "
                   "own files say what it was trained with");
  return fmt::format(
      "warning: the rope looks wrong: the first loss is {:.3f} at {} tokens, {:.3f} nats above the model's own {:.3f} "
      "at {} tokens of the same text; this run has {}, the model {} and an original length of {} tokens; {}",
      first_loss, length, first_loss - own.loss, own.loss, own.tokens, rope_text(config.model), rope_text(source.model),
      source.context_length, todo);
}

}  // namespace ringtrain
