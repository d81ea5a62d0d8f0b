// A conversation in a line of JSON, in the forms in which such data are shared: "messages" (role, content), ShareGPT's
// "conversations" (from, value), and "prompt" with "completion", each a list of messages. What a line holds and no
// template here writes is refused, never dropped.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ringtrain {

struct Message {
  std::string role, content;
  std::optional<std::string> reasoning;  // "reasoning_content", which Qwen 3's template writes
  bool learned = false;
};
using Conversation = std::vector<Message>;

/// Returns the conversation of an object, nothing if it holds none. learned: roles; in a completion only what is of
/// them. Roles are system, user, assistant and those learned. Throws std::exception that says what is wrong: another
/// role, tool calls, content that is no text.
std::optional<Conversation> read_conversation(const nlohmann::json& object, const std::vector<std::string>& learned);

/// Returns the conversation of a whole JSON text: an object as above, or the list of its messages. Throws as above.
Conversation parse_conversation(std::string_view text);

}  // namespace ringtrain
