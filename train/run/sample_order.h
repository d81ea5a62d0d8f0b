// Which sequence comes when in a run with stages: a sampler for each length. The sequences of one length follow one
// another through all stages of that length, as if there were no others. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "data/corpus.h"
#include "data/sampler.h"
#include "framework/config/training_config.h"

namespace ringtrain {

struct Config;

/// Returns the files of data.train, open and verified, and cut at documents where the config says so for the lengths of
/// all stages. What becomes of long documents is decided: by the files' weights where the config leaves it to them.
/// Throws Error(data) as open_corpus() and cut_at_documents().
Corpus open_training_corpus(const Config& config, const TokenFileOpener& open = TokenFile::open);

class SampleOrder {
 public:
  /// corpus: cut at documents already for each length, if it is to be. Throws Error(data) if a file has no window of
  /// one of the lengths.
  SampleOrder(const Corpus& corpus, const Config& config);

  /// Returns the i-th sequence (from 0) of a step (from 1): a function of the seed, the corpus and the stages alone.
  Sample sample(std::int64_t step, std::int64_t i) const;
  /// Returns the sampler of the windows of so many tokens, a length of one of the stages.
  const Sampler& of_length(std::int64_t seq_len) const { return samplers_.at(seq_len); }
  /// Returns the lengths of all stages, ascending, each once.
  std::vector<std::int64_t> lengths() const;

 private:
  TrainingConfig training_;
  std::vector<std::int64_t> seq_lens_;  // [stages]
  std::map<std::int64_t, Sampler> samplers_;
};

}  // namespace ringtrain
