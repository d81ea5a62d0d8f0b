#include "data/tokenizer/formats/tokenizer_json_writer.h"

#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/formats/tokenizer_json.h"

namespace ringtrain {

void TokenizerJson::add(const std::string& content, std::int64_t id, bool special) {
  added_tokens.push_back({{"id", id},
                          {"content", content},
                          {"single_word", false},
                          {"lstrip", false},
                          {"rstrip", false},
                          {"normalized", false},
                          {"special", special}});
}

nlohmann::json TokenizerJson::file() const {
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

nlohmann::json byte_tokenizer_json() {
  TokenizerJson result;
  for (int byte = 0; byte < 256; ++byte) {
    result.vocabulary[byte_level_character(static_cast<unsigned char>(byte))] = byte;
  }
  result.add(std::string(end_of_document_text), end_of_document, true);
  const nlohmann::json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  result.pre_tokenizer = result.decoder = byte_level;
  return result.file();
}

}  // namespace ringtrain
