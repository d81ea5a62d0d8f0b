// The configuration of a run as plain typed values. read_config.h reads them from a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/config/choices.h"
#include "framework/config/lora_config.h"
#include "framework/config/rope_scaling.h"
#include "framework/device.h"
#include "framework/dtype.h"
#include "framework/sequence/segments.h"

namespace ringtrain {

struct ModelConfig {
  Architecture architecture = Architecture::llama;
  std::int64_t vocab_size = 257;
  std::int64_t hidden_size = 256;
  std::int64_t num_hidden_layers = 4;
  std::int64_t num_attention_heads = 4;
  std::int64_t num_key_value_heads = 0;  // 0 in the file: num_attention_heads; resolved by the reader
  std::int64_t head_dim = 0;             // 0 in the file: hidden_size / num_attention_heads; resolved by the reader
  std::int64_t intermediate_size = 768;
  double rope_theta = 500000.0;
  RopeScalingConfig rope_scaling;
  std::int64_t max_position_embeddings =
      0;  // learned positions: rows of their table; rope: the length meant, 0: unsaid
  std::int64_t sliding_window = 0;
  std::vector<LayerType> layer_types;               // layer i has the (i mod size)-th; none: all have the window
  std::vector<LayerPositions> layer_positions;      // the same; none: all rotate
  double sliding_rope_theta = 0;                    // of layers with the window, unscaled; 0: as the others
  double query_pre_attn_scalar = 0;                 // 0: head_dim
  double attention_softcap = 0, final_softcap = 0;  // of scores, of logits; 0: none
  bool attention_sinks = false;                     // a learned score a head that takes weight from all others
  double embedding_multiplier = 0;                  // 0: as the architecture has it
  double residual_multiplier = 1, logits_scaling = 1;
  double rms_norm_eps = 1.0e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  bool attention_bias = false;  // of q, k, v and o, where it is a choice
  bool mlp_bias = false;        // of gate, up and down, likewise
  LoraConfig lora;              // the section lora
};

struct DataSource {
  std::string path;
  double weight = 1.0;
};

struct DataConfig {
  std::vector<DataSource> train;  // a path, or a list of {path, weight}
  std::string validation;         // empty: the first file's own validation part
  Packing packing = Packing::documents;
};

struct MeshConfig {
  std::int64_t data = 1;
  std::int64_t sequence = 1;
  Layout layout = Layout::zigzag;
  Backend backend = Backend::automatic;
  std::int64_t threads_per_rank = 0;
  double timeout_seconds = 60;
};

/// Rows of attention that are computed again in double beside a step.
struct AuditConfig {
  std::int64_t interval = 0;  // steps; 0: never
  std::int64_t rows = 4;      // of each rank
  OnFailure on_failure = OnFailure::stop;
};

/// What differs from a step on from the steps before it; training_stages.h says what holds in each step.
struct TrainingStage {
  std::int64_t from_step = 0;                              // the stage's first, 2 or more
  std::optional<std::int64_t> seq_len, global_batch_size;  // none: as before
  std::optional<double> rope_theta;
  std::optional<RopeScalingConfig> rope_scaling;  // the whole section
};

struct TrainingConfig {
  std::int64_t seq_len = 0;  // required
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t steps = 0;             // required
  std::vector<TrainingStage> stages;  // after the first, ascending by from_step
  std::uint64_t seed = 1234;
  Device::Kind device = Device::Kind::cpu;
  Offload offload = Offload::none;
  Shard shard = Shard::optimizer;
  std::vector<std::string> trainable;  // patterns of parameters' names; none: all are trained
  DType dtype = DType::float32;
  Recompute recompute = Recompute::keep_attention;
  std::int64_t feedforward_chunk = 2048;  // tokens; 0: all at once
  std::int64_t loss_chunk = 1024;
  bool deterministic = true;
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  std::int64_t max_skipped_steps = 5;  // in a row
  AuditConfig audit;
};

struct OptimizerConfig {
  OptimizerName name = OptimizerName::adamw;
  double lr = 3.0e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1.0e-8;
  double weight_decay = 0.1;
  double max_grad_norm = 1.0;  // 0: no clipping
};

struct SchedulerConfig {
  ScheduleType type = ScheduleType::cosine;
  std::int64_t warmup_steps = 0;
  double min_lr_ratio = 0.1;
  double decay_ratio = 0.2;  // wsd: the last share of the steps, over which the rate falls
};

struct CheckpointConfig {
  std::int64_t interval = 0;  // steps; 0: only at the end
  std::int64_t keep = 3;
  bool background = true;  // false: training waits for every save, and needs no snapshot
  OnFailure on_failure = OnFailure::stop;
};

struct EvaluationConfig {
  std::int64_t interval = 0;  // steps; 0: never
  std::vector<std::int64_t> context_lengths;
  std::int64_t target_tokens = 256;
  std::int64_t target_blocks = 64;
  bool whole_documents = false;   // of at most training.seq_len tokens, instead of blocks at context_lengths
  bool on_training_data = false;  // where the file has no validation part
};

struct MetricsConfig {
  bool tensorboard = false;
  double peak_flops = 0;  // of one rank, dense; 0: not known
};

struct Config {
  std::string name;  // the file's name without folder and ending; not a key
  ModelConfig model;
  DataConfig data;
  MeshConfig mesh;
  TrainingConfig training;
  OptimizerConfig optimizer;
  SchedulerConfig lr_scheduler;
  CheckpointConfig checkpoint;
  EvaluationConfig evaluation;
  MetricsConfig metrics;
};

/// What a config is read for: to run it, or to know how a checkpoint came about, which another build may have made.
enum class ConfigUse { run, know };

}  // namespace ringtrain
