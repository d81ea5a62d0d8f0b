#include "data/tokenizer/formats/pieces.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "data/tokenizer/utf8.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

/// Throws Error(data) unless all pieces are UTF-8.
void check_utf8(const std::vector<Piece>& pieces, const std::string& path) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].text.empty() || well_formed_prefix(pieces[i].text) != pieces[i].text.size()) {
      fail(ExitCode::data, "{}: piece {} is no text; is the file whole?", path, i);
    }
  }
}

/// Fills in merges and the extra symbols: SentencePiece merges two neighbours whenever together they are a piece, the
/// piece of the highest score first.
void add_merges(const std::vector<Piece>& pieces, BpeSpec& spec) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].type == Piece::normal) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return pieces[a].score > pieces[b].score; });
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (const std::size_t i : order) ids.try_emplace(pieces[i].text, static_cast<std::int32_t>(i));
  // Characters that stand in pieces and are none themselves still merge.
  const auto symbol = [&](std::string_view text) -> std::int32_t {
    if (const auto found = ids.find(text); found != ids.end()) return found->second;
    if (code_point_border(text, text.size() - 1) != 0 &&
        decode_utf8(reinterpret_cast<const unsigned char*>(text.data())).bytes != text.size()) {
      return -1;
    }
    if (decode_utf8(reinterpret_cast<const unsigned char*>(text.data())).bytes != text.size()) return -1;
    spec.extra_symbols.emplace_back(text);
    const auto id = static_cast<std::int32_t>(pieces.size() + spec.extra_symbols.size() - 1);
    ids.emplace(text, id);
    return id;
  };
  std::uint32_t rank = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::string_view text = pieces[order[k]].text;
    if (k > 0 && pieces[order[k]].score != pieces[order[k - 1]].score) ++rank;
    for (std::size_t cut = 0; cut < text.size();) {
      cut += decode_utf8(reinterpret_cast<const unsigned char*>(text.data()) + cut).bytes;
      if (cut >= text.size()) break;
      const std::int32_t left = symbol(text.substr(0, cut)), right = symbol(text.substr(cut));
      if (left >= 0 && right >= 0) spec.merges.push_back({left, right, static_cast<std::int32_t>(order[k]), rank});
    }
  }
}

}  // namespace

BpeSpec spec_of_pieces(const std::vector<Piece>& pieces, const PieceRules& rules, const std::string& path) {
  check_utf8(pieces, path);
  BpeSpec spec;
  spec.where = path;
  spec.alphabet = BpeSpec::Alphabet::characters;
  spec.prefix = rules.space_in_front ? BpeSpec::Prefix::first : BpeSpec::Prefix::never;
  spec.prefix_before_space = true;
  spec.fuse_unknown = true;
  spec.byte_tokens.fill(-1);
  spec.tokens.resize(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    if (piece.type == Piece::normal) {
      spec.tokens[i] = piece.text;
    } else if (piece.type == Piece::byte) {
      unsigned value = 256;
      if (piece.text.size() == 6) std::from_chars(piece.text.data() + 3, piece.text.data() + 5, value, 16);
      if (value > 255) fail(ExitCode::data, "{}: piece {} is {}, which is no byte", path, i, piece.text);
      if (rules.byte_fallback) spec.byte_tokens[value] = id;
    } else if (piece.type == Piece::unused) {
      fail(ExitCode::data, "{} has an unused piece ({}), which this program does not do", path, piece.text);
    } else {
      if (piece.type == Piece::unknown) spec.unknown = id;
      spec.added.push_back({piece.text, id, piece.type != Piece::user_defined, false, false, false, false});
    }
  }
  add_merges(pieces, spec);
  return spec;
}

}  // namespace ringtrain
