// The program `evaluate` without its command line: opens a checkpoint, builds its model on a separate mesh, and scores
// a token file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "framework/config/mesh_config.h"
#include "layers/model/model_definition.h"
#include "parallel/launch/launcher.h"
#include "train/engine/computation.h"
#include "train/evaluation/evaluation_metric.h"
#include "train/evaluation/evaluation_report.h"
#include "train/evaluation/evaluation_targets.h"
#include "train/evaluation/evaluator.h"

namespace ringtrain {

struct EvaluationOptions : Computation {
  /// As target_tokens or target_blocks: use the checkpoint's config.
  static constexpr std::int64_t of_the_checkpoint = 0;

  std::string checkpoint;  // anything that open_model() takes
  ModelDefinition model = transformer_definition();
  std::string data;  // a token file, or anything that open_tokens can open
  TokenFileOpener open_tokens = TokenFile::open;
  // The token at position 0 of each window; empty: as the file says; -1: no token.
  std::optional<std::int32_t> begin_token;
  EvaluationRequest request;     // automatic part: all of a file on which the checkpoint's run did not train
  MeshConfig mesh;               // data and sequence; the timeout is the checkpoint's, the backend is the launcher's
  std::optional<Layout> layout;  // empty: the checkpoint's
  std::vector<EvaluationMetric> metrics;  // additional metrics, in the order of the JSON's fields
  std::vector<std::string> settings;  // KEY=VALUE for keys that do not change weights: model.rope_scaling and others
};

/// Throws Error(usage) if a model cannot read the request's lengths, or if they are too short for the config's mesh.
void check_lengths(const EvaluationRequest& request, const Config& config);

/// Returns the same in every process, and, if per_token is not null, every token's score in it. Throws Error: usage
/// (lengths, mesh, memory), data (the file), checkpoint, numeric.
EvaluationSummary evaluate_checkpoint(const EvaluationOptions& options, Launcher& launcher,
                                      std::vector<TokenScore>* per_token = nullptr);

}  // namespace ringtrain
