// The metric --against: compares a checkpoint with another model on the same targets, by the paired difference of nll
// and by the Kullback-Leibler divergence from the other model's predictions to the checkpoint's. Both models process a
// text together, one chunk of logits at a time.
#pragma once

#include <string>

#include "train/evaluation/evaluation_metric.h"

namespace ringtrain {

/// path: of a model, which open_model() opens.
EvaluationMetric against_model(const std::string& path);

}  // namespace ringtrain
