#include "train/checkpoint_evaluation.h"

#include <memory>
#include <vector>

#include "data/token_file.h"
#include "framework/error.h"
#include "framework/progress.h"
#include "parallel/launch.h"
#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/memory_report.h"
#include "train/system_memory.h"

namespace ringtrain {

namespace {

/// Return the request with what it leaves to the checkpoint's config.
EvaluationRequest resolved(EvaluationRequest request, const EvaluationConfig& config) {
  if (request.target_tokens == EvaluationOptions::of_the_checkpoint) request.target_tokens = config.target_tokens;
  if (request.target_blocks == EvaluationOptions::of_the_checkpoint) request.target_blocks = config.target_blocks;
  return request;
}

void check_lengths(const EvaluationOptions& options, const EvaluationRequest& request, const Config& config) {
  check_request(request, "--context-lengths and --target-tokens");
  const auto& lengths = request.context_lengths;
  if (config.model.architecture == Architecture::gpt2 && lengths.back() > config.model.max_position_embeddings) {
    fail(ExitCode::usage,
         "--context-lengths: {} is beyond this gpt2's table of model.max_position_embeddings = {} positions",
         lengths.back(), config.model.max_position_embeddings);
  }
  if (options.mesh.sequence > lengths.front()) {
    fail(ExitCode::usage, "--mesh: {} sequence ranks are more than the shortest context length, {}",
         options.mesh.sequence, lengths.front());
  }
}

std::unique_ptr<TokenFile> open_data(const std::string& path, const Config& config) {
  auto file = TokenFile::open(path);
  if (file->vocab_size() > config.model.vocab_size) {
    fail(ExitCode::data, "{} has tokens up to {}, but the checkpoint's model.vocab_size is {}", path,
         file->vocab_size() - 1, config.model.vocab_size);
  }
  return file;
}

}  // namespace

EvaluationSummary evaluate_checkpoint(const EvaluationOptions& options) {
  const Checkpoint checkpoint = open_checkpoint(options.checkpoint);
  Config config = checkpoint.config;
  config.mesh.data = options.mesh.data;
  config.mesh.sequence = options.mesh.sequence;
  config.mesh.threads_per_rank = options.threads_per_rank;
  const EvaluationRequest request = resolved(options.request, config.evaluation);
  check_lengths(options, request, config);
  const auto file = open_data(options.data, config);
  const EvaluationTargets targets = choose_targets(*file, request);

  const RankPurpose purpose{.training = false, .evaluation_lengths = request.context_lengths};
  const ParameterTable table = make_parameter_table(config.model);
  require_memory(plan_ranks(config, table, purpose), available_memory());

  std::vector<LengthResult> results;
  const LaunchOptions launch{static_cast<int>(config.mesh.data * config.mesh.sequence), config.mesh.timeout_seconds};
  launch_threads(launch, [&](Communicator& world) {
    ThreadPool pool(threads_per_rank(config.mesh.threads_per_rank, world.size()));
    RankState state(config, table, purpose, world.rank(), pool, &world);
    load_weights(state, checkpoint);
    EvaluationProgress tell;
    std::unique_ptr<Progress> progress;
    if (world.rank() == 0) {
      const auto blocks = static_cast<std::int64_t>(targets.blocks.size());
      const std::int64_t own_blocks = (blocks + config.mesh.data - 1) / config.mesh.data;
      const auto lengths = static_cast<std::int64_t>(request.context_lengths.size());
      progress = std::make_unique<Progress>("evaluate", own_blocks * lengths);
      tell = [&](std::int64_t done, std::int64_t tokens) { progress->update(done, "", static_cast<double>(tokens)); };
    }
    auto own = evaluate_targets(state, *file, request, targets, tell);
    if (world.rank() == 0) results = std::move(own);
  });
  return summary_of(checkpoint.path, config.training.seq_len, targets, std::move(results));
}

}  // namespace ringtrain
