// SentencePiece's BPE as GGUF files hold it, a list of pieces with scores, made into a tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/formats/tokenizer_json_writer.h"

namespace ringtrain {

struct Piece {
  enum Type : std::uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string text;
  float score = 0;
  std::uint64_t type = normal;
};

/// Returns the file that gives tokenizers the ids of SentencePiece. space_in_front: a text gets a space before it.
/// Throws Error(data) that begins with path, and names the piece at fault or says why there is no such file: pieces of
/// one score, of one text, that users defined, or characters that are no pieces.
TokenizerJson json_of_pieces(const std::vector<Piece>& pieces, bool space_in_front, const std::string& path);

}  // namespace ringtrain
