// The configuration of a run as plain typed values. read_config.h reads them from a file. Sections that parts of a run
// take separately have their own headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/choices.h"
#include "framework/config/data_config.h"
#include "framework/config/mesh_config.h"
#include "framework/config/model_config.h"
#include "framework/config/training_config.h"

namespace ringtrain {

struct OptimizerConfig {
  OptimizerName name = OptimizerName::adamw;
  double lr = 3.0e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1.0e-8;
  double weight_decay = 0.1;
  double max_grad_norm = 1.0;  // 0: no clipping
  DType moments = DType::float32, gradients = DType::float32;
  double host_share = 1;  // of the state, if training.offload names the optimizer
};

struct SchedulerConfig {
  ScheduleType type = ScheduleType::cosine;
  std::int64_t warmup_steps = 0;
  double min_lr_ratio = 0.1;
  double decay_ratio = 0.2;  // wsd: the share of the steps, at the end, over which the rate falls
};

struct CheckpointConfig {
  std::int64_t interval = 0;  // steps; 0: none between; -1: only on a signal
  double every_minutes = 30;  // in addition to interval, unless interval is -1; 0: never
  std::int64_t keep = 3;
  bool background = true;  // if interval > 0; otherwise training waits for every save, and needs no snapshot
  OnFailure on_failure = OnFailure::stop;
};

struct EvaluationConfig {
  std::int64_t interval = 0;  // steps; 0: never
  std::vector<std::int64_t> context_lengths;
  std::int64_t target_tokens = 256;
  std::int64_t target_blocks = 64;
  bool whole_documents = false;   // of at most training.seq_len tokens, instead of blocks of context_lengths
  bool on_training_data = false;  // if the file has no validation part
};

struct MetricsConfig {
  bool tensorboard = false;  // true is refused, with a message that names the program that writes the events
  double peak_flops = 0;     // of one rank, dense; 0: unknown
};

struct Config {
  std::string name;  // the file's name without folder and extension; not a key
  ModelConfig model;
  DataConfig data;
  MeshConfig mesh;
  TrainingConfig training;
  OptimizerConfig optimizer;
  SchedulerConfig lr_scheduler;
  CheckpointConfig checkpoint;
  EvaluationConfig evaluation;
  MetricsConfig metrics;

  /// Returns the micro-batches of a data rank in a step.
  std::int64_t micro_batches() const { return training.global_batch_size / (mesh.data * training.micro_batch_size); }
};

}  // namespace ringtrain
