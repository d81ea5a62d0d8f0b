# The meaning of a row of a data set: a text, a prompt and its completion, an instruction as in Alpaca, a conversation
# (messages, or ShareGPT's), or tokens. A row becomes a Document, whose text is not tokenized yet.
import dataclasses

from .conversations import ChatTemplate
from .rows import Refused, parsed

ALPACA = ("Below is an instruction that describes a task{}. Write a response that appropriately completes the request."
          "\n\n### Instruction:\n{}\n\n{}### Response:\n")
FORMS = {"conversation": ("messages", "conversations", "conversation"), "completion": ("completion",),
         "instruction": ("instruction",), "tokens": ("input_ids", "tokens"), "text": ("text",)}
# The columns that are read in addition to the one that determines the form, and those where a chat template renders the
# row.
READ = {"text": (), "conversation": (), "completion": ("prompt",), "instruction": ("input", "output"),
        "tokens": ("attention_mask", "weights", "loss_mask", "labels")}
TEMPLATE = ("tools", "chat_template_kwargs", "system", "system_prompt")
RENDERED = {"conversation": TEMPLATE, "completion": TEMPLATE, "instruction": (*TEMPLATE, "history")}
MEDIA = ("image", "images", "video", "videos", "audio", "audios")


# A text with its learned spans (begin, end, weight; None: all of it), or ids with a weight for each (or None).
@dataclasses.dataclass
class Document:
    text: str | None = None
    spans: list | None = None
    rendered: bool = False  # by a chat template, which writes special tokens by their names
    ids: object = None
    weights: object = None


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
            known = [form for form, keys in FORMS.items() if self.field in keys]
            value = parsed(row.get(self.field, ""))
            if self.field not in row:
                raise Refused(f'there is no column "{self.field}"; the columns are {", ".join(row)}')
            is_text = value is None or isinstance(value, str)
            by_value = "text" if is_text else "conversation" if isinstance(value[0], dict) else "tokens"
            return [*known, by_value][0], self.field
        found = [(form, key) for form, keys in FORMS.items() for key in keys if row.get(key) is not None]
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
        weights = None
        for name in ("weights", "loss_mask", "labels"):
            if row.get(name) is not None:
                weights = numpy.asarray(row[name])
                weights = (weights != -100 if name == "labels" else weights).astype("f4")
                if weights.shape != ids.shape or not (numpy.isfinite(weights) & (weights >= 0)).all():
                    raise Refused(f'"{name}" must be a list with one finite number, 0 or more, for each token')
        return Document(ids=ids, weights=weights)

    def rendered(self, messages, row):
        tools, options = parsed(row.get("tools")) or None, parsed(row.get("chat_template_kwargs"))
        for key in ("system", "system_prompt"):
            if row.get(key):
                messages = [{"role": "system", "content": row[key]}, *messages]
        text, spans = self.chats.document(messages, tools, options)
        return Document(text, spans, rendered=True)

    def conversation(self, row, key):
        messages = parsed(row[key])
        if not isinstance(messages, list):
            raise Refused(f'"{key}" is not a list of messages')
        return self.rendered(messages, row)

    def completion(self, row, key):
        prompt, completion = parsed(row.get("prompt")), parsed(row[key])
        if isinstance(prompt, list) and isinstance(completion, list):
            prompt = [{**message, "weight": 0} for message in prompt]
            return self.rendered(prompt + completion, row)
        prompt, completion = text_of(row, "prompt"), text_of(row, key)
        text = prompt + completion
        return Document(text, [(len(prompt), len(text), 1.0)])

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
