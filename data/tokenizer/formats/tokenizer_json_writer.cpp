#include "data/tokenizer/formats/tokenizer_json_writer.h"

#include <utility>

#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/formats/tokenizer_json.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

using Json = nlohmann::json;

constexpr const char* space_mark = "\xE2\x96\x81";  // U+2581

/// Throws Error(data) that says what of a spec a file cannot hold.
template <class... Values>
[[noreturn]] void refuse(const BpeSpec& spec, fmt::format_string<Values...> what, Values&&... values) {
  fail(ExitCode::data, "{}: {}, which tokenizer.json cannot say with the same ids", spec.where,
       fmt::format(what, std::forward<Values>(values)...));
}

/// Returns whether what no piece stands for is written as bytes.
bool has_bytes(const BpeSpec& spec) {
  std::size_t found = 0;
  for (std::size_t byte = 0; byte < spec.byte_tokens.size(); ++byte) {
    if (spec.byte_tokens[byte] < 0) continue;
    const std::string& name = spec.tokens[spec.byte_tokens[byte]];
    if (name != fmt::format("<0x{:02X}>", byte)) refuse(spec, "the piece of a byte is named {}", name);
    ++found;
  }
  if (found != 0 && found != spec.byte_tokens.size()) refuse(spec, "only {} of the 256 bytes have pieces", found);
  if (found == 0 && spec.unknown < 0) refuse(spec, "neither bytes nor unknown characters have a piece");
  return found != 0;
}

Json sequence(const char* list, Json parts) {
  return {{"type", "Sequence"}, {list, std::move(parts)}};
}

}  // namespace

void TokenizerJson::add(const std::string& content, std::int64_t id, bool special) {
  added_tokens.push_back({{"id", id},
                          {"content", content},
                          {"single_word", false},
                          {"lstrip", false},
                          {"rstrip", false},
                          {"normalized", false},
                          {"special", special}});
}

void TokenizerJson::put_around(std::optional<std::int64_t> begin, std::optional<std::int64_t> end) {
  if (!begin && !end) return;
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  const auto put = [&](const std::optional<std::int64_t>& id, Json& list, int type) {
    if (!id) return;
    for (const auto& [token, value] : vocabulary.items()) {
      if (value != *id) continue;
      list.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
      tokens[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
    }
  };
  const auto put_text = [&](const char* name, Json& list, int type) {
    put(begin, list, type);
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    put(end, list, type);
  };
  put_text("A", single, 0);
  put_text("A", pair, 0);
  put_text("B", pair, 1);
  post_processor = {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

Json TokenizerJson::file() const {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens},
          {"normalizer", normalizer},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", post_processor},
          {"decoder", decoder},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", unknown},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", fuse_unknown},
            {"byte_fallback", byte_fallback},
            {"ignore_merges", whole_pieces_first},
            {"vocab", vocabulary},
            {"merges", merges}}}};
}

Json byte_tokenizer_json() {
  TokenizerJson result;
  for (int byte = 0; byte < 256; ++byte) {
    result.vocabulary[byte_level_character(static_cast<unsigned char>(byte))] = byte;
  }
  result.add(std::string(end_of_document_text), end_of_document, true);
  const Json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  result.pre_tokenizer = result.decoder = byte_level;
  return result.file();
}

TokenizerJson json_of_pieces(const BpeSpec& spec) {
  TokenizerJson result;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    const auto [place, is_new] = result.vocabulary.emplace(spec.tokens[id], id);
    if (!is_new) refuse(spec, "the pieces {} and {} are the same", place->get<std::size_t>(), id);
  }
  if (!spec.extra_symbols.empty()) {
    refuse(spec, "'{}' stands in a piece and is none itself", spec.extra_symbols.front());
  }
  if (!spec.never_merged.empty()) {
    refuse(spec, "piece {} is a character and no text", spec.never_merged.front());
  }
  const auto text = [&](std::int32_t id) -> const std::string& { return spec.tokens[id]; };
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const Merge& merge = spec.merges[i];
    if (i > 0 && merge.rank == spec.merges[i - 1].rank) {
      refuse(spec, "the pieces {} and {} have one score", spec.merges[i - 1].product, merge.product);
    }
    result.merges.push_back({text(merge.left), text(merge.right)});
  }
  for (const AddedToken& token : spec.added) {
    if (!token.special) refuse(spec, "the piece '{}' was defined by users", token.content);
    result.add(token.content, token.id, true);
  }
  result.byte_fallback = has_bytes(spec);
  result.fuse_unknown = spec.fuse_unknown;
  if (spec.unknown >= 0) result.unknown = text(spec.unknown);

  Json normalizers = Json::array(), decoders = Json::array();
  const bool prefix = spec.has_prefix();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", space_mark}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space_mark}});
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", space_mark}}}, {"content", " "}});
  if (result.byte_fallback) decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  result.normalizer = sequence("normalizers", std::move(normalizers));
  result.decoder = sequence("decoders", std::move(decoders));
  return result;
}

}  // namespace ringtrain
