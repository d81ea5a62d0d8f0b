// Which part of a token file an evaluation scores, and whether the model was trained on it. Text that was trained on is
// never scored without being named so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "train/evaluation/evaluation_targets.h"

namespace ringtrain {

struct Config;
struct DataConfig;

struct ScoredChoice {
  ScoredPart part = ScoredPart::automatic;
  std::optional<bool> trained_on;  // whether the model was trained on text of this part; none: nobody knows
};

/// Returns what the evaluations during training score: the validation part of a file that is trained on, all of another
/// one. Throws Error(usage) if that is training text and evaluation.on_training_data does not say so.
ScoredChoice choose_part(const Corpus& corpus, const Config& config);

/// Returns whether a run was trained on a file with this hash: none if its checkpoint and the token files that it names
/// do not say. data_hash: that of the checkpoint.
std::optional<bool> was_trained_on(const std::string& file_hash, const DataConfig& data, const std::string& data_hash);

/// Returns what of a file is scored if `wanted` is asked for: automatic is all of a file that was not trained on, else
/// its validation part, else all of it. Throws Error(usage) if there is no such part.
ScoredChoice choose_part(const TokenFile& file, ScoredPart wanted, std::optional<bool> trained_on);

/// Returns "the validation part of PATH", "all of PATH, which was not trained on", ...
std::string part_text(const std::string& path, const ScoredChoice& choice);

}  // namespace ringtrain
