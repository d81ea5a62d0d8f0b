#include "extras/gguf/pieces.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/bpe_spec.h"
#include "framework/error.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

using Json = nlohmann::json;

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

/// Throws Error(data) that says what of the pieces a tokenizer.json cannot hold.
template <class... Values>
[[noreturn]] void refuse(const std::string& path, fmt::format_string<Values...> what, Values&&... values) {
  fail(ExitCode::data, "{}: {}, which tokenizer.json cannot say with the same ids", path,
       fmt::format(what, std::forward<Values>(values)...));
}

/// Makes the merges of a list of pieces, each with a text of its own. SentencePiece merges two neighbours whenever
/// together they are a piece, the piece of the highest score first, and of these the leftmost.
class MergeMaker {
 public:
  MergeMaker(const std::vector<Piece>& pieces, const std::string& path) : pieces_(pieces), path_(path) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].type == Piece::normal) order_.push_back(i);
    }
    std::ranges::stable_sort(order_, [&](std::size_t a, std::size_t b) { return pieces[a].score > pieces[b].score; });
    for (const std::size_t i : order_) ids_.try_emplace(pieces[i].text, static_cast<std::int32_t>(i));
  }

  /// Returns the merges by rank, of which each has its own.
  std::vector<Merge> make() const {
    std::vector<Merge> merges = all_merges();
    keep_taken(merges);
    count_ranks(merges);
    for (std::size_t i = 1; i < merges.size(); ++i) {
      if (merges[i].rank != merges[i - 1].rank) continue;
      refuse(path_, "the pieces {} and {} have one score", merges[i - 1].product, merges[i].product);
    }
    return merges;
  }

 private:
  /// Returns every pair of symbols that makes a piece. Their rank is that of the piece's score.
  std::vector<Merge> all_merges() const {
    const auto symbol = [&](std::string_view text) -> std::int32_t {
      if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
      // SentencePiece merges such a character all the same.
      if (is_character(text)) refuse(path_, "'{}' stands in a piece and is none itself", text);
      return -1;
    };
    std::vector<Merge> merges;
    std::uint32_t rank = 0;
    for (std::size_t k = 0; k < order_.size(); ++k) {
      const std::string_view text = pieces_[order_[k]].text;
      if (k > 0 && pieces_[order_[k]].score != pieces_[order_[k - 1]].score) ++rank;
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
  const std::string& path_;
  std::vector<std::size_t> order_;  // of normal pieces: by score, then by place
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

Json sequence(const char* list, Json parts) {
  return {{"type", "Sequence"}, {list, std::move(parts)}};
}

/// Adds the pieces to the vocabulary, and those that stand for no text to the added tokens.
void put_pieces(const std::vector<Piece>& pieces, const std::string& path, TokenizerJson& json) {
  std::size_t bytes = 0;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const auto& [text, score, type] = pieces[id];
    const auto [place, is_new] = json.vocabulary.emplace(text, id);
    if (!is_new) refuse(path, "the pieces {} and {} are the same", place->get<std::size_t>(), id);
    if (type == Piece::normal) continue;
    if (type == Piece::unused) fail(ExitCode::data, "{} has an unused piece ({}), which is not read", path, text);
    if (type == Piece::user_defined) refuse(path, "the piece '{}' was defined by users", text);
    if (is_character(text)) refuse(path, "piece {} is a character and no text", id);
    if (type == Piece::byte) {
      unsigned value = 256;
      if (text.size() == 6) std::from_chars(text.data() + 3, text.data() + 5, value, 16);
      if (value > 255) fail(ExitCode::data, "{}: piece {} is {}, which is no byte", path, id, text);
      if (text != fmt::format("<0x{:02X}>", value)) refuse(path, "the piece of a byte is named {}", text);
      ++bytes;
      continue;
    }
    if (type == Piece::unknown) json.unknown = text;
    json.add(text, static_cast<std::int64_t>(id), true);
  }
  if (bytes != 0 && bytes != 256) refuse(path, "only {} of the 256 bytes have pieces", bytes);
  if (bytes == 0 && json.unknown.is_null()) refuse(path, "neither bytes nor unknown characters have a piece");
  json.byte_fallback = bytes != 0;
}

}  // namespace

TokenizerJson json_of_pieces(const std::vector<Piece>& pieces, bool space_in_front, const std::string& path) {
  check_pieces(pieces, path);
  TokenizerJson result;
  put_pieces(pieces, path, result);
  for (const Merge& merge : MergeMaker(pieces, path).make()) {
    result.merges.push_back({pieces[merge.left].text, pieces[merge.right].text});
  }
  result.fuse_unknown = true;
  Json normalizers = Json::array(), decoders = Json::array();
  if (space_in_front) normalizers.push_back({{"type", "Prepend"}, {"prepend", space_mark}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space_mark}});
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", space_mark}}}, {"content", " "}});
  if (result.byte_fallback) decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (space_in_front) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  result.normalizer = sequence("normalizers", std::move(normalizers));
  result.decoder = sequence("decoders", std::move(decoders));
  return result;
}

}  // namespace ringtrain
