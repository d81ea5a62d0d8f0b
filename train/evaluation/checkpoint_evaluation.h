// The program `evaluate` without its command line: opens a checkpoint, builds its model on a mesh of its own, and
// scores a token file.
#pragma once

#include <cstdint>
#include <memory>
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
  /// As target_tokens or target_blocks: what the checkpoint's config says.
  static constexpr std::int64_t of_the_checkpoint = 0;

  std::string checkpoint;  // whatever open_model() takes
  ModelDefinition model = transformer_definition();
  std::string data;  // a token file; or what open_tokens makes of it
  TokenFileOpener open_tokens = TokenFile::open;
  // What stands at position 0 of each window: nothing: what the file says; -1: no token.
  std::optional<std::int32_t> begin_token;
  EvaluationRequest request;     // part automatic: all of a file that the checkpoint's run was not trained on
  MeshConfig mesh;               // data and sequence; the timeout is the checkpoint's, the backend is the launcher's
  std::optional<Layout> layout;  // nothing: the checkpoint's
  std::vector<EvaluationMetric> metrics;  // also these, in the order of the JSON's fields
  std::vector<std::string> settings;  // KEY=VALUE of keys that leave weights as they are: model.rope_scaling and others
};

/// Throws Error(usage) if a model cannot read the request's lengths, or they are too short for the config's mesh.
void check_lengths(const EvaluationRequest& request, const Config& config);

/// Returns the same in every process; and in per_token, if it is not null, every token's score. Throws Error: usage
/// (lengths, mesh, memory), data (the file), checkpoint, numeric.
EvaluationSummary evaluate_checkpoint(const EvaluationOptions& options, Launcher& launcher,
                                      std::vector<TokenScore>* per_token = nullptr);

}  // namespace ringtrain
