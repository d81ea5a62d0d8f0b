#include "train/run/sample_order.h"

#include <utility>

#include "data/corpus.h"
#include "framework/config/config.h"
#include "framework/config/training_stages.h"

namespace ringtrain {

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
