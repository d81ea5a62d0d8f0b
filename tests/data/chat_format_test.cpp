// Chats as the known templates write them: ids that transformers gave (tests/tokenizers/chat_test.py), which ids are
// learned, and what is refused.
#include "data/chat/chat_format.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/data/data_fixture.h"
#include "tests/support/paths.h"

namespace ringtrain {
namespace {

using nlohmann::json;

class ChatFormatTest : public DataTest {
 protected:
  /// Writes one of the tiny tokenizers with more special tokens, and loads it.
  void use(const std::string& base, const std::vector<std::string>& marks) {
    json file = tiny_json(base);
    std::set<std::string> there;
    std::int64_t next = 0;
    for (const json& id : file["model"]["vocab"]) next = std::max(next, id.get<std::int64_t>() + 1);
    for (const json& token : file["added_tokens"]) {
      there.insert(token["content"].get<std::string>());
      next = std::max(next, token["id"].get<std::int64_t>() + 1);
    }
    for (const std::string& mark : marks) {
      if (there.contains(mark)) continue;
      const bool known = file["model"]["vocab"].contains(mark);
      const std::int64_t id = known ? file["model"]["vocab"][mark].get<std::int64_t>() : next++;
      file["added_tokens"].push_back({{"id", id}, {"content", mark}, {"special", true}, {"normalized", false}});
    }
    std::sort(file["added_tokens"].begin(), file["added_tokens"].end(),
              [](const json& one, const json& other) { return one["id"] < other["id"]; });
    text("tokenizer.json", file.dump());
    tokenizer = load_tokenizer(at("tokenizer.json"));
  }
  ChatFormat format(const std::string& hash, const std::string& bos = "<s>", const std::string& eos = "</s>") const {
    return {*tokenizer, {.hash = hash, .bos = bos, .eos = eos, .path = "t"}, ChatChoice::of_template};
  }
  std::vector<std::int32_t> ids_of(const std::vector<DocumentPart>& parts) {
    std::vector<std::int32_t> ids;
    learned.clear();
    encode_parts(parts, *tokenizer->make_encoder(SpecialTokens::text), ids, learned);
    EXPECT_EQ(ids.size(), learned.size());
    return ids;
  }
  static Conversation conversation(const char* messages) {
    return *read_conversation(json{{"messages", json::parse(messages)}}, {"assistant"});
  }
  /// Returns the text of the ids that are learned.
  std::string learned_text(const ChatFormat& how, const char* messages) {
    const auto ids = ids_of(how.parts(conversation(messages)));
    std::string result;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (learned[i]) result += tokenizer->token_text(ids[i]);
    }
    return result;
  }
  static std::string refusal_of(const json& line) {
    try {
      read_conversation(line, {"assistant"});
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  static std::vector<std::string> marks_of(const std::string& style) {
    std::vector<std::string> marks{
        "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
        "<|eot_id|>",   "<bos>",      "<start_of_turn>",   "<end_of_turn>",       "<s>",
        "</s>"};
    if (style == "mistral_v3" || style == "mistral_nemo") marks.insert(marks.end(), {"[INST]", "[/INST]"});
    return marks;
  }
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<bool> learned;
};

constexpr const char* chatml = "f0a6a8278439fdb056191e205a440263";
constexpr const char* llama2 = "4adb1f81f5c508ea24f6d97f87d647f5";

TEST_F(ChatFormatTest, IdsAreThoseOfApplyChatTemplate) {
  std::ifstream file(testing::source_folder() + "/tests/extras/python/chats.json");
  const json golden = json::parse(file);
  EXPECT_EQ(golden.size(), 30U);  // each style by two tokenizers
  for (const json& one : golden) {
    const std::string style = one["style"], hash = one["hash"];
    SCOPED_TRACE(style + " " + hash + " " + one["base"].get<std::string>());
    use(one["base"], marks_of(style));
    const bool llama3 = style.starts_with("llama3"), gemma = style.starts_with("gemma");
    const ChatFormat how = format(hash,
                                  llama3  ? "<|begin_of_text|>"
                                  : gemma ? "<bos>"
                                          : "<s>",
                                  llama3  ? "<|eot_id|>"
                                  : gemma ? "<end_of_turn>"
                                          : "</s>");
    for (const json& chat : one["cases"]) {
      const Conversation messages = *read_conversation(chat, {"assistant"});
      EXPECT_EQ(ids_of(how.parts(messages)), chat["ids"].get<std::vector<std::int32_t>>()) << chat["messages"];
      EXPECT_EQ(ids_of(how.parts(messages, true)), chat["answer"].get<std::vector<std::int32_t>>()) << chat["messages"];
    }
  }
}

TEST_F(ChatFormatTest, AnAnswerIsLearnedWithWhatEndsIt) {
  use("byte_level.json", marks_of("chatml"));
  constexpr const char* chat = R"([{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."},
                                   {"role": "user", "content": "Oh"}, {"role": "assistant", "content": "\nYes"}])";
  EXPECT_EQ(learned_text(format(chatml), chat), "So.<|im_end|>\nYes<|im_end|>");
  EXPECT_EQ(learned_text(format(llama2), chat), " So. </s> Yes </s>");
  EXPECT_EQ(format(chatml).end_of_answer(), tokenizer->find_special("<|im_end|>"));
  EXPECT_EQ(format(llama2).end_of_answer(), tokenizer->find_special("</s>"));
  const ChatFormat plain(*tokenizer, {}, ChatChoice::plain);
  EXPECT_EQ(learned_text(plain, chat), " So.\n \nYes\n");
}

TEST_F(ChatFormatTest, WhatATemplateDoesNotWriteIsRefused) {
  use("byte_level.json", marks_of("chatml"));
  const auto refused = [&](const ChatFormat& how, const char* messages) -> std::string {
    try {
      how.parts(conversation(messages));
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  constexpr const char* hello = R"([{"role": "user", "content": "Hello"}])";
  EXPECT_TRUE(holds(refused(format("00"), hello), "t: the chat template (hash 00) is none that is known here; --chat"));
  EXPECT_TRUE(holds(refused(format(llama2, ""), hello), "begins with the token bos_token"));
  EXPECT_TRUE(holds(refused(format(llama2, "<s>", "</t>"), hello), "ends an answer with \"</t>\""));
  EXPECT_TRUE(holds(refused(format(llama2), R"([{"role": "assistant", "content": "Hello"}])"), "must take turns"));
  EXPECT_TRUE(holds(refused(format(chatml), R"([{"role": "assistant", "content": "a", "reasoning_content": "b"}])"),
                    "does not write \"reasoning_content\""));
  use("byte_level.json", {});
  EXPECT_TRUE(holds(refused({*tokenizer, {}, ChatChoice::chatml}, hello), "has no <|im_start|> and <|im_end|>"));
  EXPECT_EQ(refused({*tokenizer, {}, ChatChoice::of_template}, hello), "");
}

TEST_F(ChatFormatTest, ConversationsComeInManyForms) {
  const auto roles = [](const json& line) {
    std::string text;
    for (const Message& message : read_conversation(line, {"assistant"}).value_or(Conversation{})) {
      text += message.role + (message.learned ? "*" : "") + "=" + message.content + ";";
    }
    return text;
  };
  EXPECT_EQ(roles(json::parse(R"({"conversations": [{"from": "system", "value": "a"}, {"from": "human", "value": "b"},
                                                    {"from": "gpt", "value": "c"}], "id": 7})")),
            "system=a;user=b;assistant*=c;");
  EXPECT_EQ(roles(json::parse(R"({"conversations": [{"from": "human", "value": "b"}], "system": "s"})")),
            "system=s;user=b;");
  EXPECT_EQ(roles(json::parse(R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
                                  "completion": [{"role": "assistant", "content": "c"}]})")),
            "user=a;assistant=b;assistant*=c;");
  EXPECT_EQ(roles(json::parse(R"({"prompt": "a", "completion": "b"})")), "");
  EXPECT_EQ(roles(json::parse(R"({"text": "a"})")), "");
  EXPECT_EQ(parse_conversation(R"([{"role": "user", "content": "a"}])").size(), 1U);
  const auto refused = [](const char* line, const char* part) {
    EXPECT_TRUE(holds(refusal_of(json::parse(line)), part)) << line;
  };
  refused(R"({"messages": [{"role": "asistant", "content": "a"}]})", "the role \"asistant\" is none of");
  refused(R"({"messages": [{"role": "tool", "content": "a"}]})", "the role \"tool\" is none of");
  refused(R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}]})", "calls of tools");
  refused(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})", "\"tools\": calls of tools");
  refused(R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "\"content\" of a message is no text");
  refused(R"({"messages": [{"role": "user", "content": "a"}], "conversations": []})", "both \"messages\" and");
  refused(R"({"messages": []})", "\"messages\" is no list of messages");
  refused(R"({"completion": [{"role": "user", "content": "a"}]})", "\"completion\" without \"prompt\"");
}

TEST_F(ChatFormatTest, TheTemplateIsFoundBesideTheTokenizer) {
  const std::string one = "{% one %}", other = "{% other %}";
  std::filesystem::create_directory(at("folder"));
  text("folder/tokenizer_config.json",
       json{{"bos_token", {{"content", "<s>"}}}, {"eos_token", "</s>"}, {"chat_template", one}}.dump());
  ChatTemplate found = read_chat_template(at("folder"));
  EXPECT_EQ(found.hash, hash_of_template(one));
  EXPECT_EQ(found.bos + found.eos, "<s></s>");
  text("folder/tokenizer_config.json",
       json{{"chat_template", {{{"name", "tool"}, {"template", one}}, {{"name", "default"}, {"template", other}}}}}
           .dump());
  EXPECT_EQ(read_chat_template(at("folder")).hash, hash_of_template(other));
  text("folder/chat_template.jinja", one + "\n");
  EXPECT_EQ(read_chat_template(at("folder")).hash, hash_of_template(one));
  EXPECT_EQ(read_chat_template("bytes").hash, "");
  text("folder/tokenizer_config.json", "{");
  expect_error(ExitCode::data, "is damaged", [&] { read_chat_template(at("folder")); });
}

}  // namespace
}  // namespace ringtrain
