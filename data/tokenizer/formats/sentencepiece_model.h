// tokenizer.model of SentencePiece (sentencepiece_model.proto): a protocol buffer of pieces with scores, of the
// trainer's and the normaliser's settings. BPE models alone; what they ask for and this program does not do is refused
// by name.
#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/bpe_spec.h"

namespace ringtrain {

/// Throws Error(data) that names the file and the field at fault.
BpeSpec read_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace ringtrain
