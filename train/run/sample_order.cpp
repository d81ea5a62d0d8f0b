#include "train/run/sample_order.h"

#include <algorithm>
#include <utility>

#include "framework/config/config.h"
#include "framework/config/training_stages.h"

namespace ringtrain {

Corpus open_training_corpus(const Config& config, const TokenFileOpener& open) {
  Corpus corpus = open_corpus(config.data, config.model.vocab_size, open);
  corpus.longer = config.data.longer;
  if (corpus.longer == LongDocuments::automatic) {  // the middle of a conversation has no question before it
    const bool weighted = std::ranges::any_of(corpus.files, [](const auto& file) { return file->has_weights(); });
    corpus.longer = weighted ? LongDocuments::truncate : LongDocuments::cut;
  }
  if (config.data.packing == Packing::whole) {
    for (const Config& stage : configs_of_stages(config)) corpus.cut_at_documents(stage.training.seq_len);
  }
  return corpus;
}

SampleOrder::SampleOrder(const Corpus& corpus, const Config& config) : training_(config.training) {
  for (const Config& stage : configs_of_stages(config)) {
    const std::int64_t seq_len = stage.training.seq_len;
    seq_lens_.push_back(seq_len);
    if (samplers_.contains(seq_len)) continue;
    std::vector<std::int64_t> windows;
    for (std::size_t i = 0; i < corpus.files.size(); ++i) windows.push_back(corpus.window_count(i, seq_len, nullptr));
    samplers_.emplace(seq_len, Sampler(std::move(windows), corpus.weights, training_.seed));
  }
}

Sample SampleOrder::sample(std::int64_t step, std::int64_t i) const {
  const std::int64_t seq_len = seq_lens_[static_cast<std::size_t>(stage_of_step(training_, step))];
  return samplers_.at(seq_len).sample(sequences_done(training_, step - 1, seq_len) + i);
}

std::vector<std::int64_t> SampleOrder::lengths() const {
  std::vector<std::int64_t> lengths;
  for (const auto& [length, sampler] : samplers_) lengths.push_back(length);
  return lengths;
}

}  // namespace ringtrain
