# Documents as tokens: ids and the weight of each. The tokenizer's post-processor determines what is added around a
# text, in addition to the token that ends a document. A token that contains any learned text is learned.
import pathlib

import numpy
import tokenizers

from .rows import Refused

KNOWN_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>")


# Return the id of a special token, or None if there is none with this name.
def special_id(tokenizer, content):
    return next((id for id, token in tokenizer.added_tokens_decoder.items() if token.content == content), None)


# Return the tokens that the tokenizer adds before and after a text.
def added_tokens(tokenizer):
    whole = tokenizer.backend_tokenizer.encode("a", add_special_tokens=True)
    inner = [i for i, special in enumerate(whole.special_tokens_mask) if not special]
    return whole.ids[:inner[0]], whole.ids[inner[-1] + 1:]


# Return the token that ends a document: the named one; else the one that the tokenizer appends to a text, the first
# that is known by name, or eos_token.
def end_token(tokenizer, named=None):
    names = (named,) if named else (*KNOWN_ENDS, tokenizer.eos_token)
    found = [] if named else added_tokens(tokenizer)[1][-1:]
    found += [special_id(tokenizer, name) for name in names if special_id(tokenizer, name) is not None]
    if not found:
        raise Refused(f"the tokenizer has no token {named or 'known'} to end documents; give one as --document-end", 2)
    return found[0]


def load_tokenizer(path, chat_template=None, option="--tokenizer"):
    import transformers
    try:
        if not pathlib.Path(path).is_dir():
            raise ValueError("no such folder")
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        if not isinstance(getattr(tokenizer, "backend_tokenizer", None), tokenizers.Tokenizer):
            raise ValueError("it has no tokenizer.json, which ringtrain needs")
        if chat_template:
            tokenizer.chat_template = pathlib.Path(chat_template).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise Refused(f"{option} {path}: {error}", 2) from error
    return tokenizer


class Encoder:
    def __init__(self, tokenizer, end_of_document, begins=True):
        self.end = end_of_document
        # Without the tokens around texts, and so with offsets of every character.
        self.coder = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self.coder.no_padding()
        self.coder.no_truncation()
        self.coder.post_processor = tokenizers.processors.Sequence([])
        self.vocab_size = 1 + max(tokenizer.get_vocab().values())
        before, after = added_tokens(tokenizer)  # the last one of which ends the document
        self.begin, self.after, self.replaced = before if begins else [], after[:-1], 0

    # Return a document without halves of surrogate pairs, which JSON may contain and UTF-8 cannot. Refuse one that
    # cannot become tokens.
    def checked(self, document):
        ids, text = document.ids, document.text
        if text is not None:
            document.text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if document.spans is not None and len(document.text) != len(text):
                raise Refused("a text with learned parts holds half a surrogate pair")
            self.replaced += document.text != text
        elif len(ids) and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise Refused(f"ids are {ids.min()} to {ids.max()}, but the tokenizer's are 0 to {self.vocab_size - 1}")
        return document

    # Return (ids, weights, bytes of text or None) of each document.
    def encode(self, documents):
        encodings = {}
        for rendered in (False, True):
            self.coder.encode_special_tokens = not rendered  # within a plain text, their names are letters
            places = [i for i, one in enumerate(documents) if one.text is not None and one.rendered == rendered]
            found = self.coder.encode_batch([documents[i].text for i in places], add_special_tokens=False)
            encodings.update(zip(places, found))
        return [self.finished(one, encodings.get(i)) for i, one in enumerate(documents)]

    def finished(self, document, encoding):
        ids, weights, text = document.ids, document.weights, document.text
        if encoding is not None:
            ids, weights = encoding.ids, self.weights(encoding.offsets, document.spans)
            if not document.rendered:
                ids, before = [*self.begin, *ids, *self.after], document.spans is None
                weights = numpy.pad(weights, (len(self.begin), len(self.after)), constant_values=(before, 1))
        if len(ids) and ids[-1] == self.end:  # it ends the document, with any weight
            ids, weights = ids[:-1], weights[:-1]
        weights = numpy.append(weights, 1).astype("<f4")
        return numpy.append(ids, self.end).astype("<u4"), weights, None if text is None else len(text.encode())

    # Return the weight of each token: that of a span with which the token overlaps; without spans, 1.
    @staticmethod
    def weights(offsets, spans):
        if spans is None:
            return numpy.ones(len(offsets), "f4")
        begins, ends = numpy.array(offsets, "i8").reshape(-1, 2).T
        weights = numpy.zeros(len(offsets), "f4")
        for begin, end, weight in spans:
            weights[(begins < end) & ((ends > begin) | (begins >= begin))] = weight
        return weights
