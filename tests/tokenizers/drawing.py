"""Random tokenizers, patterns, and texts for fuzz_test.py: features that real tokenizers never have, but files may."""
import unicodedata

import oracle_patterns

BYTE_CHARACTERS = [chr(b) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE else None for b in range(256)]
for number, place in enumerate([b for b in range(256) if BYTE_CHARACTERS[b] is None]):
    BYTE_CHARACTERS[place] = chr(0x100 + number)
HEXADECIMAL = [f"<0x{b:02X}>" for b in range(256)]
MARK = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

SNIPPETS = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "\u0085", "\u2028", "\u180e",
            "\0", "\x1f",
            "a", "b", "ab", "aa", "aab", "ba", "A", "B", "s", "S", "'s", "'S", "'ll", "'\u017f", "x", "foo", "foo bar",
            "1", "12",
            "1234567", "\u00b2", "\u00bd", "\u2167", "\u0661", "\u24b6", "\u200d", "\u200c", "\u200b", "\ufeff", "_",
            "-", "--",
            "\u203f", "<", ">", "<x>", "<x", "x>", "<s>", "</s>", "<unk>", "<0x41>", "<0x0A>", MARK, MARK * 2,
            MARK + "a",
            "e\u0301", "\u0301", "\u00e9", "\u00df", "\u212a", "\u1100\u1161", "\uac00", "\u0915\u094d\u0937", "\u4e2d",
            "\u6587\u5b57", "\u3042", "\U0001f600", "\U0001f468\u200d\U0001f469", "\U0001f1e9\U0001f1ea", "\U00020000",
            "\ufffd",
            "\u0130", "\ufb01", ".", ",", "!", "?", "(", ")", "[", "]", "/", "\\", "#", "&", "$", "^", "|", "{", "}",
            "~", "`", '"']


def character(draw):
    while True:
        code = draw.randrange(draw.choice([0x80, 0x800, 0x3000, 0x10000, 0x20000]))
        # Programs differ in what later versions of Unicode assigned; the tables of NFC are the oldest.
        if 0xD800 <= code <= 0xDFFF or unicodedata.category(chr(code)) in ("Cn", "Co"):
            continue
        if unicodedata.category(chr(code))[0] != "M" or unicodedata.ucd_3_2_0.category(chr(code)) != "Cn":
            return chr(code)


def text(draw, known):
    parts = []
    for _ in range(draw.randrange(1, 12)):
        kind = draw.random()
        if known and kind < 0.35:
            parts.append(draw.choice(known))
        elif kind < 0.45:
            parts.append(draw.choice([" ", "\n", MARK, "a", "\t", "1", "\u0301"]) * draw.randrange(1, 9))
        elif kind < 0.52:
            parts.append(character(draw))
        else:
            parts.append(draw.choice(SNIPPETS))
    return "".join(parts)[:80]


def pattern(draw, depth=0):
    """Returns a random regular expression; many contain constructs that engines interpret differently."""
    def class_item():
        return draw.choice([r"\s", r"\S", r"\d", r"\p{L}", r"\p{N}", r"\P{L}", r"\p{M}", r"\r\n", "a-z", "A-Z", "0-9",
                            "a", "s", "-x",
                            "\u4e00-\u9fa5", r"\-", "^", "'", "|", r"\]", "&", r"\p{Lu}", r"\w", "[x]", "&&", "x-",
                            r"\u3040-\u309f",
                            r"\x{e9}", " ", "#", ".", "$"] if draw.random() < 0.3 else
                           [r"\s", r"\S", r"\d", r"\p{L}", r"\p{N}", r"\r\n", "a-z", "0-9", "ab", "'", "\u4e2d"])

    def atom():
        kind = draw.random()
        if kind < 0.22:
            return draw.choice([r"\s", r"\S", r"\d", r"\D", r"\p{L}", r"\p{N}", r"\P{N}", r"\p{Lu}", r"\p{Ll}",
                                r"\p{M}", r"\p{P}",
                                r"\p{Han}", r"\p{Latin}", r"\p{S}", r"\p{Z}", r"\r", r"\n", r"\t", "."])
        if kind < 0.26:
            return draw.choice([r"\w", r"\W", r"\b", r"\B", r"\h", r"\v", r"\R", r"\X", r"\z", r"\Z", r"\A", r"\G",
                                "^", "$", r"\N",
                                r"\K", r"\p{Alpha}", r"\p{^L}", r"\pL", r"\x41", r"\xe9", r"\x{e9}", r"\u00e9", r"\1",
                                r"\Q", r"\<",
                                r"\`", r"\'", r"\ ", r"\_", r"\p{Greek}", r"\f", r"\a", r"\e", r"\0", "{", "}", "]",
                                "(?i)", "(?m)"])
        if kind < 0.5:
            return draw.choice(["a", "b", "ab", " ", "  ", "'", "1", "12", "\n", "-", "_", "\u00e9", "\u4e2d", "x",
                                "s", "\\.", "\\(",
                                "\u00df", MARK, "\u0301"])
        if kind < 0.68:
            return "[" + draw.choice(["", "^"]) + "".join(class_item() for _ in range(draw.randrange(1, 4))) + "]"
        if kind < 0.72:
            return draw.choice(["(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?i:[sdmt]|ll|ve|re)", "(?i:ab)", "(?i:ss)",
                                "(?i:\u00e9)", "(?i:k|s)",
                                "(?i:[a-k])", "(?i:a.b)", "(?i:fi)", "(?i:[s]t)"])
        if depth > 1:
            return "a"
        start = draw.choice(["(?:", "(?:", "(", "(?>", "(?=", "(?!", "(?<=", "(?<!", "(?=", "(?!"])
        return start + pattern(draw, depth + 1) + ")"

    def quantified():
        one = atom()
        if draw.random() < 0.45:
            one += draw.choice(["?", "*", "+", "+", "{1,3}", "{2}", "{2,}"])
            if draw.random() < 0.25:
                one += draw.choice(["?", "+", "*", "{2}"] if draw.random() < 0.3 else ["?", "+"])
        return one

    if depth == 0 and draw.random() < 0.2:
        return draw.choice([r"(?=(\d{3})+(?!\d))", r"(?<=\d)(?=(?:\d{3})+\b)", r"(?=(?:\p{N}{3})+(?!\p{N}))",
                            r"\p{N}{1,3}", r"\b", r"(?=[A-Z])",
                            r"(?<!\d)(?=\d)|(?<=\d)(?!\d)", r"\s*", r"x*", r"\p{L}*", "", r"(?<=[a-z])(?=[A-Z])",
                            r"\s?\p{L}+", r"[\r\n]",
                            r"\s+$", r"\s++$|\s+", "[\u4e00-\u9fa5\u3040-\u309f]+", r" ?[^(\s|[.,!?])]+",
                            oracle_patterns.OTHER,
                            oracle_patterns.LLAMA3.replace("{1,3}", "{1,2}"), "(?:" + oracle_patterns.GPT2 + ")"])
    alternatives = ["".join(quantified() for _ in range(draw.randrange(1, 4))) for _ in range(draw.choice([1, 1, 1, 2,
                                                                                                           3]))]
    return "|".join(alternatives)


def merges(draw, sequences, count, token_of):
    """Returns random merges of adjacent symbols in sequences."""
    made, symbols = [], [list(one) for one in sequences if len(one) > 1]
    for _ in range(count):
        symbols = [one for one in symbols if len(one) > 1]
        if not symbols:
            break
        one = draw.choice(symbols)
        place = draw.randrange(len(one) - 1)
        left, right = one[place], one[place + 1]
        made.append([left, right])
        token_of(left + right)
        for sequence in symbols:
            i = 0
            while i + 1 < len(sequence):
                if sequence[i] == left and sequence[i + 1] == right:
                    sequence[i:i + 2] = [left + right]
                i += 1
    if made and draw.random() < 0.2:
        draw.shuffle(made)
    if made and draw.random() < 0.1:
        made.append(draw.choice(made))
    return made


def added_tokens(draw, vocabulary):
    added, used, top = [], set(), len(vocabulary)
    for _ in range(draw.choice([0, 1, 2, 3, 5])):
        content = draw.choice(SNIPPETS) + (draw.choice(SNIPPETS) if draw.random() < 0.4 else "")
        if draw.random() < 0.1:
            content = draw.choice(list(vocabulary))
        if content in used:
            continue
        used.add(content)
        number = vocabulary.get(content, top)
        if draw.random() < 0.03:
            number += 1
        top = max(top, number + 1)
        special = draw.random() < 0.3
        added.append({"id": number, "content": content, "single_word": draw.random() < 0.25,
                      "lstrip": draw.random() < 0.3,
                      "rstrip": draw.random() < 0.3, "normalized": draw.random() < 0.5, "special": special})
    return added


def flag(draw, share):
    return draw.random() < share


def byte_level(draw):
    characters = [c for c in BYTE_CHARACTERS if draw.random() > 0.002]
    tokens = dict.fromkeys(characters if flag(draw, 0.3) else BYTE_CHARACTERS)
    if flag(draw, 0.2):
        tokens.update(dict.fromkeys(["<unk>", "<0xC4>", "<0xA0>", "\u4e2d", " ", "a b"]))

    def to_characters(value):
        return [BYTE_CHARACTERS[b] for b in value.encode("utf-8")]

    sequences = [to_characters(text(draw, [])) for _ in range(6)]
    sequences = [one for one in sequences if all(c in tokens for c in one)]
    rules = merges(draw, sequences, draw.randrange(40), lambda token: tokens.setdefault(token))
    vocabulary = {token: number for number, token in enumerate(tokens)}

    def byte_level_pre():
        return {"type": "ByteLevel", "add_prefix_space": flag(draw, 0.2), "trim_offsets": True, "use_regex": flag(draw,
                                                                                                                  0.4)}

    def split():
        if flag(draw, 0.1):
            return draw.choice([{"type": "Punctuation", "behavior": "Isolated"}, {"type": "Whitespace"},
                                {"type": "WhitespaceSplit"}])
        if flag(draw, 0.15):
            return {"type": "Digits", "individual_digits": flag(draw, 0.5)}
        usual = flag(draw, 0.8)
        behavior = "Isolated" if usual else draw.choice(["Removed", "MergedWithPrevious", "MergedWithNext",
                                                         "Contiguous", "Isolated"])
        form = {"String": draw.choice(SNIPPETS)} if flag(draw, 0.1) else {"Regex": pattern(draw)}
        return {"type": "Split", "pattern": form, "behavior": behavior, "invert": not usual and flag(draw, 0.5)}

    parts = [split() for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))] + [byte_level_pre()]
    normalizer = draw.choice([None, None, None, {"type": "NFC"}, {"type": "NFC"},
                              {"type": "Sequence", "normalizers": [{"type": "NFC"}]}, other_normalizer(draw)])
    model = {"unk_token": "<unk>" if "<unk>" in tokens and flag(draw, 0.5) else None, "fuse_unk": flag(draw, 0.3),
             "byte_fallback": flag(draw, 0.1), "ignore_merges": flag(draw, 0.3)}
    pre = parts[0] if len(parts) == 1 else {"type": "Sequence", "pretokenizers": parts}
    return tokenizer_json(draw, vocabulary, rules, model, normalizer, pre, {**parts[-1], "add_prefix_space": True})


def other_normalizer(draw):
    return draw.choice([{"type": "NFKC"}, {"type": "NFD"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True,
                                                                                   "strip_right": False},
                        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Prepend",
                                                                                             "prepend": MARK},
                        {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}])


def characters(draw):
    alphabet = dict.fromkeys([MARK, "<unk>"] if flag(draw, 0.9) else [MARK])
    if flag(draw, 0.05):
        alphabet = {"a": None, **alphabet}
    for c in "ab1s\u00e9\u4e2d \n<x>":
        if flag(draw, 0.8):
            alphabet.setdefault(c)
    share = draw.choice([0, 1, 1, 0.98])
    for name in HEXADECIMAL:
        if draw.random() < share:
            alphabet.setdefault(name)
    sequences = [list(text(draw, []).replace(" ", MARK)) for _ in range(8)]
    for sequence in sequences:
        for c in sequence:
            if flag(draw, 0.4):
                alphabet.setdefault(c)
    sequences = [[c for c in one if c in alphabet] for one in sequences]
    rules = merges(draw, sequences, draw.randrange(40), lambda token: alphabet.setdefault(token))
    vocabulary = {token: number for number, token in enumerate(alphabet)}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    prepend = {"type": "Prepend", "prepend": MARK}
    metaspace = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": draw.choice(["first", "always", "never"]),
                 "split": flag(draw, 0.5)}
    normalizer = draw.choice([{"type": "Sequence", "normalizers": [prepend, replace]}, replace, {"type": "NFC"}, None,
                              None,
                              {"type": "Sequence", "normalizers": [{"type": "NFC"}, prepend, replace]},
                              {"type": "Sequence", "normalizers": [replace, prepend]}, prepend, other_normalizer(draw),
                              {"type": "Sequence", "normalizers": [prepend, prepend, replace]}])
    pre = draw.choice([None, metaspace, metaspace, {"type": "Sequence", "pretokenizers": [metaspace]},
                       {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}]
                      if flag(draw, 0.2) else [None, metaspace])
    if pre is None and flag(draw, 0.8):
        normalizer = draw.choice([{"type": "Sequence", "normalizers": [prepend, replace]}, replace])
    model = {"unk_token": "<unk>" if "<unk>" in alphabet and flag(draw, 0.9) else draw.choice([None, "a", "zz"]),
             "fuse_unk": flag(draw, 0.5), "byte_fallback": flag(draw, 0.6), "ignore_merges": flag(draw, 0.15)}
    return tokenizer_json(draw, vocabulary, rules, model, normalizer, pre, None)


def tokenizer_json(draw, vocabulary, rules, model, normalizer, pre, decoder):
    post = None
    if flag(draw, 0.1):
        post = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(draw, vocabulary),
            "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post, "decoder": decoder,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      **model,
                      "vocab": vocabulary, "merges": [" ".join(pair) for pair in rules]
                      if flag(draw, 0.3) and not any(" " in part for pair in rules for part in pair) else rules}}


def pieces(draw, trained):
    """Returns a SentencePiece model as its pieces [[text, score, type]] and its settings: random, or a trained one with
    changes."""
    settings = {"byte_fallback": flag(draw, 0.6), "add_dummy_prefix": flag(draw, 0.7)}
    if trained and flag(draw, 0.4):
        found, byte_fallback = draw.choice(trained)
        settings["byte_fallback"] = byte_fallback
        result = [list(piece) for piece in found]
    else:
        result = [["<unk>", 0.0, UNKNOWN], ["<s>", 0.0, CONTROL], ["</s>", 0.0, CONTROL]]
        if settings["byte_fallback"]:
            result += [[name, 0.0, BYTE] for name in HEXADECIMAL]
        sequences = [list(text(draw, []).replace(" ", MARK)) for _ in range(8)]
        made = []
        merges(draw, sequences, draw.randrange(50), made.append)
        ties = draw.choice([1, 3, 1000])
        for number, one in enumerate(dict.fromkeys(made)):
            result.append([one, -float(number // ties if flag(draw, 0.9) else draw.randrange(50)), NORMAL])
        for c in dict.fromkeys(c for one in sequences for c in one):
            if flag(draw, 0.7):
                result.append([c, -1000.0 - len(result), NORMAL])
    known = {piece[0] for piece in result}
    for _ in range(draw.choice([0, 1, 2, 4, 8])):
        one = draw.choice(SNIPPETS) + (draw.choice(SNIPPETS) if flag(draw, 0.5) else "")
        one = draw.choice([one, one.replace(" ", MARK), MARK * draw.randrange(1, 6)])
        if one not in known:
            known.add(one)
            result.insert(draw.randrange(3, len(result) + 1), [one, draw.choice([0.0, -5.0]),
                                                             draw.choice([USER_DEFINED] * 5 + [CONTROL])])
    return result, settings
