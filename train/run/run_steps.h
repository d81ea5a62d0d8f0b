// What each step of a run reads: the config in effect, which samples it takes, and whether it is dumped. Each sequence
// length has a separate sampler: the samples of one length follow one another through all stages of that length, as if
// there were no other lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/sampler.h"
#include "framework/config/config.h"
#include "train/engine/step_dump.h"

namespace ringtrain {

struct Corpus;    // data/corpus.h
class TokenFile;  // data/token_file.h

/// Returns the files of data.train, which `open` opens, verified, and cut at documents if the config says so, for the
/// lengths of all stages. The treatment of long documents is decided: by the files' weights if the config leaves it to
/// them. Throws Error(data) like open_corpus() and cut_at_documents().
Corpus open_training_corpus(const Config& config,
                            const std::function<std::unique_ptr<TokenFile>(const std::string& name)>& open);

/// By the tokens of their windows: the length of each stage, once.
using Samplers = std::map<std::int64_t, Sampler>;

/// corpus: must already be cut at documents for each length, if the config says so. Throws Error(data) if a file has no
/// window of one of the lengths.
Samplers samplers_of(const Corpus& corpus, const Config& config);

struct RunSteps {
  Config config;
  std::vector<Config> stages;  // the config in effect in each stage
  Samplers samplers;
  DumpRequest dump = {};
  /// Called by every rank in each step between loading and forward. Empty except in tests, which break things here.
  std::function<void(RankState& state, std::int64_t step)> before_forward = {};

  /// Returns the config in effect in a step, which may be 0: its length, batch, and rotary positions.
  const Config& at(std::int64_t step) const;
  /// Returns the i-th sequence (from 0) of a step (from 1): a function of only the seed, the corpus, and the stages.
  Sample sample(std::int64_t step, std::int64_t i) const;
  /// Returns the index in the step of the first sequence in a data rank's micro-batch.
  std::int64_t sequence_in_step(std::int64_t step, int data_rank, std::int64_t micro) const;
  /// Returns the samples of a data rank's micro-batch `micro` in step `step` (from 1): the step's sequences are cut
  /// into one contiguous block per data rank, and each block into micro-batches in order.
  std::vector<Sample> samples_of(std::int64_t step, int data_rank, std::int64_t micro) const;
  /// Returns the global indices of all sequences of a step, in order.
  std::vector<std::int64_t> sample_indices(std::int64_t step) const;
  /// Returns how many micro-batches a data rank accumulates in a step.
  std::int64_t micro_batches(std::int64_t step) const;
};

}  // namespace ringtrain
