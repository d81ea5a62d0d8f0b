#include "train/evaluation/checkpoint_evaluation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "data/token_file.h"
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
#include "parallel/launch/launcher.h"
#include "train/engine/computation.h"
#include "train/engine/memory_check.h"
#include "train/evaluation/evaluator.h"
#include "train/evaluation/long_perplexity.h"
#include "train/evaluation/scored_part.h"
#include "train/evaluation/tasks/task_samples.h"
#include "train/evaluation/tasks/task_scores.h"
#include "train/models/load_weights.h"
#include "train/models/model_tokenizer.h"

namespace ringtrain {

namespace {

/// Returns the request with what it leaves to the checkpoint's config.
EvaluationRequest resolved(EvaluationRequest request, const EvaluationConfig& config) {
  if (request.target_tokens == EvaluationOptions::of_the_checkpoint) request.target_tokens = config.target_tokens;
  if (request.target_blocks == EvaluationOptions::of_the_checkpoint) request.target_blocks = config.target_blocks;
  return request;
}

void check_lengths(const EvaluationOptions& options, const EvaluationRequest& request, const Config& config) {
  check_request(request, request.stride > 0 ? "--stride" : "--context-lengths and --target-tokens");
  const auto& lengths = request.context_lengths;
  const ModelSpec spec = model_spec(config.model);
  if (spec.positions == Positions::learned && lengths.back() > spec.max_position_embeddings) {
    fail(ExitCode::usage,
         "--context-lengths: {} is beyond this {}'s table of model.max_position_embeddings = {} positions",
         lengths.back(), spec.architecture, spec.max_position_embeddings);
  }
  if (options.mesh.sequence > lengths.front()) {
    fail(ExitCode::usage, "--mesh: {} sequence ranks are more than the shortest context length, {}",
         options.mesh.sequence, lengths.front());
  }
}

std::unique_ptr<TokenFile> open_data(const EvaluationOptions& options, const Config& config) {
  const std::string& path = options.data;
  auto file = options.open_tokens(path);
  if (file->vocab_size() > config.model.vocab_size) {
    fail(ExitCode::data, "{} has tokens up to {}, but the checkpoint's model.vocab_size is {}", path,
         file->vocab_size() - 1, config.model.vocab_size);
  }
  return file;
}

/// Returns the config under which a model is evaluated: that of its run, or of a model from elsewhere the defaults.
Config config_of(const ModelSource& source) {
  Config config;
  if (source.checkpoint) config = source.checkpoint->config;
  config.model = source.model;
  config.training.seq_len = source.context_length;
  return config;
}

/// Changes a model's keys as settings say. Throws Error(usage) for a key that would need other weights, or a value that
/// does not fit.
void apply_settings(Config& config, const std::vector<std::string>& settings) {
  if (settings.empty()) return;
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('='));
    if (is_free_with_weights(key)) continue;
    fail(ExitCode::usage,
         "--set {}: only keys that leave weights as they are can be set here: model.rope_scaling and its keys, "
         "model.rope_theta, model.max_position_embeddings, model.sliding_window, model.layer_types, "
         "model.layer_positions, model.sliding_rope_theta, model.query_pre_attn_scalar, model.attention_softcap, "
         "model.final_softcap, model.embedding_multiplier, model.residual_multiplier, model.logits_scaling, "
         "model.rms_norm_eps",
         setting);
  }
  Config changed = config;
  changed.data.train = {{"none", 1}};  // a file and steps are asked for, and none is read or made
  changed.training.steps = std::max(changed.training.steps, std::int64_t{1});
  changed.training.stages.clear();
  config.model = parse_config(to_yaml(changed), "the model", settings, ConfigUse::know, check_model).model;
}

/// The model of --against, under the config by which it is evaluated beside the checkpoint.
struct OtherModel {
  ModelSource source;
  Config config;
  ParameterTable table;
};

/// Returns nothing if it was not asked for. config: that of the checkpoint's evaluation, whose mesh and dtype both
/// have.
std::optional<OtherModel> other_model(const EvaluationOptions& options, const ModelSource& own, const Config& config,
                                      const TokenFile& file, const EvaluationRequest& request) {
  if (options.against.empty()) return std::nullopt;
  if (config.training.device == Device::Kind::cuda) {
    fail(ExitCode::usage, "--against: the logits of two models are compared on the CPU; give --device cpu");
  }
  OtherModel other{open_model(options.against), {}, {}};
  const ModelConfig& model = other.source.model;
  if (model.vocab_size != config.model.vocab_size) {
    fail(ExitCode::usage,
         "--against {}: its vocabulary has {} tokens, but that of {} has {}, so their predictions do not compare",
         other.source.path, model.vocab_size, own.path, config.model.vocab_size);
  }
  check_tokens(other.source, file);
  const std::string one = tokenizer_identity(own), another = tokenizer_identity(other.source);
  if (!one.empty() && !another.empty() && one != another) {
    fail(ExitCode::usage, "--against {}: it has another tokenizer than {} (hashes {} and {})", other.source.path,
         own.path, another, one);
  }
  other.config = config;
  other.config.model = model;
  other.table = make_parameter_table(model);
  check_lengths(options, request, other.config);
  for (const std::string& line : other.source.logs) {
    write_message(stderr, fmt::format("evaluate: --against: {}\n", line));
  }
  if (const auto beyond = beyond_context(other.source, request.context_lengths.back(), "--context-lengths")) {
    write_message(stderr, fmt::format("evaluate: --against: {}\n", *beyond));
  }
  return other;
}

MemoryUse sum_of(MemoryUse a, const MemoryUse& b) {
  for (std::size_t tag = 0; tag < a.by_tag.size(); ++tag) a.by_tag[tag] += b.by_tag[tag];
  a.total += b.total;
  return a;
}

/// Returns what ranks hold that are of both plans at once: a kind for each pair of kinds.
std::vector<RankPlan> plans_together(const std::vector<RankPlan>& one, const std::vector<RankPlan>& other) {
  std::vector<RankPlan> plans;
  for (const RankPlan& a : one) {
    for (const RankPlan& b : other) {
      RankPlan both{{}, a.tensors, a.peak, a.host};
      std::ranges::set_intersection(a.ranks, b.ranks, std::back_inserter(both.ranks));
      if (both.ranks.empty()) continue;
      both.tensors.insert(both.tensors.end(), b.tensors.begin(), b.tensors.end());
      both.peak = sum_of(a.peak, b.peak);
      both.host = sum_of(a.host, b.host);
      plans.push_back(std::move(both));
    }
  }
  return plans;
}

std::vector<std::int64_t> documents_of(const EvaluationTargets& targets) {
  std::vector<std::int64_t> documents;
  for (const TargetBlock& block : targets.blocks) documents.push_back(block.document);
  return documents;
}

/// Returns the texts of --tasks; nothing if they were not asked for.
std::optional<TaskSamples> samples_of(const EvaluationOptions& options, const ModelSource& source, const Config& config,
                                      const EvaluationRequest& request) {
  if (!options.tasks) return std::nullopt;
  if (config.training.device == Device::Kind::cuda) {
    fail(ExitCode::usage, "--tasks: candidates are compared on the CPU; give --device cpu");
  }
  const std::unique_ptr<Tokenizer> tokenizer = load_model_tokenizer(source);
  if (!tokenizer) {
    fail(ExitCode::usage, "--tasks: {} has no tokenizer, so no text can be written in its tokens", source.path);
  }
  if (tokenizer->vocab_size() > config.model.vocab_size) {
    fail(ExitCode::usage, "--tasks: the tokenizer of {} has {} tokens, but the model's vocabulary {}", source.path,
         tokenizer->vocab_size(), config.model.vocab_size);
  }
  return make_task_samples(options.tasks->kinds, request.context_lengths, options.tasks->settings, *tokenizer,
                           config.model.vocab_size);
}

/// Returns the texts of --longppl; nothing if it was not asked for.
std::optional<LongPplTexts> texts_of(const EvaluationOptions& options, const ModelSource& source, const TokenFile& file,
                                     const EvaluationTargets& targets, const EvaluationRequest& request) {
  if (!options.longppl) return std::nullopt;
  std::unique_ptr<Tokenizer> tokenizer = load_model_tokenizer(source);
  if (!tokenizer && file.tokenizer_hash() == read_tokenizer_identity("bytes")) tokenizer = load_tokenizer("bytes");
  const auto& [key, given] = *options.longppl;
  return long_texts(file, targets, request.context_lengths.back(), key, tokenizer.get(), given ? &*given : nullptr);
}

}  // namespace

EvaluationSummary evaluate_checkpoint(const EvaluationOptions& options, Launcher& launcher,
                                      std::vector<TokenScore>* per_token) {
  const LaunchOptions launch{static_cast<int>(options.mesh.data * options.mesh.sequence)};
  launcher.check(launch);
  const std::vector<int> here = launcher.ranks_here(launch.ranks);
  const int threads = threads_per_rank(options.threads_per_rank, static_cast<int>(here.size()));
  require_runnable(std::ssize(here), threads);
  const ModelSource source = open_model(options.checkpoint, options.model);
  for (const std::string& line : source.logs) {
    if (launcher.is_rank_zero()) write_message(stderr, fmt::format("evaluate: {}\n", line));
  }
  Config config = config_of(source);
  apply_settings(config, options.settings);
  config.mesh.data = options.mesh.data;
  config.mesh.sequence = options.mesh.sequence;
  if (options.layout) config.mesh.layout = *options.layout;
  config.mesh.threads_per_rank = options.threads_per_rank;
  config.mesh.backend = Backend::automatic;  // as the ranks of this evaluation are started
  choose_computation(options.device, options.dtype, config.training);
  if (options.shard_weights) config.training.shard = Shard::weights;
  EvaluationRequest request = resolved(options.request, config.evaluation);
  check_lengths(options, request, config);
  const auto file = open_data(options, config);
  if (const auto remark = check_tokens(source, *file); remark && launcher.is_rank_zero()) {
    write_message(stderr, fmt::format("evaluate: {}\n", *remark));
  }
  const bool rescaled = std::ranges::any_of(options.settings, [](const std::string& one) {
    return one.starts_with("model.rope_") || one.starts_with("model.max_position_embeddings");
  });
  const auto beyond = beyond_context(source, request.context_lengths.back(), "--context-lengths");
  if (beyond && !rescaled && launcher.is_rank_zero()) {
    write_message(stderr, fmt::format("evaluate: {} (by --set)\n", *beyond));
  }
  std::optional<bool> trained_on;  // of a model from elsewhere nobody knows
  if (source.checkpoint) {
    trained_on = was_trained_on(file->hash(), config.data, source.checkpoint->manifest.data_hash);
  }
  const ScoredChoice part = choose_part(*file, request.part, trained_on);
  request.part = part.part;
  const EvaluationTargets targets = choose_targets(*file, request);

  const std::optional<LongPplTexts> longppl = texts_of(options, source, *file, targets, request);

  const std::optional<TaskSamples> tasks = samples_of(options, source, config, request);
  const std::optional<OtherModel> other = other_model(options, source, config, *file, request);

  const RankPurpose purpose{.training = false, .evaluation_lengths = request.context_lengths};
  const ParameterTable table = options.model.table(config.model);
  std::vector<RankPlan> plans = plan_ranks(config, table, purpose, options.model);
  if (other) plans = plans_together(plans, plan_ranks(other->config, other->table, purpose));
  check_memory(config, plans, {here, launcher.ranks_of_process(launch.ranks)});

  std::vector<LengthResult> results;
  std::vector<LengthComparison> comparison_result;
  std::optional<TaskSummary> task_result;
  std::optional<LongPplResult> longppl_result;
  const auto evaluate_rank = [&](Communicator& world) {
    require_agreement(world, {{"the checkpoint", source.identity},
                              {"--data", file->hash()},
                              {"--set", fmt::format("{}", fmt::join(options.settings, " "))},
                              {"--layout", name_of(config.mesh.layout)},
                              {"--shard-weights", name_of(config.training.shard)},
                              {"--threads-per-rank", std::to_string(options.threads_per_rank)},
                              {"the context lengths", fmt::format("{}", fmt::join(request.context_lengths, ", "))},
                              {"--stride", std::to_string(request.stride)},
                              {"--by-position", request.by_position ? "yes" : "no"},
                              {"--against", other ? other->source.identity : ""},
                              {"--tasks", tasks ? tasks->tokens->hash() : ""},
                              {"--longppl", longppl ? key_set_text(longppl->set) : ""},
                              {"the targets' hash", targets.hash}});
    ThreadPool pool(threads);
    const Device device = device_of(config.training, world.rank(), here);
    require_carrier(config.mesh.backend, world, device, launcher.ranks_are_processes());
    RankState state(config, table, purpose, world.rank(), device, pool, &world, nullptr, options.model);
    load_weights(state, source);
    std::unique_ptr<RankState> other_state;
    std::optional<Comparison> comparison;
    if (other) {
      other_state =
          std::make_unique<RankState>(other->config, other->table, purpose, world.rank(), device, pool, &world);
      load_weights(*other_state, other->source);
      comparison.emplace(*other_state, request, std::ssize(targets.blocks));
    }
    EvaluationProgress tell;
    std::unique_ptr<Progress> progress;
    std::int64_t spans_done = 0, tokens_done = 0;
    const auto tell_more = [&](std::int64_t tokens) {
      if (tell) tell(spans_done + 1, tokens_done + tokens);
    };
    if (world.rank() == 0) {
      std::int64_t own_spans = 0;
      for (const std::int64_t length : request.context_lengths) {
        own_spans += (std::ssize(spans_of(*file, request, targets, length)) + config.mesh.data - 1) / config.mesh.data;
      }
      if (longppl) own_spans += (long_ppl_spans(*longppl) + config.mesh.data - 1) / config.mesh.data;
      if (tasks) own_spans += (std::ssize(tasks->spans) + config.mesh.data - 1) / config.mesh.data;
      progress = std::make_unique<Progress>("evaluate", own_spans);
      tell = [&](std::int64_t done, std::int64_t tokens) {
        spans_done = done;
        tokens_done = tokens;
        progress->update(done, "", static_cast<double>(tokens));
      };
    }
    abort_on_error(world, [&] {
      std::vector<TokenScore> scores;
      auto own = evaluate_targets(state, *file, request, targets, tell, nullptr, per_token ? &scores : nullptr,
                                  comparison ? &*comparison : nullptr);
      if (world.rank() == launcher.process()) {
        results = std::move(*own);
        if (per_token) *per_token = std::move(scores);
      }
      if (comparison) {
        auto found = comparison->finish(world, documents_of(targets));
        if (world.rank() == launcher.process()) comparison_result = std::move(found);
      }
      if (longppl) {
        auto found = evaluate_long_perplexity(state, *file, *longppl, source.path, tell_more);
        if (world.rank() == launcher.process()) longppl_result = std::move(found);
      }
      if (tasks) {
        auto found = evaluate_tasks(state, *tasks, options.tasks->greedy, tell_more);
        if (world.rank() == launcher.process()) task_result = std::move(found);
      }
      if (other_state) other_state->close();
      state.close();
    });
  };
  launcher.launch({launch.ranks, config.mesh.timeout_seconds}, evaluate_rank);
  EvaluationSummary summary =
      summary_of(source.path, config.training.seq_len, file->path(), part, targets, std::move(results));
  summary.blocks = targets.blocks;
  if (other) summary.against = other->source.path;
  summary.comparison = std::move(comparison_result);
  summary.tasks = std::move(task_result);
  summary.longppl = std::move(longppl_result);
  return summary;
}

}  // namespace ringtrain
