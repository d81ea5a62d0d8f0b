# The result of a conversion, for users: numbers, and the first example with its learned parts marked.
import itertools

LONGEST = 2000  # characters of the example


# Return the text of a document, with its learned parts in double brackets.
def marked(tokenizer, ids, weights):
    parts = []
    for is_learned, run in itertools.groupby(zip(ids.tolist(), weights), key=lambda pair: bool(pair[1] > 0)):
        text = tokenizer.decode([one for one, _ in run], skip_special_tokens=False)
        parts.append(f"[[{text}]]" if is_learned else text)
    return "".join(parts)


def shortened(text):
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]}\n... {len(text) - LONGEST} characters ...\n{text[-half:]}"


# Return the lines that describe a token file.
def summary(output, file, forms, numbers, example):
    def line(name, text):
        return f"  {name:<22} {text}"
    lines = [str(output), line("rows", f"{numbers['rows']:,}; left out: {numbers['broken']:,} broken and "
                                       f"{numbers['empty']:,} empty"),
             line("documents", f"{len(file.lengths):,}, {numbers['validation']:,} for validation"),
             line("read as", ", ".join(f"{form} {count:,}" for form, count in forms.counts.items())),
             line("tokens", f"{file.total:,}; the longest document has {max(file.lengths):,}"),
             line("trained on", f"{file.learned:,} tokens, {file.learned / file.total:.1%}; the others are context"),
             line("tokenizer", numbers["tokenizer"])]
    if forms.counts.keys() - {"conversation", "tokens"}:
        lines.append(line("texts", f"begin as the tokenizer begins them: with {numbers['begin'] or 'no token'}"))
    if numbers["replaced"]:
        lines.append(line("replaced", f"unpaired surrogates, with U+FFFD; texts that had them: {numbers['replaced']:,}"))
    if forms.unread:
        lines.append(line("columns not read", ", ".join(sorted(map(str, forms.unread)))))
    return "\n".join([*lines, line("first example", "what is trained on is in [[ ]]"), shortened(example)])
