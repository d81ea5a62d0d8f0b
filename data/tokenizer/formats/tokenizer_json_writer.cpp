#include "data/tokenizer/formats/tokenizer_json_writer.h"

#include <nlohmann/json.hpp>

#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/formats/tokenizer_json.h"

namespace ringtrain {

nlohmann::json byte_tokenizer_json() {
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[byte_level_character(static_cast<unsigned char>(byte))] = byte;
  }
  const nlohmann::json end{{"id", end_of_document}, {"content", end_of_document_text},
                           {"single_word", false},  {"lstrip", false},
                           {"rstrip", false},       {"normalized", false},
                           {"special", true}};
  const nlohmann::json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array({end})},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges", nlohmann::json::array()}}}};
}

}  // namespace ringtrain
