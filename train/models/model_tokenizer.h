// The tokenizer of a model: whether a token file's ids are those that the model knows, and the files that go with a
// model from a folder to the run that it begins, and from there to an export.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/corpus.h"
#include "data/tokenizer/tokenizer.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Throws Error(data) that names both if the file was made with another tokenizer than the model's, as far as file and
/// model say whose they are, and Error(checkpoint) if the model's tokenizer is damaged. Returns a sentence if it is of
/// a kind that is not read here.
std::optional<std::string> check_tokens(const ModelSource& source, const TokenFile& file);

/// Throws Error(data) unless a tokenizer, which came from `path`, gives the ids that a run's model was trained on, as
/// far as the run says it. Anything goes with a model from elsewhere.
void check_tokenizer(const ModelSource& source, const Tokenizer& tokenizer, const std::string& path);

/// Returns the tokenizer that goes with a model: its own; that of bytes if its run was trained on bytes; null if there
/// is none. Throws Error(data) as load_tokenizer() does, and Error(checkpoint) if it is damaged.
std::unique_ptr<Tokenizer> load_model_tokenizer(const ModelSource& source);

/// Returns the identity of the tokenizer that a model was trained with; "" if it is not known.
std::string tokenizer_identity(const ModelSource& source);

/// Returns the folder beside a token file where `prepare` keeps its tokenizer's files.
std::string tokenizer_of_token_file(const std::string& token_file);

/// Keeps the tokenizer of a run in its folder, unless it is there already, and what ends its texts: that of the model
/// that the run begins with (null: of none), else that of its data. Returns a sentence if it cannot be kept. Throws
/// Error(usage).
std::optional<std::string> keep_tokenizer(const ModelSource* source, const Corpus& corpus,
                                          const std::string& run_folder);

}  // namespace ringtrain
