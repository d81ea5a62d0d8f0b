#include "train/run/run_steps.h"

#include <algorithm>
#include <utility>

#include "data/corpus.h"
#include "framework/config/training_stages.h"

namespace ringtrain {

Corpus open_training_corpus(const Config& config, const TokenFileOpener& open) {
  Corpus corpus = open_corpus(config.data, config.model.vocab_size, open);
  corpus.longer = config.data.longer;
  if (corpus.longer == LongDocuments::automatic) {  // the middle of a conversation is missing the question before it
    const bool weighted = std::ranges::any_of(corpus.files, [](const auto& file) { return file->has_weights(); });
    corpus.longer = weighted ? LongDocuments::truncate : LongDocuments::cut;
  }
  if (config.data.packing == Packing::whole) {
    for (const Config& stage : configs_of_stages(config)) corpus.cut_at_documents(stage.training.seq_len);
  }
  return corpus;
}

Samplers samplers_of(const Corpus& corpus, const Config& config) {
  Samplers samplers;
  for (const Config& stage : configs_of_stages(config)) {
    const std::int64_t seq_len = stage.training.seq_len;
    if (samplers.contains(seq_len)) continue;
    std::vector<std::int64_t> windows;
    for (std::size_t i = 0; i < corpus.files.size(); ++i) windows.push_back(corpus.window_count(i, seq_len, nullptr));
    samplers.emplace(seq_len, Sampler(std::move(windows), corpus.weights, config.training.seed));
  }
  return samplers;
}

const Config& RunSteps::at(std::int64_t step) const {
  return stages[static_cast<std::size_t>(stage_of_step(config.training, step))];
}

Sample RunSteps::sample(std::int64_t step, std::int64_t i) const {
  const std::int64_t seq_len = at(step).training.seq_len;
  return samplers.at(seq_len).sample(sequences_done(config.training, step - 1, seq_len) + i);
}

std::int64_t RunSteps::micro_batches(std::int64_t step) const {
  return at(step).micro_batches();
}

std::int64_t RunSteps::sequence_in_step(std::int64_t step, int data_rank, std::int64_t micro) const {
  return (data_rank * micro_batches(step) + micro) * config.training.micro_batch_size;
}

std::vector<Sample> RunSteps::samples_of(std::int64_t step, int data_rank, std::int64_t micro) const {
  const std::int64_t first = sequence_in_step(step, data_rank, micro);
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < config.training.micro_batch_size; ++i) samples.push_back(sample(step, first + i));
  return samples;
}

std::vector<std::int64_t> RunSteps::sample_indices(std::int64_t step) const {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < at(step).training.global_batch_size; ++i) {
    indices.push_back(sample(step, i).global_index);
  }
  return indices;
}

}  // namespace ringtrain
