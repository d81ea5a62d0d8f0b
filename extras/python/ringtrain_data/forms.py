# The meaning of a row of a data set: a text, a prompt and its completion, an instruction as in Alpaca, a conversation
# (messages, or ShareGPT's), or tokens. A row becomes a Document, whose text is not tokenized yet.
import dataclasses

from .conversations import ChatTemplate
from .rows import Refused, parsed

ALPACA = ("Below is an instruction that describes a task{}. Write a response that appropriately completes the request."
          "\n\n### Instruction:\n{}\n\n{}### Response:\n")
FORMS = {"completion": ("completion",), "instruction": ("instruction",), "tokens": ("input_ids", "tokens"),
         "conversation": ("messages", "conversations", "conversation"), "text": ("text",)}
# The columns that are read in addition to the one that determines the form, and those where a chat template renders the
# row.
READ = {"text": (), "conversation": (), "completion": ("prompt",), "instruction": ("input", "output"),
        "tokens": ("attention_mask", "weights", "loss_mask", "labels")}
TEMPLATE = ("tools", "chat_template_kwargs", "system", "system_prompt")
RENDERED = {"conversation": TEMPLATE, "completion": TEMPLATE, "instruction": (*TEMPLATE, "history")}
MEDIA = ("image", "images", "video", "videos", "audio", "audios")


# A text with its learned spans (begin, end, weight; None: all of it), or ids with a weight for each.
@dataclasses.dataclass
class Document:
    text: str | None = None
    spans: list | None = None
    rendered: bool = False  # by a chat template, which writes special tokens by their names
    ids: object = None
    weights: object = None


# Return the messages that a column holds as a list or as its JSON, or None. The texts of a data set may be other JSON.
def messages_of(value):
    found = parsed(value)
    is_list = isinstance(found, list) and all(isinstance(one, dict) for one in found)
    keys = found[0].keys() if is_list and found else set()
    is_chat = keys >= {"role", "content"} or keys >= {"role", "tool_calls"} or keys >= {"from", "value"}
    return found if is_list and (is_chat or found is value) else None


def text_of(row, key):
    value = row.get(key)
    if not isinstance(value, str | None):
        raise Refused(f'the column "{key}" is not text')
    return value or ""


# Reads rows. field: the column that counts; a row may have others.
class Forms:
    def __init__(self, tokenizer, field=None, learn="answers", template_options=None):
        self.field, self.chats = field, ChatTemplate(tokenizer, learn, template_options)
        self.counts, self.unread = {}, set()

    # Return a row's form, and the column that determines it.
    def form_of(self, row):
        if self.field is not None:
            if self.field not in row:
                raise Refused(f'there is no column "{self.field}"; the columns are {", ".join(map(str, row))}')
            known, value = [form for form, keys in FORMS.items() if self.field in keys], row[self.field]
            by_value = "text" if isinstance(value, str | None) else "tokens"
            return [*known, "conversation" if messages_of(value) else by_value][0], self.field
        found = [(form, key) for form, keys in FORMS.items() for key in keys if row.get(key) is not None]
        # A null of the first two forms would become an empty answer. The readers of the others refuse it or count it.
        found = found or [(form, key) for form, keys in [*FORMS.items()][2:] for key in keys if key in row][-1:]
        if not found:
            raise Refused(f"has none of the columns {', '.join(key for keys in FORMS.values() for key in keys)}, only "
                          f"{', '.join(map(str, row))}; name the one to read with --field, or rename columns")
        if len({form for form, _ in found}) > 1:
            raise Refused(f"both {' and '.join(key for _, key in found)} are there; name the one to read with --field")
        return found[0]

    # Return the document of a row: a dict of columns, a text, a conversation, or an array of tokens.
    def document(self, row):
        if isinstance(row, str):
            row = {"text": row}
        elif isinstance(row, list) and row and isinstance(row[0], dict):
            row = {"messages": row}
        elif not isinstance(row, dict):
            if not hasattr(row, "__len__"):
                raise Refused(f"a row has the type {type(row).__name__}, not a dict")
            row = {"input_ids": row}
        for key in MEDIA:
            if row.get(key) is not None and row.get(key) != []:
                raise Refused(f'the column "{key}" is not text, and only text is read')
        form, key = self.form_of(row)
        document = getattr(self, form)(row, key)
        self.counts[form] = self.counts.get(form, 0) + 1
        self.unread |= row.keys() - {key, *READ[form], *(RENDERED[form] if document.rendered else ())}
        return document

    def text(self, row, key):
        return Document(text_of(row, key))

    def tokens(self, row, key):
        import numpy
        ids = numpy.asarray(row[key])
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise Refused(f'the column "{key}" is not a list of tokens')
        weights, kept = numpy.ones((2, len(ids)), "f4")
        for name in READ["tokens"]:
            if row.get(name) is not None:
                values = numpy.asarray(row[name])
                values = (values != -100 if name == "labels" else values).astype("f4")
                if values.shape != ids.shape or not (numpy.isfinite(values) & (values >= 0)).all():
                    raise Refused(f'"{name}" must be a list with one finite number, 0 or more, for each token')
                weights, kept = (weights, values) if name == "attention_mask" else (values, kept)
        return Document(ids=ids[kept > 0], weights=weights[kept > 0])

    def rendered(self, messages, row):
        tools, options = parsed(row.get("tools")) or None, parsed(row.get("chat_template_kwargs"))
        for key in ("system", "system_prompt"):
            if row.get(key):
                messages = [{"role": "system", "content": row[key]}, *messages]
        return Document(*self.chats.document(messages, tools, options), rendered=True)

    def conversation(self, row, key):
        messages = parsed(row[key])
        if not isinstance(messages, list):
            raise Refused(f'"{key}" is not a list of messages')
        return self.rendered(messages, row)

    def completion(self, row, key):
        prompt, completion = messages_of(row.get("prompt")), messages_of(row[key])
        if prompt is not None and completion is not None:
            return self.rendered([*({**message, "weight": 0} for message in prompt), *completion], row)
        prompt, completion = text_of(row, "prompt"), text_of(row, key)
        text = prompt + completion if completion else ""  # an empty answer would teach to end at once
        return Document(text, [(len(prompt), len(text), 1.0)] if text else None)

    # A turn for the chat template; without a template, the text on which Alpaca's authors trained.
    def instruction(self, row, key):
        asked, given, answer = (text_of(row, name) for name in (key, "input", "output"))
        if not self.chats.tokenizer.chat_template:
            prompt = ALPACA.format(", paired with an input that provides further context" if given else "", asked,
                                   f"### Input:\n{given}\n\n" if given else "")
            return Document(prompt + answer, [(len(prompt), len(prompt + answer), 1.0)])
        turns = [*(parsed(row.get("history")) or []), (f"{asked}\n{given}" if given else asked, answer)]
        messages = [{"role": role, "content": text} for turn in turns
                    for role, text in zip(("user", "assistant"), turn, strict=True)]
        return self.rendered(messages, row)
