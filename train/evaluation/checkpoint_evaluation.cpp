#include "train/evaluation/checkpoint_evaluation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "data/token_file.h"
#include "data/vocabulary.h"
#include "framework/config/config.h"
#include "framework/config/model_keys.h"
#include "framework/config/read_config.h"
#include "framework/error.h"
#include "framework/profile/progress.h"
#include "framework/standard_streams.h"
#include "layers/check_model.h"
#include "layers/model_spec.h"
#include "parallel/launch/agreement.h"
#include "parallel/launch/communicator_factory.h"
#include "train/engine/memory_check.h"
#include "train/evaluation/scored_part.h"
#include "train/models/load_weights.h"
#include "train/models/model_tokenizer.h"

namespace ringtrain {

void check_lengths(const EvaluationRequest& request, const Config& config) {
  check_request(request, request.stride > 0 ? "--stride" : "--context-lengths and --target-tokens");
  const auto& lengths = request.context_lengths;
  const ModelSpec spec = model_spec(config.model);
  if (spec.positions == Positions::learned && lengths.back() > spec.max_position_embeddings) {
    fail(ExitCode::usage,
         "--context-lengths: {} is beyond this {}'s table of model.max_position_embeddings = {} positions",
         lengths.back(), spec.architecture, spec.max_position_embeddings);
  }
  if (config.mesh.sequence > lengths.front()) {
    fail(ExitCode::usage, "--mesh: {} sequence ranks are more than the shortest context length, {}",
         config.mesh.sequence, lengths.front());
  }
}

namespace {

std::unique_ptr<TokenFile> open_data(const EvaluationOptions& options, const Config& config) {
  const std::string& path = options.data;
  auto file = opened_by(options.open_tokens, path);
  if (file->vocab_size() > config.model.vocab_size) {
    fail(ExitCode::data, "{} has token ids up to {}, but the checkpoint's model.vocab_size is {}", path,
         file->vocab_size() - 1, config.model.vocab_size);
  }
  return file;
}

/// Changes a model's keys according to settings. Throws Error(usage) for a key that would need other weights, or for a
/// value that does not fit.
void apply_settings(Config& config, const std::vector<std::string>& settings) {
  if (settings.empty()) return;
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('='));
    if (is_free_with_weights(key)) continue;
    fail(ExitCode::usage, "--set {}: only keys that do not change the weights can be set here: {}", setting,
         fmt::join(free_with_weights, ", "));
  }
  Config changed = config;
  changed.data.train = {{"none", 1}};  // a config must name a file and steps; neither is used
  changed.training.steps = std::max(changed.training.steps, std::int64_t{1});
  changed.training.stages.clear();
  config.model = parse_config(to_yaml(changed), "the model", settings, ConfigUse::know, check_model).model;
}

/// What is known about an evaluation before its ranks start.
struct PreparedEvaluation {
  ModelSource source;
  Config config;
  std::unique_ptr<TokenFile> file;
  EvaluationTargets targets;
  ParameterTable table;
  RankPurpose purpose;
  std::vector<std::unique_ptr<PreparedMetric>> metrics;  // one for each of the options'
};

/// Returns the config for the evaluation of the options' model.
Config config_for(const ModelSource& source, const EvaluationOptions& options) {
  Config config = config_of(source);
  apply_settings(config, options.settings);
  set_computation(config, options, options.mesh.data, options.mesh.sequence);
  if (options.layout) config.mesh.layout = *options.layout;
  return config;
}

/// Sets the token that begins each window. Returns a message on where it comes from; "": from the user.
std::string settle_begin_token(const EvaluationOptions& options, const Config& config, const TokenFile& file,
                               EvaluationRequest& request) {
  if (!options.begin_token) return take_begin_token(request, file);
  if (*options.begin_token < 0) return "";
  request.begin_token =
      Vocabulary(config.model.vocab_size).token(*options.begin_token, ExitCode::usage, "--begin-token");
  return "";
}

/// Returns what a user should know about a model, its tokens, and its lengths.
std::vector<std::string> remarks(const EvaluationOptions& options, const PreparedEvaluation& prepared,
                                 const std::string& begin) {
  std::vector<std::string> lines = prepared.source.logs;
  if (!begin.empty()) lines.push_back(begin + "; see --begin-token");
  if (const auto remark = check_tokens(prepared.source, *prepared.file)) lines.push_back(*remark);
  const bool rescaled = std::ranges::any_of(options.settings, [](const std::string& setting) {
    return setting.starts_with("model.rope_") || setting.starts_with("model.max_position_embeddings");
  });
  const std::int64_t longest = prepared.targets.request.context_lengths.back();
  const auto beyond = beyond_context(prepared.source, longest, "--context-lengths");
  if (beyond && !rescaled) lines.push_back(*beyond + " (with --set)");
  return lines;
}

/// Returns whether a model, or the one that it began with, was trained on a file; nothing if that is not recorded.
std::optional<bool> was_trained_on(const ModelSource& source, const std::string& file_hash) {
  if (!source.checkpoint) return std::nullopt;
  const Checkpoint& run = *source.checkpoint;
  const std::optional<bool> by_run = was_trained_on(file_hash, run.config.data, run.manifest.data_hash);
  if (by_run != false) return by_run;
  if (source.base) return was_trained_on(*source.base, file_hash);
  return run.manifest.initial_weights ? std::nullopt : by_run;
}

/// Opens the model and the file, and chooses what to score. log: whether this process prints remarks. The result must
/// not move: metrics refer to it.
std::unique_ptr<const PreparedEvaluation> prepare_evaluation(const EvaluationOptions& options, bool log) {
  check_context_lengths(options.request.context_lengths, "--context-lengths");
  auto result = std::make_unique<PreparedEvaluation>();
  PreparedEvaluation& prepared = *result;
  prepared.source = open_model(options.checkpoint, options.model);
  const ModelSource& source = prepared.source;
  Config& config = prepared.config;
  config = config_for(source, options);
  EvaluationRequest& request = prepared.targets.request;
  request = options.request;
  if (request.target_tokens == options.of_the_checkpoint) {
    request.target_tokens = std::min(config.evaluation.target_tokens, request.context_lengths.front() / 2);
  }
  if (request.target_blocks == options.of_the_checkpoint) request.target_blocks = config.evaluation.target_blocks;
  check_lengths(request, config);
  prepared.file = open_data(options, config);
  const std::string begin = settle_begin_token(options, config, *prepared.file, request);
  for (const std::string& line : remarks(options, prepared, begin)) {
    if (log) write_message(stderr, fmt::format("evaluate: {}\n", line));
  }
  choose_part(*prepared.file, was_trained_on(source, prepared.file->hash()), request);
  prepared.targets = choose_targets(*prepared.file, request);
  prepared.table = options.model.table(config.model);
  prepared.purpose = {.training = false, .evaluation_lengths = request.context_lengths};
  const EvaluationSubject subject{source, config, *prepared.file, prepared.targets, options.begin_token.has_value()};
  for (const auto& metric : options.metrics) prepared.metrics.push_back(metric.prepare(subject));
  return result;
}

/// Returns the plans of the model and of the metrics' additional memory; a rank has one of each.
std::vector<RankPlan> plans_of(const PreparedEvaluation& prepared, const ModelDefinition& model) {
  std::vector<RankPlan> plans = plan_ranks(prepared.config, prepared.table, prepared.purpose, model);
  for (const auto& metric : prepared.metrics)
    std::ranges::move(metric->plans(prepared.purpose), std::back_inserter(plans));
  return plans;
}

/// Returns the values that all processes must have read alike.
std::vector<AgreedValue> agreed_values(const EvaluationOptions& options, const PreparedEvaluation& prepared) {
  const EvaluationRequest& request = prepared.targets.request;
  std::vector<AgreedValue> values{{"the checkpoint", prepared.source.identity},
                                  {"--data", prepared.file->hash()},
                                  {"--set", fmt::format("{}", fmt::join(options.settings, " "))},
                                  {"--layout", name_of(prepared.config.mesh.layout)},
                                  {"--shard-weights", name_of(prepared.config.training.shard)},
                                  {"--threads-per-rank", std::to_string(options.threads_per_rank)},
                                  {"--context-lengths", fmt::format("{}", fmt::join(request.context_lengths, ", "))},
                                  {"--stride", std::to_string(request.stride)},
                                  {"--begin-token", std::to_string(request.begin_token.value_or(-1))},
                                  {"--by-position", request.by_position ? "yes" : "no"},
                                  {"the targets' hash", prepared.targets.hash}};
  std::string names;
  for (const auto& metric : options.metrics) names += (names.empty() ? "--" : " --") + metric.name;
  values.push_back({"the list of metrics", names.empty() ? "empty" : names});
  for (std::size_t i = 0; i < prepared.metrics.size(); ++i) {
    values.push_back({"--" + options.metrics[i].name, prepared.metrics[i]->identity()});
  }
  return values;
}

/// Returns the largest number of sequences that a data rank scores.
std::int64_t sequences_of_rank(const PreparedEvaluation& prepared) {
  const std::int64_t data_ranks = prepared.config.mesh.data;
  std::int64_t total = 0;
  const auto add = [&](std::int64_t sequences) { total += (sequences + data_ranks - 1) / data_ranks; };
  for (const std::int64_t length : prepared.targets.request.context_lengths) {
    add(std::ssize(spans_of(*prepared.file, prepared.targets, length)));
  }
  for (const auto& metric : prepared.metrics) add(metric->sequences());
  return total;
}

/// Collective. Evaluates on one rank, whose model is loaded. Returns the same on every rank.
EvaluationSummary evaluate_on(RankState& state, const EvaluationOptions& options, const PreparedEvaluation& prepared,
                              std::vector<TokenScore>* per_token) {
  EvaluationSummary summary{.checkpoint = prepared.source.path,
                            .trained_length = prepared.config.training.seq_len,
                            .data = prepared.file->path(),
                            .targets = prepared.targets,
                            .results = {}};
  std::vector<std::unique_ptr<TargetScorer>> scorers;  // one per metric
  TargetScorer* scorer = nullptr;
  for (const auto& metric : prepared.metrics) {
    scorers.push_back(metric->make_scorer(state, prepared.purpose));
    if (scorers.back()) scorer = scorers.back().get();
  }
  std::optional<Progress> progress;
  if (state.rank == 0) progress.emplace("evaluate", sequences_of_rank(prepared));
  std::int64_t sequences = 0, tokens = 0;
  const auto count = [&](std::int64_t of_sequence) {
    tokens += of_sequence;
    if (progress) progress->update(++sequences, "", static_cast<double>(tokens));
  };
  abort_on_error(*state.world, [&] {
    summary.results = *evaluate_targets(state, *prepared.file, prepared.targets, count, nullptr, per_token, scorer);
    for (std::size_t i = 0; i < scorers.size(); ++i) {
      summary.metrics.emplace_back(options.metrics[i].name,
                                   prepared.metrics[i]->evaluate(state, scorers[i].get(), count));
    }
  });
  return summary;
}

}  // namespace

EvaluationSummary evaluate_checkpoint(const EvaluationOptions& options, Launcher& launcher,
                                      std::vector<TokenScore>* per_token) {
  const LaunchOptions launch{static_cast<int>(options.mesh.data * options.mesh.sequence)};
  launcher.check(launch);
  const std::vector<int> here = launcher.ranks_here(launch.ranks);
  const int threads = threads_per_rank(options.threads_per_rank, static_cast<int>(here.size()));
  require_runnable(std::ssize(here), threads);
  const auto evaluation = prepare_evaluation(options, launcher.is_rank_zero());
  const PreparedEvaluation& prepared = *evaluation;
  const Config& config = prepared.config;
  check_memory(config, plans_of(prepared, options.model), {here, launcher.ranks_of_process(launch.ranks)});

  EvaluationSummary summary;
  const auto evaluate_rank = [&](Communicator& world) {
    require_agreement(world, agreed_values(options, prepared));
    ThreadPool pool(threads);
    const Device device = device_of(config.training, world.rank(), here);
    require_carrier(config.mesh, world, device, launcher);
    RankState state(config, prepared.table, prepared.purpose, world.rank(), device, pool, &world, nullptr,
                    options.model);
    load_weights(state, &prepared.source);
    std::vector<TokenScore> scores;
    EvaluationSummary result = evaluate_on(state, options, prepared, per_token ? &scores : nullptr);
    abort_on_error(world, [&] { state.close(); });
    if (world.rank() != launcher.process()) return;
    summary = std::move(result);
    if (per_token) *per_token = std::move(scores);
  };
  launcher.launch({launch.ranks, config.mesh.timeout_seconds}, evaluate_rank);
  return summary;
}

}  // namespace ringtrain
