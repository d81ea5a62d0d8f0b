// The configuration of a run as plain typed values. read_config.h reads them from a file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/config/named.h"
#include "framework/dtype.h"
#include "framework/sequence/segments.h"

namespace ringtrain {

enum class Architecture { llama, mistral, gpt2, qwen2, qwen3 };  // layers/model_spec.h says what each is made of
inline constexpr std::array architecture_names{
    Named{Architecture::llama, "llama"}, Named{Architecture::mistral, "mistral"}, Named{Architecture::gpt2, "gpt2"},
    Named{Architecture::qwen2, "qwen2"}, Named{Architecture::qwen3, "qwen3"}};
inline constexpr std::array all_architectures = values_of(architecture_names);
inline const char* name_of(Architecture architecture) {
  return name_in(architecture_names, architecture);
}

enum class RopeType { none, linear, ntk, yarn, llama3, longrope };  // kernels/rope.h says what each computes
inline constexpr std::array rope_type_names{Named{RopeType::none, "none"},     Named{RopeType::linear, "linear"},
                                            Named{RopeType::ntk, "ntk"},       Named{RopeType::yarn, "yarn"},
                                            Named{RopeType::llama3, "llama3"}, Named{RopeType::longrope, "longrope"}};
inline constexpr std::array all_rope_types = values_of(rope_type_names);
inline const char* name_of(RopeType type) {
  return name_in(rope_type_names, type);
}

enum class Packing { documents, concat };
inline constexpr std::array packing_names{Named{Packing::documents, "documents"}, Named{Packing::concat, "concat"}};

enum class Backend { automatic, threads, mpi, nccl };  // parallel/launch/communicator_factory.h decides what each means
inline constexpr std::array backend_names{Named{Backend::automatic, "auto"}, Named{Backend::threads, "threads"},
                                          Named{Backend::mpi, "mpi"}, Named{Backend::nccl, "nccl"}};
inline const char* name_of(Backend backend) {
  return name_in(backend_names, backend);
}

enum class Recompute { none, keep_attention, full };
inline constexpr std::array recompute_names{
    Named{Recompute::none, "none"}, Named{Recompute::keep_attention, "keep_attention"}, Named{Recompute::full, "full"}};
inline constexpr std::array all_recompute_policies = values_of(recompute_names);
inline const char* name_of(Recompute policy) {
  return name_in(recompute_names, policy);
}

enum class Offload { none, activations, activations_and_optimizer };
inline constexpr std::array offload_names{Named{Offload::none, "none"}, Named{Offload::activations, "activations"},
                                          Named{Offload::activations_and_optimizer, "activations+optimizer"}};
inline const char* name_of(Offload offload) {
  return name_in(offload_names, offload);
}

enum class OptimizerName { adamw };  // train/engine/update_rule.cpp says what each does
inline constexpr std::array optimizer_names{Named{OptimizerName::adamw, "adamw"}};

enum class ScheduleType { cosine, linear, wsd, constant };
inline constexpr std::array schedule_names{Named{ScheduleType::cosine, "cosine"}, Named{ScheduleType::linear, "linear"},
                                           Named{ScheduleType::wsd, "wsd"}, Named{ScheduleType::constant, "constant"}};

enum class OnFailure { stop, warn };
inline constexpr std::array on_failure_names{Named{OnFailure::stop, "stop"}, Named{OnFailure::warn, "warn"}};

enum class OnNonfinite { stop, skip };
inline constexpr std::array on_nonfinite_names{Named{OnNonfinite::stop, "stop"}, Named{OnNonfinite::skip, "skip"}};

/// Rotary positions beyond the trained length. Keys and meaning are those of Hugging Face, except ntk, which is ours.
struct RopeScalingConfig {
  RopeType type = RopeType::none;
  double factor = 0;  // new length / trained length; 0 in the file: 1, or of the two lengths; resolved by the reader
  std::int64_t original_max_position_embeddings = 0;  // the trained length: yarn, llama3, longrope
  double attention_factor = 0;                        // of cosines and sines: yarn, longrope; 0: from the factor
  double beta_fast = 32, beta_slow = 1;               // yarn: rotations that bound the ramp
  double mscale = 0, mscale_all_dim = 0;              // yarn: of the attention factor; 0: not used
  bool truncate = true;                               // yarn: the ramp's ends are whole numbers
  double low_freq_factor = 1, high_freq_factor = 4;   // llama3: wavelengths that bound the ramp
  std::vector<double> short_factor, long_factor;      // longrope: [head_dim / 2]
};

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
  double rms_norm_eps = 1.0e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  bool attention_bias = false;  // of q, k, v and o: llama, qwen3
  bool mlp_bias = false;        // of gate, up and down: llama
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

struct TrainingConfig {
  std::int64_t seq_len = 0;  // required
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t steps = 0;  // required
  std::uint64_t seed = 1234;
  std::string device = "cpu";
  Offload offload = Offload::none;
  DType dtype = DType::float32;
  Recompute recompute = Recompute::keep_attention;
  std::int64_t feedforward_chunk = 2048;  // tokens; 0: all at once
  std::int64_t loss_chunk = 1024;
  bool deterministic = true;
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  std::int64_t max_skipped_steps = 5;  // in a row
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
