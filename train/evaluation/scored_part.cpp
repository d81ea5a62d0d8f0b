#include "train/evaluation/scored_part.h"

#include <algorithm>

#include "data/token_manifest.h"
#include "framework/config/config.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

bool has_validation_part(const TokenFile& file) {
  return file.first_validation_document() < static_cast<std::int64_t>(file.document_offsets().size()) - 1;
}

/// Returns the hashes of a run's training files as their manifests say today; none if one cannot be read.
std::optional<std::vector<std::string>> hashes_of(const DataConfig& data) {
  std::vector<std::string> hashes;
  for (const DataSource& source : data.train) {
    try {
      hashes.push_back(read_manifest(source.path).hash);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  return hashes;
}

}  // namespace

ScoredChoice choose_part(const TokenFile& file, ScoredPart wanted, std::optional<bool> trained_on) {
  const bool has_part = has_validation_part(file);
  if (wanted == ScoredPart::validation && !has_part) {
    fail(ExitCode::usage, "--part validation: {} has no validation part", file.path());
  }
  if (wanted == ScoredPart::automatic) {
    wanted = has_part && trained_on.value_or(true) ? ScoredPart::validation : ScoredPart::whole;
  }
  // What is kept for validation was not trained on.
  return {wanted, wanted == ScoredPart::validation ? std::optional(false) : trained_on};
}

ScoredChoice choose_part(const Corpus& corpus, const Config& config) {
  const TokenFile& file = corpus.validation();
  const bool trained_on =
      std::ranges::any_of(corpus.files, [&](const auto& one) { return one->hash() == file.hash(); });
  const ScoredChoice choice = choose_part(file, ScoredPart::automatic, trained_on);
  if (choice.trained_on == true && !config.evaluation.on_training_data) {
    fail(ExitCode::usage,
         "evaluation.interval = {}: {} has no validation part, so training text would be scored; make it again with "
         "prepare --validation-fraction, name another file as data.validation, set evaluation.interval to 0, or say "
         "evaluation.on_training_data: true",
         config.evaluation.interval, file.path());
  }
  return choice;
}

std::optional<bool> was_trained_on(const std::string& file_hash, const DataConfig& data, const std::string& data_hash) {
  std::vector<double> weights;
  weights.reserve(data.train.size());
  for (const DataSource& source : data.train) weights.push_back(source.weight);
  if (data.train.size() == 1) return corpus_hash({file_hash}, weights, data.longer) == data_hash;
  const auto hashes = hashes_of(data);
  if (!hashes || corpus_hash(*hashes, weights, data.longer) != data_hash) return std::nullopt;  // other files than then
  return std::ranges::find(*hashes, file_hash) != hashes->end();
}

std::string part_text(const std::string& path, const ScoredChoice& choice) {
  if (choice.part == ScoredPart::validation) return "the validation part of " + path;
  const char* const trained = !choice.trained_on   ? "; whether it was trained on is not known"
                              : *choice.trained_on ? ", which was trained on"
                                                   : ", which was not trained on";
  return "all of " + path + trained;
}

}  // namespace ringtrain
