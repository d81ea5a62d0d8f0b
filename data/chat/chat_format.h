// How a model's family writes a conversation: the text and the special tokens that its chat template would make, for
// templates that are recognised by the hash of their text. No template is run here: each format is written out, and
// tests hold its ids against transformers' apply_chat_template.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/conversation.h"
#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

/// A stretch of a document: text, or one special token. Texts that follow each other are tokenized as one, unless the
/// second begins a stretch of its own.
struct DocumentPart {
  std::string text;
  std::optional<std::int32_t> token = {};
  bool learned = true;
  bool own_stretch = false;
};

/// What a tokenizer's files say of chats.
struct ChatTemplate {
  std::string hash;      // XXH3-128 of its text, but for a line feed at the end; "": there is none
  std::string bos, eos;  // contents of special tokens; "": not named
  std::string path;      // for messages
};

/// Returns what ChatTemplate::hash is of a text, "" of none.
std::string hash_of_template(std::string_view text);
/// Returns what stands beside a tokenizer that load_tokenizer() takes: in a folder chat_template.jinja or
/// tokenizer_config.json. Throws Error(data) if one of them is damaged.
ChatTemplate read_chat_template(const std::string& tokenizer);

/// Which format a user asks for.
enum class ChatChoice { of_template, chatml, plain };

enum class ChatStyle {
  plain,         // "role: content" LF, for tokenizers without tokens for turns
  chatml,        // <|im_start|>role LF content <|im_end|> LF
  smollm2,       // ChatML with a system message of its own, if there is none
  qwen2_5,       // the same with another one
  qwen3,         // ChatML with the answer's reasoning
  llama2,        // <s>[INST] user [/INST] answer </s>
  llama3,        // <|start_header_id|>role<|end_header_id|> LF LF content <|eot_id|>
  llama3_1,      // the same, always with a system message that names two dates
  mistral_v0_1,  // <s>[INST] user [/INST]answer</s>, and a space
  mistral_v0_2,  // without the space
  mistral_v1,    // spaces around each marker
  mistral_v3,    // [INST] user[/INST] answer</s>
  mistral_nemo,  // without any spaces
  gemma,         // <start_of_turn>role LF content <end_of_turn> LF
  gemma_no_bos,  // without <bos>
  gemma3,        // with a system message, before the first of the user
};

/// Immutable; used by several threads at once.
class ChatFormat {
 public:
  /// The format of a tokenizer's chats. What cannot be written is refused by the first conversation, not here.
  /// Requires that the tokenizer outlives it.
  ChatFormat(const Tokenizer& tokenizer, ChatTemplate from, ChatChoice choice);

  /// Returns a sentence's part that says whose format it is: "ChatML", "the template of Llama 3.1".
  const std::string& name() const { return name_; }
  /// Returns the parts of a conversation; asks_for_answer: with the beginning of an answer, as apply_chat_template's
  /// add_generation_prompt. *left_out counts system messages that the template leaves out. Throws Error(usage) if the
  /// template is not known here or its tokens are not there, std::exception if it refuses this conversation.
  std::vector<DocumentPart> parts(const Conversation& conversation, bool asks_for_answer = false,
                                  std::int64_t* left_out = nullptr) const;
  /// Returns the token that ends an answer, if there is one.
  std::optional<std::int32_t> end_of_answer() const;

 private:
  const Tokenizer& tokenizer_;
  ChatTemplate template_;
  ChatStyle style_ = ChatStyle::plain;
  std::string name_;
  std::string refusal_;  // why no conversation can be written; "": it can
};

/// Appends the ids of parts, and for each id whether it is learned: where it holds anything of a part that is. Returns
/// how many stretches of ill-formed UTF-8 were replaced. preceding: what stands before the first part. Throws as
/// Encoder::encode() does.
std::int64_t encode_parts(const std::vector<DocumentPart>& parts, Encoder& encoder, std::vector<std::int32_t>& ids,
                          std::vector<bool>& learned, Preceding preceding = Preceding::nothing);

}  // namespace ringtrain
