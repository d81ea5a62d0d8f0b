#include "train/run/config_lookup.h"

#include <algorithm>
#include <cmath>

#include "data/corpus.h"
#include "data/token_manifest.h"
#include "framework/error.h"
#include "parallel/shared_error.h"
#include "train/models/model_source.h"
#include "train/run/run_steps.h"

namespace ringtrain {

namespace {

/// Returns the largest vocabulary in the manifests of data.train's files. A file without a readable manifest counts as
/// one of bytes (257): opening it will report what is wrong.
std::int64_t vocabulary_of(const Config& config) {
  std::int64_t tokens = 2;
  for (const DataSource& source : config.data.train) {
    std::int64_t of_file = ModelConfig{}.vocab_size;
    caught([&] { of_file = read_manifest(source.path).vocab_size; });
    tokens = std::max(tokens, of_file);
  }
  return tokens;
}

/// Returns the number of steps that see each window of data.train `epochs` times, rounded up, at least 1. Opens and
/// verifies the files. Throws Error(usage) with training.stages, which begin at steps, and Error(data) like
/// open_training_corpus().
std::int64_t steps_of_epochs(const Config& config, double epochs) {
  if (!config.training.stages.empty()) {
    fail(ExitCode::usage, "cannot be given with training.stages, which begin at steps; give training.steps");
  }
  const Corpus corpus = open_training_corpus(config, TokenFile::open);
  const std::int64_t windows = samplers_of(corpus, config).at(config.training.seq_len).windows();
  const double sequences = epochs * static_cast<double>(windows) * (1 - 1e-12);  // 1.1 of 100 are 110, not more
  return static_cast<std::int64_t>(std::ceil(sequences / static_cast<double>(config.training.global_batch_size)));
}

}  // namespace

ConfigLookup config_lookup(const Log& log, const std::string& init_from) {
  return {
      .model = model_reader(log), .model_otherwise = init_from, .vocabulary = vocabulary_of, .steps = steps_of_epochs};
}

}  // namespace ringtrain
