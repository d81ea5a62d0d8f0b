#include "data/chat/conversation.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "framework/storage/plain_text.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using nlohmann::json;

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> why, Values&&... values) {
  throw std::runtime_error(fmt::format(why, std::forward<Values>(values)...));
}

/// What ShareGPT calls the roles.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> share_gpt_roles{
    {{"human", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"bot", "assistant"}}};

/// Keys that ask for what is not written here, unless they say nothing.
constexpr std::array<std::string_view, 5> tool_keys{"tool_calls", "function_call", "tool_call_id", "tools",
                                                    "functions"};

bool says_nothing(const json& value) {
  return value.is_null() || ((value.is_structured() || value.is_string()) && value.empty());
}

void refuse_tools(const json& object) {
  for (const std::string_view key : tool_keys) {
    if (const auto found = object.find(key); found != object.end() && !says_nothing(*found)) {
      refuse("\"{}\": calls of tools are not written here", key);
    }
  }
}

std::string text_of(const json& message, const char* name) {
  const auto found = message.find(name);
  if (found == message.end()) refuse("no field \"{}\"", name);
  if (!found->is_string()) refuse("the field \"{}\" of a message is no text", name);
  return found->get<std::string>();
}

Message read_message(const json& value, const std::vector<std::string>& learned) {
  if (!value.is_object()) refuse("a message is no object");
  refuse_tools(value);
  const bool share_gpt = value.contains("from");
  Message message;
  message.role = text_of(value, share_gpt ? "from" : "role");
  message.content = text_of(value, share_gpt ? "value" : "content");
  if (share_gpt) {
    for (const auto& [theirs, ours] : share_gpt_roles) {
      if (message.role == theirs) message.role = ours;
    }
  }
  if (value.contains("reasoning_content") && !says_nothing(value["reasoning_content"])) {
    message.reasoning = text_of(value, "reasoning_content");
  }
  message.learned = std::ranges::find(learned, message.role) != learned.end();
  constexpr std::array<std::string_view, 3> known{"system", "user", "assistant"};
  if (!message.learned && std::ranges::find(known, message.role) == known.end()) {
    refuse("the role \"{}\" is none of system, user, assistant; if it is meant, name it with --train-on",
           plain_text(message.role));
  }
  return message;
}

void read_messages(const json& list, const char* name, const std::vector<std::string>& learned, Conversation& to) {
  if (!list.is_array() || list.empty()) refuse("\"{}\" is no list of messages", name);
  for (const json& value : list) to.push_back(read_message(value, learned));
}

}  // namespace

std::optional<Conversation> read_conversation(const json& object, const std::vector<std::string>& learned) {
  std::vector<const char*> there;
  for (const char* name : {"messages", "conversations", "completion"}) {
    if (object.contains(name)) there.push_back(name);
  }
  if (there.empty()) return std::nullopt;
  if (there.size() > 1) refuse("there are both \"{}\" and \"{}\"; remove one of them", there[0], there[1]);
  const std::string_view form = there[0];
  if (form == "completion" && object["completion"].is_string()) return std::nullopt;  // no conversation
  refuse_tools(object);
  Conversation conversation;
  for (const char* name : {"system", "system_prompt"}) {
    if (object.contains(name) && !says_nothing(object[name])) {
      conversation.push_back({"system", text_of(object, name), {}, false});
    }
  }
  if (form == "completion") {
    if (!object.contains("prompt")) refuse("\"completion\" without \"prompt\"");
    read_messages(object["prompt"], "prompt", {}, conversation);
    read_messages(object["completion"], "completion", learned, conversation);
  } else {
    read_messages(object[there[0]], there[0], learned, conversation);
  }
  return conversation;
}

Conversation parse_conversation(std::string_view text) {
  json value = parse_strict_json(text);
  if (value.is_array()) value = json{{"messages", std::move(value)}};
  std::optional<Conversation> conversation;
  if (value.is_object()) conversation = read_conversation(value, {});
  if (!conversation) refuse("no conversation: a list of messages, or an object with \"messages\"");
  return *std::move(conversation);
}

}  // namespace ringtrain
