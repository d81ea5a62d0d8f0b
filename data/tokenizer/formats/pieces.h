// SentencePiece's BPE as a list of pieces with scores, wherever the list stands: in tokenizer.model or in a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/bpe_spec.h"

namespace ringtrain {

struct Piece {
  enum Type : std::uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string text;
  float score = 0;
  std::uint64_t type = normal;
};

struct PieceRules {
  bool byte_fallback = true;   // what no piece stands for is written as its bytes
  bool space_in_front = true;  // a text gets a space before it
};

/// Throws Error(data) that begins with path, and names the piece at fault.
BpeSpec spec_of_pieces(const std::vector<Piece>& pieces, const PieceRules& rules, const std::string& path);

}  // namespace ringtrain
