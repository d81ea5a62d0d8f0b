# Conversations, as the chat template of the model's own tokenizer formats them, and which characters of the text are
# learned: the assistant's answers, each with the token that ends it.
#
# If the template marks its answers with {% generation %}, these marks decide. Otherwise an answer begins where the text
# of the messages before it ends, including the beginning of an answer (add_generation_prompt): only then is the learned
# text what the model will be asked for. A conversation whose text does not begin this way is refused.
import json
import os
import re

from .rows import Refused, parsed

LOSS_KEYS = ("weight", "train", "trainable", "training", "loss", "loss_mask")
PLAIN_KEYS = {"role", "content", "tool_call_id"}
THINKING_KEYS = ("reasoning_content", "reasoning", "thinking")  # transformers gives a template the key that it reads
SHARE_GPT_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant",
                   "model": "assistant", "observation": "tool", "function_response": "tool"}
OPENING = re.compile(r"\s*(?:<[^<>]*>\s*)*")  # tags with nothing between them


# Return the text of content: a text, or a list of parts.
def content_of(content):
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Refused(f"content is not text: {part!r:.80}")
    return "".join(part["text"] for part in parts)


# Return a tool call whose arguments are an object, which templates expect, instead of an object's JSON.
def parsed_call(call):
    call = {key: parsed(value) if key == "arguments" else value for key, value in call.items()}
    return call | {"function": parsed_call(call["function"])} if isinstance(call.get("function"), dict) else call


# Remove what says whether a message is learned from it; return its weight, or None if nothing says so.
def loss_weight(message):
    weights = [float(message.pop(key)) for key in LOSS_KEYS if key in message]
    if any(not 0 <= weight < float("inf") for weight in weights):
        raise Refused(f"the weights of a message must be finite and 0 or more, but are {weights}")
    return min(weights, default=None)


# Return a message in the form that templates take, and its weight (None: its role decides).
def read_message(value):
    if not isinstance(value, dict):
        raise Refused("a message is not an object")
    message = {key: one for key, one in value.items() if one not in (None, [], "") or (key, one) == ("content", "")}
    if "from" in message:
        role, content = message.pop("from"), message.pop("value", "")
        if role == "function_call":
            message |= {"role": "assistant", "tool_calls": [{"type": "function", "function": json.loads(content)}]}
        else:
            message |= {"role": SHARE_GPT_ROLES.get(role, role), "content": content}
    if not isinstance(message.get("role"), str):
        raise Refused('a message has no "role"')
    if (weight := loss_weight(message)) and message["role"] != "assistant":
        raise Refused(f"a message of the role {message['role']} asks to be learned; only assistant answers can be")
    if "content" in message:
        message["content"] = content_of(message["content"])
    if "tool_calls" in message:
        message["tool_calls"] = [parsed_call(call) for call in parsed(message["tool_calls"])]
    elif "content" not in message:
        raise Refused(f'a message of the role {message["role"]} has no "content"')
    return message, weight


# Return the content of a message, without its thinking and without surrounding white space.
def said_by(message):
    return (message.get("content") or "").rpartition("</think>")[2].strip()


# How a tokenizer formats conversations. learn: "answers", or "last", only the last one.
class ChatTemplate:
    def __init__(self, tokenizer, learn="answers", options=None):
        self.tokenizer, self.learn, self.options = tokenizer, learn, options or {}
        self.where = f"the chat template of {os.fspath(tokenizer.name_or_path) or 'the tokenizer'}"
        special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        self.special = "|".join(re.escape(one) for one in sorted(special, key=len, reverse=True)) or "(?!)"
        self.end = re.compile(rf"(?P<end>\s*(?:{self.special})*(?P<last>{self.special}))(?:\s|{self.special})*\Z")
        self.one_end = re.compile(rf"\s*(?:{self.special})")
        self.ends_seen = set()  # the tokens that have ended answers

    # Return the template of a conversation with these tools.
    def template(self, tools):
        if not self.tokenizer.chat_template:
            raise Refused("the tokenizer has no chat template; name one with --chat-template FILE.jinja", 2)
        return self.tokenizer.get_chat_template(None, tools)

    def render(self, messages, tools, options, **how):
        self.template(tools)
        try:
            return self.tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, **{**options, **how})
        except ImportError as error:  # jinja2
            raise Refused(str(error), 2) from error
        except Exception as error:  # any error of a template, for a message that it does not expect
            raise Refused(f"{self.where} refuses this conversation: {type(error).__name__}: {error}") from error

    # Refuse keys that the template does not use.
    def check_keys(self, messages, template):
        for number, message in enumerate(messages, 1):
            ignored = PLAIN_KEYS | ({"name"} if message["role"] == "tool" else set())
            for key in message.keys() - ignored:
                names = THINKING_KEYS if key in THINKING_KEYS else (key,)
                if not any(re.search(rf"\b{re.escape(name)}\b", template) for name in names):
                    raise Refused(f'message {number} has "{key}", which {self.where} does not write; remove it')

    def check_written(self, messages, whole):
        for number, message in enumerate(messages, 1):
            if said_by(message) not in whole and message["role"] != "tool":
                raise Refused(f"{self.where} leaves out what message {number} ({message['role']}) says")

    # Return the special token that ends an answer, or None if the template writes none.
    def end_of_answers(self):
        said = [{"role": "user", "content": "Ping"}, {"role": "assistant", "content": "Pong"}]
        found = self.one_end.match(self.render(said, None, self.options).rpartition("Pong")[2])
        return found and found[0].strip()

    # Return where an answer's text ends, and where the token that ends it does: the text after it is not the model's.
    # Special tokens within the message's content end nothing.
    def answer_end(self, answer, message):
        said = "" if "tool_calls" in message else (message.get("content") or "").strip()
        said = said if said in answer else said_by(message)
        found = self.end.search(answer, answer.find(said) + len(said) if said in answer else 0)
        if not found:
            return len(answer), len(answer)
        self.ends_seen.add(found["last"])
        return found.start("end"), found.end("end")

    # Return the text of a conversation, and its learned spans: (begin, end, weight).
    def document(self, values, tools=None, options=None):
        messages, weights = zip(*map(read_message, values)) if values else ((), ())
        if not messages:
            raise Refused("the conversation has no messages")
        options = {**self.options, **(options or {})}
        template = self.template(tools)
        self.check_keys(messages, template)
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        learned = answers[-1:] if self.learn == "last" else answers
        answers = {i: 1.0 if weights[i] is None else weights[i] for i in learned}
        whole = self.render(messages, tools, options)
        self.check_written(messages, whole)
        if re.search(r"\{%-?\s*generation\s*-?%\}", template):
            return whole, self.marked_spans(messages, tools, options, answers, template, whole)
        return whole, [self.span_by_prefix(messages, tools, options, i, weight, whole)
                       for i, weight in answers.items() if weight > 0]

    def marked_spans(self, messages, tools, options, answers, template, whole):
        from transformers.utils.chat_template_utils import render_jinja_template
        values = {**self.tokenizer.special_tokens_map, **options}
        texts, marked = render_jinja_template([messages], tools, None, template, True, **values)
        assert texts == [whole]
        spans = []
        for begin, end in marked[0]:
            if spans and spans[-1][1] == begin:
                begin = spans.pop()[0]
            if begin < end:
                spans.append((begin, end))
        written = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        of = [messages[i] for i in written] if len(spans) == len(written) else [{}] * len(spans)
        spans = [(begin, begin + self.answer_end(whole[begin:end], message)[1])
                 for (begin, end), message in zip(spans, of)]
        if len(spans) == len(written):
            return [(self.answer_begin(messages[:i], tools, options, whole, span), span[1], answers[i])
                    for i, span in zip(written, spans) if answers.get(i, 0) > 0]
        if any(answers.get(i) != 1.0 for i in written):
            raise Refused(f"{self.where} marks {len(spans)} answers of {len(written)}, so it is unclear which ones "
                          "to leave out")
        return [(begin, end, 1.0) for begin, end in spans]

    # Return where a marked answer begins: a mark may include the text that prompts the model.
    def answer_begin(self, before, tools, options, whole, span):
        asked = self.render(before, tools, options, add_generation_prompt=True) if before else ""
        return len(asked) if span[0] < len(asked) < span[1] and whole.startswith(asked) else span[0]

    def span_by_prefix(self, messages, tools, options, i, weight, whole):
        def refusal(why):
            return Refused(f"message {i + 1} of {len(messages)} (assistant): {self.where} {why}")
        if i == 0:
            raise refusal("has no {% generation %}, and no message asks for this one; give it the weight 0")
        asked = self.render(messages[:i], tools, options, add_generation_prompt=True)
        answer = self.render(messages[:i + 1], tools, options)
        if not (whole.startswith(asked) and answer.startswith(asked)):
            raise refusal("writes the earlier messages differently when it prompts for this answer, so training would "
                          "not match what the model will see; --learn last learns only the last answer")
        answer = answer[len(asked):]
        text_end, end = self.answer_end(answer, messages[i])
        text, ending = answer[:text_end], answer[text_end:end]
        # The text may have the answer without empty tags at its beginning, as in Qwen 3's earlier answers, and the
        # token that ends a conversation's last answer may differ from the one that ends earlier ones.
        for skipped in range(OPENING.match(text).end() + 1):
            if whole.startswith(text[skipped:], len(asked)):
                at = len(asked) + len(text) - skipped
                if whole.startswith(ending, at):
                    return len(asked), at + len(ending), weight
                if found := self.one_end.match(whole, at):
                    return len(asked), found.end(), weight
        raise refusal("leaves out a part of this answer (thinking, perhaps) once other messages follow; --learn last "
                      "learns only the last answer")
