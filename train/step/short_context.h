// Whether the rotary positions of a run fit the model that it begins with: the loss of its first step beside the
// model's own on short pieces of the same text. Weights that meet positions which they never saw lose nats at once.
#pragma once

#include <cstdint>
#include <string>

#include "framework/config/config.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// The loss of a model with the rotary positions of its own files.
struct ShortContext {
  std::int64_t tokens = 0;  // of each sequence, the first ones
  double loss = 0;          // nats a token
  double seconds = 0;       // that measuring took
};

/// Returns how many tokens of each sequence of a run's first batch are short for a model of this context: at most
/// 2,048. 0: they are too few for the config's ring. config: of the run's first stage.
std::int64_t short_context_tokens(const Config& config, std::int64_t context_length);

/// Returns a warning if the first step's loss is more than 1 nat above that of the short context, "" if not. It names
/// both losses, the rotary positions of both sides, and what to do. config: of the run's first stage.
std::string rope_warning(const ShortContext& own, double first_loss, const Config& config, const ModelSource& source);

}  // namespace ringtrain
