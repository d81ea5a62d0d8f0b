#include "data/tokenizer/formats/pieces.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "framework/error.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

constexpr std::size_t max_bytes = 1024;  // of a piece; SentencePiece makes none of more than 16 characters by itself

std::uint32_t first_character_bytes(std::string_view text) {
  return decode_utf8(reinterpret_cast<const unsigned char*>(text.data())).bytes;
}

bool is_character(std::string_view text) {
  return first_character_bytes(text) == text.size();
}

/// Returns the character that a text is a run of, nothing if it is no run.
std::string_view repeated_character(std::string_view text) {
  const std::string_view first = text.substr(0, first_character_bytes(text));
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(first.size())) {
    if (!rest.starts_with(first)) return {};
  }
  return first;
}

/// Throws Error(data) unless all pieces are UTF-8, with scores that can be compared, and short enough to try their
/// merges.
void check_pieces(const std::vector<Piece>& pieces, const std::string& path) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].text.empty() || well_formed_prefix(pieces[i].text) != pieces[i].text.size() ||
        pieces[i].text.find('\0') != std::string::npos) {
      fail(ExitCode::data, "{}: piece {} is no text; is the file whole?", path, i);
    }
    if (pieces[i].type == Piece::normal && pieces[i].text.size() > max_bytes) {
      fail(ExitCode::data, "{}: piece {} has {} bytes; at most {} are read", path, i, pieces[i].text.size(), max_bytes);
    }
    if (std::isnan(pieces[i].score)) fail(ExitCode::data, "{}: the score of piece {} is no number", path, i);
  }
}

/// Makes the merges of a list of pieces. SentencePiece merges two neighbours whenever together they are a piece, the
/// piece of the highest score first, and of these the leftmost.
class MergeMaker {
 public:
  explicit MergeMaker(const std::vector<Piece>& pieces) : pieces_(pieces) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].type == Piece::normal) order_.push_back(i);
    }
    std::ranges::stable_sort(order_, [&](std::size_t a, std::size_t b) { return pieces[a].score > pieces[b].score; });
    for (const std::size_t i : order_) ids_.try_emplace(pieces[i].text, static_cast<std::int32_t>(i));
  }

  /// Fills in merges and the extra symbols.
  void fill(BpeSpec& spec) {
    spec.merges = all_merges(spec.extra_symbols);
    keep_taken(spec.merges);
    count_ranks(spec.merges);
  }

 private:
  /// Returns every pair of symbols that makes a piece. Their rank is that of the piece's score.
  std::vector<Merge> all_merges(std::vector<std::string>& extra_symbols) {
    // Characters that stand in pieces and are none themselves still merge.
    const auto symbol = [&](std::string_view text) -> std::int32_t {
      if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
      if (!is_character(text)) return -1;
      extra_symbols.emplace_back(text);
      const auto id = static_cast<std::int32_t>(pieces_.size() + extra_symbols.size() - 1);
      ids_.emplace(text, id);
      return id;
    };
    std::vector<Merge> merges;
    std::uint32_t rank = 0;
    for (std::size_t k = 0; k < order_.size(); ++k) {
      const std::string_view text = pieces_[order_[k]].text;
      if (k > 0 && pieces_[order_[k]].score != pieces_[order_[k - 1]].score) ++rank;
      if (ids_.at(text) != static_cast<std::int32_t>(order_[k])) continue;  // a second piece of one text
      for (std::size_t cut = 0; cut < text.size();) {
        cut += first_character_bytes(text.substr(cut));
        if (cut >= text.size()) break;
        const std::int32_t left = symbol(text.substr(0, cut)), right = symbol(text.substr(cut));
        if (left >= 0 && right >= 0) merges.push_back({left, right, static_cast<std::int32_t>(order_[k]), rank});
      }
    }
    return merges;
  }

  /// Leaves of all merges those that encoding ever does: at most one for each piece. When two symbols become a piece,
  /// no merge so far has crossed their outer ends. So between these ends merging went as it goes in a text that is the
  /// piece alone, and that text comes to two symbols once, if at all.
  void keep_taken(std::vector<Merge>& merges) const {
    const MergeTable table(merges);
    std::int32_t product = -1;
    std::pair<std::int32_t, std::int32_t> taken;
    std::erase_if(merges, [&](const Merge& merge) {
      if (std::exchange(product, merge.product) != merge.product) taken = last_two(text_of(merge), table);
      return taken != std::pair{merge.left, merge.right};
    });
  }

  /// Counts ranks from 0 on. Pieces of one score share a rank, but for the runs of a character (spaces, most often), if
  /// they all have one score and nothing else has it. These have a rank each, the longest first, and still merge as the
  /// leftmost would. A run starts with the leftmost two characters of a text, in either case: they make the shortest
  /// run, so no other run can be made longer then. The run made last is the only one that can: with the one at its
  /// left, or with a character at its right. Of these two the first stands further left, and makes the longer run.
  void count_ranks(std::vector<Merge>& merges) const {
    const std::vector<bool> separable = find_separable(merges);
    const auto order = [&](const Merge& a, const Merge& b) {
      if (a.rank != b.rank || !separable[a.rank]) return a.rank < b.rank;
      return text_of(a).size() > text_of(b).size();
    };
    std::ranges::stable_sort(merges, order);
    std::uint32_t rank = 0, old_rank = 0;
    for (Merge& merge : merges) {
      if (&merge != &merges.front() && (merge.rank != old_rank || separable[merge.rank])) ++rank;
      old_rank = std::exchange(merge.rank, rank);
    }
  }

  /// Returns of each rank whether it is that of all runs of a character, and of nothing else.
  std::vector<bool> find_separable(const std::vector<Merge>& merges) const {
    std::vector<bool> separable(merges.empty() ? 0 : merges.back().rank + std::size_t{1}, true);
    std::vector<std::string_view> character_of(separable.size());
    std::unordered_map<std::string_view, std::uint32_t> rank_of;
    for (const Merge& merge : merges) {
      const std::string_view character = repeated_character(text_of(merge));
      std::string_view& only = character_of[merge.rank];
      if (only.empty()) only = character;
      if (character.empty() || character != only) separable[merge.rank] = false;
      if (character.empty()) continue;
      const std::uint32_t other = rank_of.emplace(character, merge.rank).first->second;
      if (other != merge.rank) separable[merge.rank] = separable[other] = false;
    }
    return separable;
  }

  std::string_view text_of(const Merge& merge) const { return pieces_[merge.product].text; }

  /// Returns the two symbols that merging comes to in a text, {-1, -1} if it ends before.
  std::pair<std::int32_t, std::int32_t> last_two(std::string_view text, const MergeTable& table) const {
    constexpr std::pair nothing{-1, -1};
    std::vector<std::int32_t> symbols;
    for (; !text.empty(); text.remove_prefix(first_character_bytes(text))) {
      const auto found = ids_.find(text.substr(0, first_character_bytes(text)));
      if (found == ids_.end()) return nothing;
      symbols.push_back(found->second);
    }
    while (symbols.size() > 2) {
      MergeTable::Found best;
      std::size_t place = 0;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        const MergeTable::Found found = table.find(symbols[i], symbols[i + 1]);
        if (found.rank >= best.rank) continue;
        best = found;
        place = i;
      }
      if (best.rank == MergeTable::none) return nothing;
      symbols[place] = best.product;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
    return symbols.size() == 2 ? std::pair{symbols[0], symbols[1]} : nothing;
  }

  const std::vector<Piece>& pieces_;
  std::vector<std::size_t> order_;  // of normal pieces: by score, then by place
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

}  // namespace

BpeSpec spec_of_pieces(const std::vector<Piece>& pieces, const PieceRules& rules, const std::string& path) {
  check_pieces(pieces, path);
  BpeSpec spec;
  spec.where = path;
  spec.alphabet = BpeSpec::Alphabet::characters;
  spec.prepend_mark = rules.space_in_front;
  spec.mark_spaces = true;
  spec.fuse_unknown = true;
  spec.byte_tokens.fill(-1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    spec.tokens.push_back(piece.text);
    if (piece.type == Piece::normal) continue;
    // The text of a piece that stands for no text is unknown.
    if (piece.type != Piece::user_defined && is_character(piece.text)) spec.never_merged.push_back(id);
    if (piece.type == Piece::byte) {
      unsigned value = 256;
      if (piece.text.size() == 6) std::from_chars(piece.text.data() + 3, piece.text.data() + 5, value, 16);
      if (value > 255) fail(ExitCode::data, "{}: piece {} is {}, which is no byte", path, i, piece.text);
      if (rules.byte_fallback) spec.byte_tokens[value] = id;
    } else if (piece.type == Piece::unused) {
      fail(ExitCode::data, "{} has an unused piece ({}), which this program does not do", path, piece.text);
    } else {
      // What users defined is found first, the longest at each place of the normalised text, and merges with nothing.
      const bool defined = piece.type == Piece::user_defined;
      if (piece.type == Piece::unknown) spec.unknown = id;
      spec.added.push_back({piece.text, id, !defined, defined, defined});
    }
  }
  MergeMaker(pieces).fill(spec);
  return spec;
}

}  // namespace ringtrain
