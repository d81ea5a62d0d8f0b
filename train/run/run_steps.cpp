#include "train/run/run_steps.h"

#include "framework/config/training_stages.h"

namespace ringtrain {

const Config& RunSteps::at(std::int64_t step) const {
  return stages[static_cast<std::size_t>(stage_of_step(config.training, step))];
}

std::int64_t RunSteps::micro_batches(std::int64_t step) const {
  return at(step).training.global_batch_size / (config.mesh.data * config.training.micro_batch_size);
}

std::int64_t RunSteps::sequence_in_step(std::int64_t step, int data_rank, std::int64_t micro) const {
  return (data_rank * micro_batches(step) + micro) * config.training.micro_batch_size;
}

std::vector<Sample> RunSteps::samples_of(std::int64_t step, int data_rank, std::int64_t micro) const {
  const std::int64_t first = sequence_in_step(step, data_rank, micro);
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < config.training.micro_batch_size; ++i) samples.push_back(order.sample(step, first + i));
  return samples;
}

std::vector<std::int64_t> RunSteps::sample_indices(std::int64_t step) const {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < at(step).training.global_batch_size; ++i) {
    indices.push_back(order.sample(step, i).global_index);
  }
  return indices;
}

}  // namespace ringtrain
