// The program `evaluate` without its command line: opens a checkpoint, builds its model on a mesh of its own, and
// scores a token file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/corpus.h"
#include "framework/config/mesh_config.h"
#include "layers/model/model_definition.h"
#include "parallel/launch/launcher.h"
#include "train/evaluation/evaluation_report.h"
#include "train/evaluation/evaluation_targets.h"
#include "train/evaluation/evaluator.h"
#include "train/evaluation/key_tokens.h"
#include "train/evaluation/tasks/task_text.h"

namespace ringtrain {

struct LongPplRequest {
  KeyTokenOptions options;
  std::optional<KeySet> given;  // a saved set, whose options count; nothing: key tokens are found by this model
};

struct TaskRequest {
  std::vector<TaskKind> kinds;  // in this order
  TaskSettings settings;
  bool greedy = false;  // also tell how often greedy text has the answer
};

struct EvaluationOptions {
  /// As target_tokens or target_blocks: what the checkpoint's config says.
  static constexpr std::int64_t of_the_checkpoint = 0;

  std::string checkpoint;  // whatever open_model() takes
  ModelDefinition model = transformer_definition();
  std::string data;  // a token file; or what open_tokens makes of it
  TokenFileOpener open_tokens = TokenFile::open;
  EvaluationRequest request;     // part automatic: all of a file that the checkpoint's run was not trained on
  MeshConfig mesh;               // data and sequence; the timeout is the checkpoint's, the backend is the launcher's
  std::optional<Layout> layout;  // nothing: the checkpoint's
  std::int64_t threads_per_rank = 0;
  std::string device = "auto";       // cpu | cuda | auto: cuda if the checkpoint was made there and this build has it
  bool shard_weights = false;        // each rank holds its part of the weights; false: as the checkpoint's config says
  std::string dtype;                 // in which to compute; "": the checkpoint's, of a model from elsewhere float32
  std::string against;               // another model, as open_model() takes it, that scores the same targets; "": none
  std::optional<TaskRequest> tasks;  // also long-context tasks, at every context length
  std::optional<LongPplRequest> longppl;  // also the perplexity of key tokens; the texts' longest context length counts
  std::vector<std::string> settings;  // KEY=VALUE of keys that leave weights as they are: model.rope_scaling and others
};

/// Returns the same in every process; and in per_token, if it is not null, every token's score. Throws Error: usage
/// (lengths, mesh, memory), data (the file), checkpoint, numeric.
EvaluationSummary evaluate_checkpoint(const EvaluationOptions& options, Launcher& launcher,
                                      std::vector<TokenScore>* per_token = nullptr);

}  // namespace ringtrain
