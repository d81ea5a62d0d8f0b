#include "train/run/run.h"

namespace ringtrain {

std::int64_t Run::first_sequence(std::int64_t step) const {
  return start.samples + (step - 1 - start.step) * config.training.global_batch_size;
}

std::int64_t Run::micro_batches() const {
  return config.training.global_batch_size / (config.mesh.data * config.training.micro_batch_size);
}

std::int64_t Run::sequence_in_step(int data_rank, std::int64_t micro) const {
  return (data_rank * micro_batches() + micro) * config.training.micro_batch_size;
}

std::vector<Sample> Run::samples_of(std::int64_t step, int data_rank, std::int64_t micro) const {
  const std::int64_t size = config.training.micro_batch_size;
  const std::int64_t first = first_sequence(step) + sequence_in_step(data_rank, micro);
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < size; ++i) samples.push_back(sampler.sample(first + i));
  return samples;
}

std::vector<std::int64_t> Run::sample_indices(std::int64_t step) const {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < config.training.global_batch_size; ++i) {
    indices.push_back(sampler.sample(first_sequence(step) + i).global_index);
  }
  return indices;
}

}  // namespace ringtrain
