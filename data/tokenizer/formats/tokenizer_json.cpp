#include "data/tokenizer/formats/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>

#include "data/tokenizer/splitter.h"
#include "data/tokenizer/unicode.h"
#include "framework/storage/plain_text.h"
#include "framework/storage/strict_json.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

using nlohmann::json;

constexpr std::int64_t max_tokens = 1 << 24;

/// Returns the byte that each character of byte-level vocabularies represents: printable characters represent
/// themselves, and U+0100 and up represent the other 68 bytes (GPT-2's bytes_to_unicode).
const std::unordered_map<char32_t, unsigned char>& byte_of_character() {
  static const auto table = [] {
    std::unordered_map<char32_t, unsigned char> result;
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      result[printable ? static_cast<char32_t>(byte) : next++] = static_cast<unsigned char>(byte);
    }
    return result;
  }();
  return table;
}

/// Returns the bytes of a byte-level token; nothing if a character does not represent a byte.
std::optional<std::string> token_bytes(const std::string& token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint code = decode_utf8(token, at);
    const auto found = byte_of_character().find(code.value);
    if (found == byte_of_character().end()) return std::nullopt;
    bytes += static_cast<char>(found->second);
    at += code.bytes;
  }
  return bytes;
}

/// Reads one file.
class Reader {
 public:
  Reader(const json& file, const std::string& path, ExitCode damaged) : file_(file), path_(path), damaged_(damaged) {
    spec_.where = path;
  }

  BpeSpec read() {
    const json& model = member(file_, "model");
    if (const std::string version = file_.value("version", "1.0"); version != "1.0") refuse("version", version);
    if (const std::string type = model.value("type", "BPE"); type != "BPE") refuse("model.type", type);
    spec_.byte_tokens.fill(-1);
    const bool byte_level = has_byte_level(part("pre_tokenizer")) || has_byte_level(part("decoder"));
    spec_.alphabet = byte_level ? BpeSpec::Alphabet::bytes : BpeSpec::Alphabet::characters;
    read_vocabulary(model);
    read_merges(model);
    read_model_flags(model);
    read_added();
    read_normalizer(part("normalizer"));
    read_pre_tokenizer(part("pre_tokenizer"));
    read_post_processor(part("post_processor"));
    if (byte_level && !saw_byte_level_) refuse("pre_tokenizer", "without ByteLevel");
    if (!byte_level && spec_.whole_pieces_first && !spec_.split_at_spaces) {
      refuse("model.ignore_merges", "true, without a pre_tokenizer that splits at spaces");
    }
    return std::move(spec_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& value) const {
    fail(ExitCode::data,
         "{}: {} is {}, which this program does not support; docs/hugging-face.md lists what it supports", path_,
         plain_text(what), plain_text(value));
  }
  const json& member(const json& object, const char* name) const {
    const auto found = object.find(name);
    if (!object.is_object() || found == object.end()) fail(damaged_, "{} has no {}; is it complete?", path_, name);
    return *found;
  }
  /// Returns a part that may be missing or null.
  const json& part(const char* name) const {
    static const json null;
    const auto found = file_.find(name);
    return found == file_.end() ? null : *found;
  }
  static std::string type_of(const json& object) { return object.is_object() ? object.value("type", "") : ""; }
  static bool has_byte_level(const json& object) {
    if (type_of(object) == "ByteLevel") return true;
    if (type_of(object) != "Sequence") return false;
    for (const char* list : {"pretokenizers", "decoders"}) {
      const auto parts = object.find(list);
      if (parts == object.end()) continue;
      for (const json& child : *parts) {
        if (has_byte_level(child)) return true;
      }
    }
    return false;
  }

  std::int64_t checked_id(const json& value, const std::string& token, std::int64_t limit) const {
    const std::optional<std::int64_t> id = whole_number(value);
    if (id && *id >= 0 && *id < limit) return *id;
    fail(damaged_, "{}: token '{}' has the id {}, but ids in this file are integers from 0 to {}", path_, token,
         value.is_number() ? json_text(value) : value.type_name(), limit - 1);
  }

  void read_vocabulary(const json& model) {
    const json& vocabulary = member(model, "vocab");
    // Ids may have gaps, but no file may request more memory than its own size justifies.
    const auto limit = std::min(max_tokens, static_cast<std::int64_t>(2 * vocabulary.size()) + 65536);
    for (const auto& [token, value] : vocabulary.items()) {
      const std::int64_t id = checked_id(value, token, limit);
      const auto index = static_cast<std::size_t>(id);
      if (spec_.tokens.size() <= index) spec_.tokens.resize(index + 1);
      if (!spec_.tokens[index].empty()) fail(damaged_, "{}: two tokens have the id {}", path_, id);
      spec_.tokens[index] = token;
      if (spec_.alphabet == BpeSpec::Alphabet::bytes) {
        if (std::optional<std::string> bytes = token_bytes(token)) {
          spec_.tokens[index] = std::move(*bytes);
        } else {
          spec_.never_merged.push_back(static_cast<std::int32_t>(id));
        }
      }
      ids_[token] = static_cast<std::int32_t>(id);
    }
  }

  std::int32_t id_of(const std::string& token, std::size_t merge) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) fail(damaged_, "{}: merge {} names '{}', which is not a token", path_, merge, token);
    return found->second;
  }

  void read_merges(const json& model) {
    const json& merges = member(model, "merges");
    spec_.merges.reserve(merges.size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      std::string left, right;
      if (merges[i].is_string()) {  // "a b", the older format
        const auto text = merges[i].get<std::string>();
        const std::size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
          fail(damaged_, "{}: merge {} is '{}', not two tokens", path_, i, text);
        }
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        if (!merges[i].is_array() || merges[i].size() != 2) fail(damaged_, "{}: merge {} is not a pair", path_, i);
        left = merges[i][0].get<std::string>();
        right = merges[i][1].get<std::string>();
      }
      spec_.merges.push_back({id_of(left, i), id_of(right, i), id_of(left + right, i), static_cast<std::uint32_t>(i)});
    }
  }

  void read_model_flags(const json& model) {
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (const auto found = model.find(name); found != model.end() && found->is_string()) {
        const auto& affix = found->get_ref<const std::string&>();
        if (!affix.empty()) refuse(std::string("model.") + name, affix);
      }
    }
    if (const auto dropout = model.find("dropout"); dropout != model.end() && dropout->is_number() && *dropout != 0) {
      refuse("model.dropout", dropout->dump());
    }
    spec_.whole_pieces_first = model.value("ignore_merges", false);
    if (const auto unknown = model.find("unk_token"); unknown != model.end() && unknown->is_string()) {
      const auto found = ids_.find(unknown->get<std::string>());
      if (found != ids_.end()) spec_.unknown = found->second;
    }
    const bool bytes = spec_.alphabet == BpeSpec::Alphabet::bytes;
    spec_.fuse_unknown = model.value("fuse_unk", false) && (!bytes || spec_.unknown >= 0);
    if (!model.value("byte_fallback", false)) return;
    if (bytes) {
      if (!has_all_bytes()) refuse("model.byte_fallback", "true, although some bytes have no token");
      return;
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(fmt::format("<0x{:02X}>", byte));
      if (found != ids_.end()) spec_.byte_tokens[byte] = found->second;
    }
  }

  bool has_all_bytes() const {
    return std::ranges::all_of(byte_of_character(),
                               [&](const auto& entry) { return ids_.contains(byte_level_character(entry.second)); });
  }

  void read_added() {
    const json& added = part("added_tokens");
    if (added.is_null()) return;
    std::unordered_map<std::string, std::size_t> places;
    auto next = static_cast<std::int64_t>(ids_.size());  // the id that tokenizers gives to a token without one
    if (!added.is_array()) fail(damaged_, "{}: added_tokens is not a list; is it complete?", path_);
    for (const json& entry : added) {
      AddedToken token;
      token.content = member(entry, "content").get<std::string>();
      token.id = static_cast<std::int32_t>(checked_id(member(entry, "id"), token.content, max_tokens));
      token.special = entry.value("special", false);
      token.normalized = entry.value("normalized", !token.special);
      token.single_word = entry.value("single_word", false);
      token.strip_left = entry.value("lstrip", false);
      token.strip_right = entry.value("rstrip", false);
      if (token.content.empty()) continue;
      const auto [same, is_new] = places.emplace(token.content, spec_.added.size());
      if (!is_new) {
        if (spec_.added[same->second] != token) refuse("the added token '" + token.content + "'", "given in two forms");
        continue;
      }
      const auto known = ids_.find(token.content);
      if (const std::int64_t given = known != ids_.end() ? known->second : next; given != token.id) {
        refuse("the id of the added token '" + token.content + "'",
               fmt::format("{} (the library tokenizers gives it {})", token.id, given));
      }
      next = std::max(next, token.id + std::int64_t{1});
      spec_.added.push_back(std::move(token));
    }
  }

  void read_normalizer(const json& normalizer) {
    if (normalizer.is_null()) return;
    const std::string type = type_of(normalizer);
    if (type == "Sequence") {
      for (const json& child : member(normalizer, "normalizers")) read_normalizer(child);
    } else if (type == "NFC") {
      spec_.nfc = true;
    } else if (type == "Prepend" && spec_.alphabet == BpeSpec::Alphabet::characters) {
      if (normalizer.value("prepend", "") != space_mark) refuse("normalizer Prepend", json_text(normalizer));
      if (spec_.prepend_mark) refuse("normalizer Prepend", "given twice");
      spec_.prepend_mark = true;
    } else if (type == "Replace" && spec_.alphabet == BpeSpec::Alphabet::characters) {
      const json& pattern = member(normalizer, "pattern");
      const std::string content = normalizer.value("content", ""), mark(space_mark);
      if (pattern.value("String", "") == " " && content == space_mark) {
        spec_.mark_spaces = true;
      } else if (pattern.value("Regex", "") == "\\A" + mark && content == mark + mark && spec_.mark_spaces) {
        doubled_mark_ = true;
      } else {
        refuse("normalizer Replace", json_text(normalizer));
      }
    } else {
      refuse("the normalizer", type.empty() ? json_text(normalizer) : type);
    }
  }

  void read_pre_tokenizer(const json& pre) {
    if (spec_.alphabet == BpeSpec::Alphabet::characters) {
      if (doubled_mark_) return read_doubled_mark(pre);
      if (pre.is_null() || (spec_.mark_spaces && is_split_at_spaces(pre))) {
        if (!spec_.mark_spaces) refuse("the pre_tokenizer", "none, with no normalizer that replaces spaces");
        return;
      }
      if (const auto type = type_of(pre); type != "Metaspace")
        refuse("the pre_tokenizer", type.empty() ? json_text(pre) : type);
      if (pre.value("replacement", std::string(space_mark)) != space_mark)
        refuse("Metaspace.replacement", json_text(pre));
      const std::string scheme = pre.value("prepend_scheme", pre.value("add_prefix_space", true) ? "always" : "never");
      if (scheme == "first") {
        spec_.prefix = BpeSpec::Prefix::first;
      } else if (scheme == "always") {
        spec_.prefix = BpeSpec::Prefix::always;
      } else if (scheme != "never") {
        refuse("Metaspace.prepend_scheme", scheme);
      }
      spec_.metaspace = true;
      spec_.split_at_spaces = pre.value("split", true);
      return;
    }
    const std::string type = type_of(pre);
    if (saw_byte_level_) refuse("the pre_tokenizer", type + " after ByteLevel");
    if (type == "Sequence") {
      for (const json& child : member(pre, "pretokenizers")) read_pre_tokenizer(child);
    } else if (type == "ByteLevel") {
      saw_byte_level_ = true;
      spec_.space_in_front = pre.value("add_prefix_space", true);
      if (spec_.space_in_front && !spec_.splits.empty()) refuse("ByteLevel.add_prefix_space", "true after a Split");
      if (pre.value("use_regex", true)) {
        spec_.splits.push_back({BpeSpec::Split::Kind::pattern, std::string(patterns::gpt2)});
      }
    } else if (type == "Digits") {
      const bool individual = pre.value("individual_digits", false);
      using Kind = BpeSpec::Split::Kind;
      spec_.splits.push_back({individual ? Kind::individual_digits : Kind::digits, ""});
    } else if (type == "Split") {
      read_split(pre);
    } else {
      refuse("the pre_tokenizer", type.empty() ? json_text(pre) : type);
    }
  }

  /// Finds the tokens that come before and after a text. ByteLevel changes no id.
  void read_post_processor(const json& post) {
    const std::string type = type_of(post);
    if (type == "Sequence") {
      for (const json& child : member(post, "processors")) read_post_processor(child);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      const json &begin = member(post, "cls"), &end = member(post, "sep");  // each is a list: a token's text and its id
      put_around_text(spec_.begin_of_text, begin.at(0).get<std::string>(), begin.at(1));
      put_around_text(spec_.end_of_text, end.at(0).get<std::string>(), end.at(1));
    } else if (type == "TemplateProcessing") {
      read_template(post);
    } else if (!post.is_null() && type != "ByteLevel") {
      refuse("the post_processor", type.empty() ? json_text(post) : type);
    }
  }

  void read_template(const json& post) {
    std::optional<std::int32_t>* token = &spec_.begin_of_text;
    for (const json& piece : member(post, "single")) {
      if (piece.contains("Sequence")) {
        token = &spec_.end_of_text;
        continue;
      }
      const auto name = member(member(piece, "SpecialToken"), "id").get<std::string>();
      for (const json& id : member(member(member(post, "special_tokens"), name.c_str()), "ids")) {
        put_around_text(*token, name, id);
      }
    }
  }

  /// Sets the token before or after a text.
  void put_around_text(std::optional<std::int32_t>& token, const std::string& name, const json& id) {
    if (token) refuse("the post_processor", "one that puts several tokens before or after a text");
    auto vocabulary = static_cast<std::int64_t>(spec_.tokens.size());
    for (const AddedToken& added : spec_.added) vocabulary = std::max(vocabulary, added.id + std::int64_t{1});
    token = static_cast<std::int32_t>(checked_id(id, name, vocabulary));
  }

  /// Gemma's files have this after a normalizer that leaves no spaces.
  bool is_split_at_spaces(const json& pre) const {
    return type_of(pre) == "Split" && member(pre, "pattern").value("String", "") == " ";
  }

  /// transformers 5 writes SentencePiece's prefix this way: a mark at a text's start becomes two, and Metaspace adds
  /// one where there is none. Together, they put a mark before every text, unless a token is found in between.
  void read_doubled_mark(const json& pre) {
    const json metaspace{{"type", "Metaspace"},
                         {"replacement", std::string(space_mark)},
                         {"prepend_scheme", "always"},
                         {"split", false}};
    const bool between = std::ranges::any_of(spec_.added, &AddedToken::normalized);
    if (pre != json{{"type", "Sequence"}, {"pretokenizers", json::array({metaspace})}} || between) {
      refuse("the pre_tokenizer", "one that does not fit a normalizer that doubles a leading U+2581");
    }
    spec_.prepend_mark = true;
  }

  void read_split(const json& split) {
    const json& pattern = member(split, "pattern");
    const auto regex = pattern.find("Regex");
    if (regex == pattern.end()) refuse("Split.pattern", json_text(pattern));
    const auto text = regex->get<std::string>();
    const std::string behavior = split.value("behavior", "Isolated");
    const bool invert = split.value("invert", false);
    // Removed and inverted keeps only the matches, which is equivalent for patterns that leave nothing out.
    const bool only_matches = behavior == "Removed" && invert && is_known_pattern(text);
    if (!(behavior == "Isolated" && !invert) && !only_matches) {
      refuse("Split.behavior", behavior + (invert ? ", inverted" : ""));
    }
    spec_.splits.push_back({BpeSpec::Split::Kind::pattern, text});
  }

  const json& file_;
  const std::string& path_;
  const ExitCode damaged_;
  BpeSpec spec_;
  std::unordered_map<std::string, std::int32_t> ids_;
  bool saw_byte_level_ = false, doubled_mark_ = false;
};

}  // namespace

std::string byte_level_character(unsigned char byte) {
  std::string character;
  append_utf8(character,
              std::ranges::find(byte_of_character(), byte, [](const auto& entry) { return entry.second; })->first);
  return character;
}

BpeSpec read_tokenizer_json(const json& file, const std::string& path, ExitCode damaged) {
  try {
    return Reader(file, path, damaged).read();
  } catch (const json::exception& error) {
    fail(damaged, "{} is not a tokenizer.json that this program can read: {}", path, error.what());
  }
}

}  // namespace ringtrain
