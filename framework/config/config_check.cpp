#include "framework/config/config_check.h"

#include <fmt/core.h>

#include "framework/config/config.h"
#include "framework/config/config_problems.h"
#include "framework/config/config_schema.h"
#include "framework/config/rope_scaling_check.h"
#include "framework/config/training_stages.h"
#include "framework/config/yaml_tree.h"
#include "framework/device.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

/// Returns "24" or "16 and 24": the nearest positive multiples of unit around value.
std::string nearest_multiples(std::int64_t value, std::int64_t unit) {
  const std::int64_t below = value / unit * unit;
  return below == 0 ? fmt::format("{}", unit) : fmt::format("{} and {}", below, below + unit);
}

void check_heads(ModelConfig& model, ConfigProblems& problems) {
  if (!problems.clean(
          {"model.hidden_size", "model.num_attention_heads", "model.num_key_value_heads", "model.head_dim"})) {
    return;
  }
  const std::int64_t heads = model.num_attention_heads;
  if (model.num_key_value_heads == 0) model.num_key_value_heads = heads;
  if (heads % model.num_key_value_heads != 0) {
    problems.add("model.num_key_value_heads",
                 "model.num_attention_heads = {} is not a multiple of it ({}); every key/value head serves the same "
                 "number of query heads",
                 heads, model.num_key_value_heads);
  }
  if (model.head_dim == 0) {
    if (model.hidden_size % heads != 0) {
      problems.add("model.hidden_size",
                   "{} is not divisible by model.num_attention_heads = {}; the nearest values that are: {}; or set "
                   "model.head_dim",
                   model.hidden_size, heads, nearest_multiples(model.hidden_size, heads));
      return;
    }
    model.head_dim = model.hidden_size / heads;
  }
}

void check_batch(const Config& config, ConfigProblems& problems) {
  const TrainingConfig& training = config.training;
  if (!problems.clean({"mesh.data", "training.global_batch_size", "training.micro_batch_size"})) return;
  const std::int64_t unit = config.mesh.data * training.micro_batch_size;
  if (training.global_batch_size % unit != 0) {
    problems.add(
        "training.global_batch_size",
        "{} is not divisible by mesh.data * training.micro_batch_size = {} * {} = {}; the nearest values that are: {}",
        training.global_batch_size, config.mesh.data, training.micro_batch_size, unit,
        nearest_multiples(training.global_batch_size, unit));
  }
  if (!problems.clean({"training.seq_len", "training.steps"})) return;
  constexpr double max_tokens = 4e18;  // consumed tokens are counted in 63 bits
  const double tokens = static_cast<double>(training.seq_len) * static_cast<double>(training.global_batch_size) *
                        static_cast<double>(training.steps);
  if (tokens > max_tokens) {
    problems.add("training.steps",
                 "training.steps * training.global_batch_size * training.seq_len = {} * {} * {} tokens are more than "
                 "can be counted (4e18)",
                 training.steps, training.global_batch_size, training.seq_len);
  }
}

/// A stored config without the key comes from a version that cut every longer document.
void check_longer(DataConfig& data, ConfigUse use, ConfigProblems& problems) {
  const bool whole = data.packing == Packing::whole;
  if (data.longer == LongDocuments::automatic && (use == ConfigUse::know || !whole)) data.longer = LongDocuments::cut;
  if (whole || data.longer == LongDocuments::automatic || data.longer == LongDocuments::cut) return;
  problems.add("data.longer",
               "needs data.packing whole: the other packings cut windows out of the stream of documents");
}

void check_evaluation(Config& config, ConfigProblems& problems) {
  EvaluationConfig& evaluation = config.evaluation;
  if (evaluation.interval == 0 ||
      !problems.clean({"evaluation.interval", "evaluation.context_lengths", "evaluation.target_tokens"})) {
    return;
  }
  if (evaluation.whole_documents) {
    const std::int64_t longest = config_of_stage(config, longest_stage(config.training)).training.seq_len;
    const std::vector<std::int64_t> lengths{longest};
    if (evaluation.context_lengths.empty()) evaluation.context_lengths = lengths;
    if (evaluation.context_lengths != lengths) {
      problems.add("evaluation.context_lengths",
                   "applies only to target blocks: evaluation.whole_documents scores documents of at most "
                   "training.seq_len = {} tokens; leave this key out",
                   longest);
    }
    return;
  }
  if (evaluation.context_lengths.empty()) {
    problems.add("evaluation.context_lengths",
                 "evaluation.interval = {} needs at least one length, or evaluation.whole_documents: true; or set "
                 "evaluation.interval to 0",
                 evaluation.interval);
  } else if (evaluation.target_tokens > evaluation.context_lengths.front() / 2) {
    problems.add("evaluation.target_tokens",
                 "{} is more than half of the shortest of evaluation.context_lengths, {}; make it at most {}, so that "
                 "every target has context",
                 evaluation.target_tokens, evaluation.context_lengths.front(), evaluation.context_lengths.front() / 2);
  }
}

void check_optimizer(const Config& config, ConfigProblems& problems) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (problems.clean({"optimizer.lr", "optimizer.weight_decay"}) && optimizer.lr * optimizer.weight_decay >= 1) {
    problems.add(
        "optimizer.weight_decay",
        "optimizer.lr * optimizer.weight_decay = {} * {} is 1 or more: a step would flip the signs of the weights",
        optimizer.lr, optimizer.weight_decay);
  }
  for (const auto& [key, dtype] :
       {std::pair{"optimizer.moments", optimizer.moments}, {"optimizer.gradients", optimizer.gradients}}) {
    if (dtype != DType::bfloat16 || config.training.dtype != DType::float64) continue;
    problems.add(key, "bfloat16 does not work with training.dtype float64; leave this key out");
  }
  if (optimizer.host_share != 1 && !config.training.offloads(Offload::optimizer)) {
    problems.add("optimizer.host_share", "training.offload is {}; set it to optimizer, or leave this key out",
                 name_of(config.training.offload));
  }
}

/// Checks what a device can do, in any build.
void check_device(const Config& config, ConfigProblems& problems) {
  const TrainingConfig& training = config.training;
  const bool cuda = training.device == Device::Kind::cuda;
  if (cuda && training.dtype == DType::float64) {
    problems.add("training.dtype", "float64 is for training.device cpu; with cuda use bfloat16 or float32");
  }
  if (!cuda && training.offload != Offload::none) {
    problems.add("training.offload", "offloading moves data out of GPU memory; with training.device cpu use none");
  }
  if (!cuda && config.mesh.backend == Backend::nccl) {
    problems.add("mesh.backend", "nccl sends only GPU memory; with training.device cpu use threads or mpi (or auto)");
  }
  if (cuda && config.mesh.backend == Backend::mpi) {
    problems.add("mesh.backend", "mpi sends only host memory; with training.device cuda use nccl or threads (or auto)");
  }
}

/// Checks for choices that the source supports but this build does not include.
void check_build(const Config& config, ConfigProblems& problems) {
  if (config.training.device == Device::Kind::cuda && !built_with_cuda) {
    problems.add("training.device", "cuda is not in this build; use cpu, or build with cmake --preset cuda");
  }
#if !RINGTRAIN_MPI
  if (config.mesh.backend == Backend::mpi) {
    problems.add("mesh.backend",
                 "mpi is not in this build; use threads (or auto), or install libopenmpi-dev and build from source");
  }
#endif
  if (config.training.device == Device::Kind::cuda && config.mesh.backend == Backend::nccl && !built_with_nccl) {
    problems.add("mesh.backend", "nccl is not in this build; use threads (or auto), or build where NCCL is found");
  }
}

}  // namespace

void check_values(const Config& config, std::string_view prefix, ConfigProblems& problems) {
  for (const ConfigKey& key : config_keys()) {
    if (!key.path.starts_with(prefix)) continue;
    Config ignored;
    try {
      const YamlValue line = parse_yaml("value: " + key.write(config));
      key.read(ignored, line.entries.at(0).value, [&](int, const std::string& what) { problems.add(key.path, what); });
    } catch (const YamlError& error) {
      problems.add(key.path, error.what());
    } catch (const Error&) {  // a value of an enumeration that has no name
      problems.add(key.path, "has a value that is not one of {}", key.values);
    }
  }
}

void resolve_and_check(Config& config, ConfigUse use, ConfigProblems& problems) {
  if (config.model.from_scratch && config.model.from.empty()) {
    problems.add("model.from_scratch", "is true, but there is no model.from to take sizes from; leave it out");
  }
  check_heads(config.model, problems);
  check_rope_scaling(config, problems);
  check_batch(config, problems);
  check_longer(config.data, use, problems);
  check_evaluation(config, problems);
  check_optimizer(config, problems);
  check_device(config, problems);
  if (use == ConfigUse::run) check_build(config, problems);
}

}  // namespace ringtrain
