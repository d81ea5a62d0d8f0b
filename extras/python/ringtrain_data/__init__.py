"""Converts data sets to token files of ringtrain: see docs/data.md, and `python3 -m ringtrain_data --help`."""
import contextlib
import itertools
import pathlib
import tempfile

from .rows import Refused, reason

__all__ = ["Refused", "convert"]
BATCH = 64  # documents per call of the tokenizer


# Yield the documents of (place, row) pairs; place says where the row is, for messages.
def documents_of(rows, forms, encoder, skip_broken, numbers):
    for place, row in rows:
        numbers["rows"] += 1
        try:
            if isinstance(row, Exception):
                raise row
            document = encoder.checked(forms.document(row))
        except Exception as error:  # any: a row can contain any values
            if isinstance(error, (ImportError, MemoryError)) or getattr(error, "code", 3) != 3:
                raise
            if not skip_broken:
                raise Refused(f"{place}: {reason(error)}; correct it, or leave it out (--skip-broken-rows)") from error
            numbers["broken"] += 1
            continue
        if document.text == "" or (document.ids is not None and len(document.ids) == 0):
            numbers["empty"] += 1
            continue
        yield document


def convert(rows, tokenizer, output, *, placed=False, field=None, learn="answers", chat_template=None,
            template_options=None, document_start=True, document_end=None, validation_fraction=0.1, seed=1234,
            skip_broken_rows=False):
    """Write a token file of an iterable of rows: texts, lists of messages, arrays of tokens, or dicts of columns.

    tokenizer: a folder with a tokenizer.json. placed: rows are pairs of a row's location, for messages, and the row.
    learn: all "answers" of conversations, or the "last" one. document_start: whether a text begins as the tokenizer
    begins texts. Return the lines that describe the result. Raise Refused, and then leave nothing behind."""
    from . import show, tokenizer_files
    from .forms import Forms
    from .token_file import TokenFile, refuse_existing
    from .tokens import Encoder, end_token, load_tokenizer, special_id
    if not 0 <= validation_fraction <= 0.99 or seed < 0:
        raise Refused("--validation-fraction must be from 0 to 0.99, and --seed 0 or more", 2)
    refuse_existing(output)
    output, folder, tokenizer = pathlib.Path(output), tokenizer, load_tokenizer(tokenizer, chat_template)
    encoder = Encoder(tokenizer, end_token(tokenizer, document_end), document_start)
    forms = Forms(tokenizer, field, learn, template_options)
    numbers, example = {"rows": 0, "broken": 0, "empty": 0}, None
    begin, begun = [*encoder.begin, tokenizer.bos_token_id][0], 0  # begun: how many documents begin with that token
    with contextlib.ExitStack() as cleanup:
        partial = tempfile.TemporaryDirectory(prefix=f"{output.name}.partial-", dir=output.parent)
        file = TokenFile(output, encoder.vocab_size, cleanup.enter_context(partial))
        cleanup.callback(file.close)
        places = rows if placed else ((f"row {number}", row) for number, row in enumerate(rows, 1))
        documents = documents_of(places, forms, encoder, skip_broken_rows, numbers)
        while batch := list(itertools.islice(documents, BATCH)):
            for encoded in encoder.encode(batch):
                example = example or show.marked(tokenizer, *encoded[:2])
                file.add(*encoded)
                begun += int(encoded[0][0]) == begin
        end_name = tokenizer.convert_ids_to_tokens(encoder.end)
        known, why = tokenizer_files.tokenizer_hash(folder, end_name)
        members = {"tokenizer_hash": known} if known else {}
        if begun in (0, len(file.lengths)):  # otherwise it is unknown what an evaluation should put before a window
            members["document_start"] = [begin] if begun else []
        ends = dict.fromkeys([encoder.end, *(special_id(tokenizer, one) for one in sorted(forms.chats.ends_seen))])
        tokenizer_files.keep_tokenizer(folder, file.folder / "tokenizer", chat_template, list(ends))
        numbers["validation"] = file.finish(seed, validation_fraction, encoder.end, **members)
    numbers |= {"replaced": encoder.replaced, "begin": tokenizer.decode(encoder.begin),
                "tokenizer": f"{encoder.vocab_size:,} tokens, {end_name} ends a document; " +
                             (f"hash {known}" if known else f"without its hash: {why}")}
    return show.summary(output, file, forms, numbers, example)
