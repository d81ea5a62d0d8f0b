#include "data/chat/chat_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <utility>

#include "framework/error.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

/// A template that models are shipped with, by the XXH3-128 of its text without a line feed at the end, which Jinja
/// leaves out. Some hold a line feed where others have its escape, and write the same.
struct KnownTemplate {
  std::string_view hash;
  ChatStyle style;
  const char* name;
};
constexpr std::array known_templates{
    KnownTemplate{"f0a6a8278439fdb056191e205a440263", ChatStyle::chatml, "ChatML"},
    KnownTemplate{"577a7fce73f72e1ee2be9fd6966bb5eb", ChatStyle::chatml, "ChatML"},
    KnownTemplate{"a344e8c84fb0282dda206a9e46a4ac01", ChatStyle::chatml, "ChatML"},
    KnownTemplate{"7a128e0473e4be90846f9032c2079ea2", ChatStyle::chatml, "ChatML"},
    KnownTemplate{"98f63cc3d421d28f99ab995e9629dacd", ChatStyle::smollm2, "SmolLM2"},
    KnownTemplate{"f0323af61a5d6e2383059ddcb62b07a0", ChatStyle::smollm2, "SmolLM2"},
    KnownTemplate{"e392aa06018503fd2469c9508f79506e", ChatStyle::qwen2_5, "Qwen 2.5"},
    KnownTemplate{"0fab82ce8f4d5175c9e0155c80737cf2", ChatStyle::qwen3, "Qwen 3"},
    KnownTemplate{"4457e3d12b367a860283f874ff58d644", ChatStyle::qwen3, "Qwen 3"},
    KnownTemplate{"cc9ddd5a40bc1c0c8fb5d937b1e8f5d0", ChatStyle::chatml, "Qwen 3 Instruct 2507"},
    KnownTemplate{"4adb1f81f5c508ea24f6d97f87d647f5", ChatStyle::llama2, "Llama 2"},
    KnownTemplate{"97aac26c37e4a675cb7c5112dfc4a3b0", ChatStyle::llama2, "Llama 2"},
    KnownTemplate{"09facc0e4aa943189799ad6e2dea0594", ChatStyle::llama3, "Llama 3"},
    KnownTemplate{"11cc8d79e9815d5c866fc8fa50da12fe", ChatStyle::llama3, "Llama 3"},
    KnownTemplate{"9ddcd6cd71f96dd76ca7779b7730196a", ChatStyle::llama3_1, "Llama 3.1"},
    KnownTemplate{"573e1bcc8c56f178c3d57e38f5ff0756", ChatStyle::llama3_1, "Llama 3.2"},
    KnownTemplate{"70bf874ad98f31f4b7f52373b11c60d7", ChatStyle::mistral_v0_1, "Mistral v0.1"},
    KnownTemplate{"f395fc5daa794129a5d004210ebce758", ChatStyle::mistral_v0_2, "Mistral v0.2"},
    KnownTemplate{"6aef58edf0d62df9f89cfc57f651ff3d", ChatStyle::mistral_v1, "Mistral v0.2, with system messages"},
    KnownTemplate{"df3ebcd92fa9a63fc6614466504d495b", ChatStyle::mistral_v3, "Mistral v0.3"},
    KnownTemplate{"638e5c8b05f6278ccae647ce0048756b", ChatStyle::mistral_nemo, "Mistral Nemo"},
    KnownTemplate{"8b30bb763d138e692c2e86beabccd2a4", ChatStyle::gemma, "Gemma"},
    KnownTemplate{"3e5cd793cecbf962344edb205734f341", ChatStyle::gemma, "Gemma"},
    KnownTemplate{"cc03b87e7e7a7d10fdd35ed9cae1163e", ChatStyle::gemma_no_bos, "Gemma"},
    KnownTemplate{"0f978e833b228343ed0bf16fe1aa8d94", ChatStyle::gemma_no_bos, "Gemma"},
    KnownTemplate{"6c84c2da794fd4c1d9c620dcaf86f38d", ChatStyle::gemma3, "Gemma 3"},
};

constexpr std::string_view turn_start = "<|im_start|>", turn_end = "<|im_end|>";  // of ChatML
constexpr const char* smollm2_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
constexpr const char* qwen_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
constexpr const char* llama_dates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

bool is_chatml(ChatStyle style) {
  return style == ChatStyle::chatml || style == ChatStyle::smollm2 || style == ChatStyle::qwen2_5 ||
         style == ChatStyle::qwen3;
}
bool is_llama3(ChatStyle style) {
  return style == ChatStyle::llama3 || style == ChatStyle::llama3_1;
}
bool is_gemma(ChatStyle style) {
  return style == ChatStyle::gemma || style == ChatStyle::gemma_no_bos || style == ChatStyle::gemma3;
}
/// Returns whether a format writes the token that begins a text.
bool needs_bos(ChatStyle style) {
  return style != ChatStyle::plain && !is_chatml(style) && style != ChatStyle::gemma_no_bos;
}

/// Returns whether Python's own trimming takes a code point away.
bool is_python_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

/// Returns well-formed text without white space at its ends, as in Python.
std::string_view trimmed(std::string_view text) {
  const auto code_at = [&](std::size_t at) {
    return decode_utf8(reinterpret_cast<const unsigned char*>(text.data()) + at);
  };
  while (!text.empty() && is_python_space(code_at(0).value)) text.remove_prefix(code_at(0).bytes);
  while (!text.empty()) {
    const std::size_t last = code_point_border(text, text.size() - 1);
    if (!is_python_space(code_at(last).value)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string_view without_line_feeds(std::string_view text, bool left, bool right) {
  while (left && text.starts_with('\n')) text.remove_prefix(1);
  while (right && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error("the chat template refuses it: " + why);
}

/// Writes one conversation.
class Writer {
 public:
  Writer(const Tokenizer& tokenizer, const ChatTemplate& from) : tokenizer_(tokenizer), template_(from) {}

  /// Adds a special token, or its letters where the tokenizer has none of this content.
  void mark(std::string_view content, bool learned = false) {
    const std::optional<std::int32_t> token = tokenizer_.find_special(content);
    parts_.push_back({.text = token ? "" : std::string(content), .token = token, .learned = learned});
  }
  void begin_text() { mark(template_.bos); }
  void end_text(bool learned) { mark(template_.eos, learned); }
  void text(std::string_view content, bool learned = false) {
    if (!content.empty()) parts_.push_back({.text = std::string(content), .learned = learned});
  }

  void chatml(const std::string& role, std::string_view content, bool learned) {
    mark(turn_start);
    text(role + "\n");
    text(content, learned);
    mark(turn_end, learned);
    text("\n");
  }
  void chatml(const Message& message) { chatml(message.role, message.content, message.learned); }
  /// ChatML whose first message is a system message: the conversation's, or this one.
  void chatml_with_system(const Conversation& conversation, const char* system) {
    if (conversation.front().role != "system") chatml("system", system, false);
    for (const Message& message : conversation) chatml(message);
  }

  void qwen3(const Conversation& conversation) {
    const auto is_query = [](const Message& message) {
      return message.role == "user" &&
             !(message.content.starts_with("<tool_response>") && message.content.ends_with("</tool_response>"));
    };
    std::ptrdiff_t last_query = std::ssize(conversation) - 1;
    for (std::ptrdiff_t i = last_query; i >= 0; --i) {
      if (!is_query(conversation[static_cast<std::size_t>(i)])) continue;
      last_query = i;
      break;
    }
    for (std::size_t i = 0; i < conversation.size(); ++i) {
      const Message& message = conversation[i];
      if (message.role != "assistant") {
        chatml(message);
        continue;
      }
      std::string_view content = message.content, reasoning;
      if (message.reasoning) reasoning = *message.reasoning;
      constexpr std::string_view begin = "<think>", end = "</think>";
      if (const std::size_t first = content.find(end); !message.reasoning && first != std::string_view::npos) {
        reasoning = without_line_feeds(content.substr(0, first), false, true);
        if (const std::size_t at = reasoning.rfind(begin); at != std::string_view::npos) {
          reasoning.remove_prefix(at + begin.size());
        }
        reasoning = without_line_feeds(reasoning, true, false);
        content = without_line_feeds(content.substr(content.rfind(end) + end.size()), true, false);
      }
      const bool last = i + 1 == conversation.size();
      if (static_cast<std::ptrdiff_t>(i) <= last_query || (!last && reasoning.empty())) {
        chatml(message.role, content, message.learned);
        continue;
      }
      chatml(message.role,
             fmt::format("<think>\n{}\n</think>\n\n{}", without_line_feeds(reasoning, true, true),
                         without_line_feeds(content, true, false)),
             message.learned);
    }
  }

  void llama3(const std::string& role, std::string_view content, bool learned) {
    llama3_header(role);
    text(content, learned);
    mark("<|eot_id|>", learned);
  }
  void llama3(std::span<const Message> messages) {
    for (const Message& message : messages) llama3(message.role, trimmed(message.content), message.learned);
  }
  void llama3_header(const std::string& role) {
    mark("<|start_header_id|>");
    text(role);
    mark("<|end_header_id|>");
    text("\n\n");
  }
  void llama3_1(const Conversation& conversation) {
    const bool system = conversation.front().role == "system";
    begin_text();
    llama3("system", llama_dates + std::string(system ? trimmed(conversation.front().content) : ""), false);
    llama3(std::span(conversation).subspan(system ? 1 : 0));
  }

  void llama2(const Conversation& conversation) {
    const Turns turns(conversation);
    for (std::size_t i = 0; i < turns.rest.size(); ++i) {
      const Message& message = turns.rest[i];
      std::string content = message.content;
      if (i == 0 && turns.system) content = "<<SYS>>\n" + turns.system->content + "\n<</SYS>>\n\n" + content;
      if (message.role == "user") {
        begin_text();
        mark("[INST]");
        text(fmt::format(" {} ", trimmed(content)));
        mark("[/INST]");
      } else {
        text(fmt::format(" {} ", trimmed(content)), message.learned);
        end_text(message.learned);
      }
    }
  }

  /// How Mistral's versions put spaces.
  struct Spaces {
    const char *before, *after, *before_end, *before_answer, *after_answer;
    bool trims = false;
    enum class System { refused, first_turn, last_turn } system = System::refused;
  };
  void mistral(const Conversation& conversation, const Spaces& spaces, std::int64_t* left_out) {
    const Turns turns(conversation);
    if (turns.system && spaces.system == Spaces::System::refused) refuse("it knows no system messages");
    begin_text();
    bool system_written = !turns.system;
    for (std::size_t i = 0; i < turns.rest.size(); ++i) {
      const Message& message = turns.rest[i];
      if (message.role == "user") {
        const bool here =
            turns.system && (spaces.system == Spaces::System::first_turn ? i == 0 : i + 1 == turns.rest.size());
        system_written = system_written || here;
        text(spaces.before);
        mark("[INST]");
        text(spaces.after + (here ? turns.system->content + "\n\n" : "") + message.content + spaces.before_end);
        mark("[/INST]");
      } else {
        const std::string_view content = spaces.trims ? trimmed(message.content) : message.content;
        text(spaces.before_answer + std::string(content), message.learned);
        end_text(message.learned);
        text(spaces.after_answer);
      }
    }
    if (!system_written && left_out) ++*left_out;
  }

  void gemma(const Conversation& conversation, bool begins, bool takes_system) {
    const Turns turns(conversation, /*later_systems=*/true);
    if (turns.system && !takes_system) refuse("it knows no system messages");
    if (begins) begin_text();
    for (std::size_t i = 0; i < turns.rest.size(); ++i) {
      const Message& message = turns.rest[i];
      mark("<start_of_turn>");
      text(std::string(message.role == "assistant" ? "model" : message.role) + "\n");
      if (i == 0 && turns.system) text(turns.system->content + "\n\n");
      text(trimmed(message.content), message.learned);
      mark("<end_of_turn>", message.learned);
      text("\n");
    }
  }

  void plain(const Conversation& conversation) {
    for (const Message& message : conversation) {
      parts_.push_back({.text = message.role + ":", .learned = false, .own_stretch = true});
      parts_.push_back({.text = " " + message.content + "\n", .learned = message.learned, .own_stretch = true});
    }
  }

  void write(const Conversation& conversation, ChatStyle style, std::int64_t* left_out) {
    using System = Spaces::System;
    switch (style) {
      case ChatStyle::plain:
        return plain(conversation);
      case ChatStyle::chatml:
        for (const Message& message : conversation) chatml(message);
        return;
      case ChatStyle::smollm2:
        return chatml_with_system(conversation, smollm2_system);
      case ChatStyle::qwen2_5:
        return chatml_with_system(conversation, qwen_system);
      case ChatStyle::qwen3:
        return qwen3(conversation);
      case ChatStyle::llama3:
        begin_text();
        return llama3(conversation);
      case ChatStyle::llama3_1:
        return llama3_1(conversation);
      case ChatStyle::llama2:
        return llama2(conversation);
      case ChatStyle::mistral_v0_1:
        return mistral(conversation, {"", " ", " ", "", " "}, left_out);
      case ChatStyle::mistral_v0_2:
        return mistral(conversation, {"", " ", " ", "", ""}, left_out);
      case ChatStyle::mistral_v1:
        return mistral(conversation, {" ", " ", " ", " ", "", false, System::first_turn}, left_out);
      case ChatStyle::mistral_v3:
        return mistral(conversation, {"", " ", "", " ", "", true, System::last_turn}, left_out);
      case ChatStyle::mistral_nemo:
        return mistral(conversation, {"", "", "", "", "", false, System::last_turn}, left_out);
      case ChatStyle::gemma:
      case ChatStyle::gemma_no_bos:
      case ChatStyle::gemma3:
        return gemma(conversation, needs_bos(style), style == ChatStyle::gemma3);
    }
  }

  /// Writes the beginning of an answer, which the formats without markers of turns do not have.
  void ask_for_answer(ChatStyle style) {
    if (style == ChatStyle::plain) {
      parts_.push_back({.text = "assistant:", .learned = false, .own_stretch = true});
    } else if (is_llama3(style)) {
      llama3_header("assistant");
    } else if (is_gemma(style)) {
      mark("<start_of_turn>");
      text("model\n");
    } else if (is_chatml(style)) {
      mark(turn_start);
      text("assistant\n");
    }
  }

  std::vector<DocumentPart> take() { return std::move(parts_); }

 private:
  /// A system message, if the first one is, and turns of the user and others.
  struct Turns {
    explicit Turns(const Conversation& conversation, bool later_systems = false) : rest(conversation) {
      if (conversation.front().role == "system") {
        system = &conversation.front();
        rest = rest.subspan(1);
      }
      for (std::size_t i = 0; i < rest.size(); ++i) {
        if ((rest[i].role == "user") != (i % 2 == 0)) refuse("user and assistant must take turns, the user first");
        if (rest[i].role == "system" && !later_systems) refuse("a system message is not the first message");
      }
    }
    const Message* system = nullptr;
    std::span<const Message> rest;
  };

  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  std::vector<DocumentPart> parts_;
};

std::string_view end_of(ChatStyle style, const ChatTemplate& from) {
  if (style == ChatStyle::plain) return "";
  if (is_chatml(style)) return turn_end;
  if (is_llama3(style)) return "<|eot_id|>";
  if (is_gemma(style)) return "<end_of_turn>";
  return from.eos;
}

}  // namespace

ChatFormat::ChatFormat(const Tokenizer& tokenizer, ChatTemplate from, ChatChoice choice)
    : tokenizer_(tokenizer), template_(std::move(from)) {
  const bool has_turns = tokenizer.find_special(turn_start) && tokenizer.find_special(turn_end);
  if (choice == ChatChoice::plain || (choice == ChatChoice::of_template && template_.hash.empty() && !has_turns)) {
    name_ = "lines of role and content";
    return;
  }
  if (choice == ChatChoice::chatml || template_.hash.empty()) {
    style_ = ChatStyle::chatml;
    name_ = "ChatML";
    if (!has_turns) refusal_ = fmt::format("the tokenizer has no {} and {}, which ChatML needs", turn_start, turn_end);
    return;
  }
  const auto* const known = std::ranges::find(known_templates, std::string_view(template_.hash), &KnownTemplate::hash);
  if (known == known_templates.end()) {
    name_ = "a template that is not known here";
    refusal_ = fmt::format(
        "{}: the chat template (hash {}) is none that is known here; --chat chatml writes ChatML, "
        "--chat plain lines of role and content",
        template_.path, template_.hash);
    return;
  }
  style_ = known->style;
  name_ = style_ == ChatStyle::chatml && std::string_view(known->name) == "ChatML"
              ? "ChatML"
              : fmt::format("the template of {}", known->name);
  const std::string_view end = end_of(style_, template_);
  if (needs_bos(style_) && !tokenizer.find_special(template_.bos)) {
    refusal_ = fmt::format(
        "{}: the chat template begins with the token bos_token, which tokenizer_config.json does not "
        "name",
        template_.path);
  } else if (!tokenizer.find_special(end)) {
    refusal_ =
        fmt::format("{}: the chat template ends an answer with \"{}\", which is no special token of the tokenizer",
                    template_.path, end);
  }
}

std::optional<std::int32_t> ChatFormat::end_of_answer() const {
  return tokenizer_.find_special(end_of(style_, template_));
}

std::vector<DocumentPart> ChatFormat::parts(const Conversation& conversation, bool asks_for_answer,
                                            std::int64_t* left_out) const {
  if (!refusal_.empty()) fail(ExitCode::usage, "{}", refusal_);
  ensure(!conversation.empty(), "a conversation has messages");
  if (style_ != ChatStyle::qwen3 &&
      std::ranges::any_of(conversation, [](const Message& m) { return m.reasoning.has_value(); })) {
    refuse("it does not write \"reasoning_content\"");
  }
  Writer writer(tokenizer_, template_);
  writer.write(conversation, style_, left_out);
  if (asks_for_answer) writer.ask_for_answer(style_);
  return writer.take();
}

namespace {

/// Returns how many ids at the beginning are the same.
std::size_t common(const std::vector<std::int32_t>& one, const std::vector<std::int32_t>& other) {
  return static_cast<std::size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
}

}  // namespace

std::int64_t encode_parts(const std::vector<DocumentPart>& parts, Encoder& encoder, std::vector<std::int32_t>& ids,
                          std::vector<bool>& learned, Preceding preceding) {
  std::int64_t replaced = 0;
  std::vector<std::int32_t> whole, head;
  for (std::size_t i = 0; i < parts.size();) {
    if (parts[i].token) {
      ids.push_back(*parts[i].token);
      learned.push_back(parts[i].learned);
      preceding = Preceding::token;
      ++i;
      continue;
    }
    // One stretch: the texts up to the next token. An id belongs to the last text that it depends on.
    std::size_t end = i;
    std::string text;
    do text += parts[end++].text;
    while (end < parts.size() && !parts[end].token && !parts[end].own_stretch);
    whole.clear();
    replaced += encoder.encode(text, whole, preceding);
    std::size_t done = 0, bytes = 0;
    for (; i < end; ++i) {
      bytes += parts[i].text.size();
      std::size_t until = whole.size();
      // Only where what is learned begins or ends does it matter whose an id is.
      if (i + 1 < end && parts[i].learned == parts[i + 1].learned) continue;
      if (i + 1 < end) {
        head.clear();
        encoder.encode(std::string_view(text).substr(0, bytes), head, preceding);
        until = std::max(done, common(head, whole));
      }
      learned.insert(learned.end(), until - done, parts[i].learned);
      done = until;
    }
    ids.insert(ids.end(), whole.begin(), whole.end());
    preceding = Preceding::text;
  }
  return replaced;
}

}  // namespace ringtrain
