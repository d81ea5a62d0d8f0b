// The tokenizer of a model: whether a token file's ids are those that the model knows, and the tokenizer files that
// accompany a model from a folder to the run that starts with it, and from there to an export.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/corpus.h"
#include "data/tokenizer/tokenizer.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Throws Error(data), which names both, if the file was made with a tokenizer other than the model's, as far as file
/// and model record theirs, and Error(checkpoint) if the model's tokenizer is damaged. Returns a message if it is of a
/// kind that is not supported here.
std::optional<std::string> check_tokens(const ModelSource& source, const TokenFile& file);

/// Throws Error(data) unless a tokenizer, which came from `path`, gives the ids on which a run's model was trained, as
/// far as the run records that. Accepts any tokenizer for a model from elsewhere.
void check_tokenizer(const ModelSource& source, const Tokenizer& tokenizer, const std::string& path);

/// Returns the tokenizer that belongs to a model: its own; that of bytes if its run was trained on bytes; null if there
/// is none. Throws Error(data) as load_tokenizer() does, and Error(checkpoint) if it is damaged.
std::unique_ptr<Tokenizer> load_model_tokenizer(const ModelSource& source);

/// Returns the identity of the tokenizer with which a model was trained; "" if it is unknown.
std::string tokenizer_identity(const ModelSource& source);

/// Returns the folder, next to a token file, where `prepare` keeps its tokenizer's files.
std::string tokenizer_of_token_file(const std::string& token_file);

/// Keeps a run's tokenizer in its folder, unless it is already there, and the tokens that end its texts: those of the
/// model with which the run begins (null: no model), otherwise those of its data. Returns a message if it cannot be
/// kept. Throws Error(usage).
std::optional<std::string> keep_tokenizer(const ModelSource* source, const Corpus& corpus,
                                          const std::string& run_folder);

}  // namespace ringtrain
