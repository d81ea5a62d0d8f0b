// Which part of a token file an evaluation scores, and whether the model was trained on it. Text that was trained on is
// never scored without being named so.
#pragma once

#include <optional>
#include <string>

#include "data/corpus.h"
#include "train/evaluation/evaluation_targets.h"

namespace ringtrain {

struct Config;
struct DataConfig;

/// Sets the part and trained_on of a request for the evaluations during training: the validation part of a file that is
/// trained on, all of another one. Throws Error(usage) if that is training text and evaluation.on_training_data does
/// not say so.
void choose_part(const Corpus& corpus, const Config& config, EvaluationRequest& request);

/// Returns whether a run was trained on a file with this hash: none if its checkpoint and the token files that it names
/// do not say. data_hash: that of the checkpoint.
std::optional<bool> was_trained_on(const std::string& file_hash, const DataConfig& data, const std::string& data_hash);

/// Sets the part and trained_on of a request: what it asks for, or where that is automatic, all of a file that was not
/// trained on, else its validation part, else all of it. trained_on: of the file. Throws Error(usage) if there is no
/// such part.
void choose_part(const TokenFile& file, std::optional<bool> trained_on, EvaluationRequest& request);

/// Returns "the validation part of PATH", "all of PATH, which was not trained on", ...
std::string part_text(const std::string& path, const EvaluationRequest& request);

}  // namespace ringtrain
