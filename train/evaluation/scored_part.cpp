#include "train/evaluation/scored_part.h"

#include <algorithm>

#include "data/token_manifest.h"
#include "framework/config/config.h"
#include "framework/error.h"
#include "parallel/shared_error.h"

namespace ringtrain {

void choose_part(const TokenFile& file, std::optional<bool> trained_on, EvaluationRequest& request) {
  const bool has_part = file.first_validation_document() + 1 < std::ssize(file.document_offsets());
  if (request.part == ScoredPart::validation && !has_part) {
    fail(ExitCode::usage, "--part validation: {} has no validation part", file.path());
  }
  if (request.part == ScoredPart::automatic) {
    request.part = has_part && trained_on.value_or(true) ? ScoredPart::validation : ScoredPart::whole;
  }
  // The run did not train on what is kept for validation.
  request.trained_on = request.part == ScoredPart::validation ? std::optional(false) : trained_on;
}

void choose_part(const Corpus& corpus, const Config& config, EvaluationRequest& request) {
  const TokenFile& file = corpus.validation();
  const bool trained_on =
      std::ranges::any_of(corpus.files, [&](const auto& trained) { return trained->hash() == file.hash(); });
  choose_part(file, trained_on, request);
  if (request.trained_on == true && !config.evaluation.on_training_data) {
    fail(ExitCode::usage,
         "evaluation.interval = {}: {} has no validation part, so training text would be scored; make it again with "
         "prepare --validation-fraction, name another file as data.validation, set evaluation.interval to 0, or set "
         "evaluation.on_training_data: true",
         config.evaluation.interval, file.path());
  }
}

std::optional<bool> was_trained_on(const std::string& file_hash, const DataConfig& data, const std::string& data_hash) {
  std::vector<double> weights;
  for (const DataSource& source : data.train) weights.push_back(source.weight);
  if (data.train.size() == 1) return corpus_hash({file_hash}, weights, data.longer) == data_hash;
  std::vector<std::string> hashes;  // as the manifests are today
  const auto unreadable = caught([&] {
    for (const DataSource& source : data.train) hashes.push_back(read_manifest(source.path).hash);
  });
  if (unreadable || corpus_hash(hashes, weights, data.longer) != data_hash)
    return std::nullopt;  // the files have changed
  return std::ranges::find(hashes, file_hash) != hashes.end();
}

std::string part_text(const std::string& path, const EvaluationRequest& request) {
  if (request.part == ScoredPart::validation) return "the validation part of " + path;
  const char* const trained = !request.trained_on   ? "; whether it was trained on is not known"
                              : *request.trained_on ? ", which was trained on"
                                                    : ", which the run did not train on";
  return "all of " + path + trained;
}

}  // namespace ringtrain
