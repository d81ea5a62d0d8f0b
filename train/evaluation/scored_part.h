// Which part of a token file an evaluation scores, and whether the model was trained on it. An evaluation of text that
// was trained on always says so.
#pragma once

#include <optional>
#include <string>

#include "data/corpus.h"
#include "train/evaluation/evaluation_targets.h"

namespace ringtrain {

struct Config;
struct DataConfig;

/// Sets the part and trained_on of a request for evaluations during training: the validation part of a training file,
/// all of any other file. Throws Error(usage) if that is training text and evaluation.on_training_data does not allow
/// it.
void choose_part(const Corpus& corpus, const Config& config, EvaluationRequest& request);

/// Returns whether a run was trained on a file with this hash: empty if its checkpoint and the token files that it
/// names do not show it. data_hash: the checkpoint's.
std::optional<bool> was_trained_on(const std::string& file_hash, const DataConfig& data, const std::string& data_hash);

/// Sets the part and trained_on of a request: the requested part, or, if it is automatic, all of a file that was not
/// trained on, otherwise its validation part, otherwise all of it. trained_on: of the file. Throws Error(usage) if the
/// file has no such part.
void choose_part(const TokenFile& file, std::optional<bool> trained_on, EvaluationRequest& request);

/// Returns "the validation part of PATH", "all of PATH, which the run did not train on", ...
std::string part_text(const std::string& path, const EvaluationRequest& request);

}  // namespace ringtrain
