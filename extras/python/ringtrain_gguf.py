"""Converts a GGUF file to a Hugging Face folder: config.json, safetensors, tokenizer, and chat template."""
# The package gguf reads the file and decodes its blocks. Weights are written a slice at a time. Features of the file
# that the folder cannot express are refused by name.
import argparse
import itertools
import json
import math
import os
import signal
import sys
import tempfile

try:
    import gguf
    import numpy as np
except ImportError as error:
    print(f"ringtrain_gguf: needs the package {error.name}, which is not installed: pip install gguf", file=sys.stderr)
    sys.exit(2)

USAGE, DAMAGED, NUMERIC, STOPPED = 2, 4, 5, 130
STORED = {"float32": gguf.GGMLQuantizationType.F32, "bfloat16": gguf.GGMLQuantizationType.BF16,
          "float16": gguf.GGMLQuantizationType.F16}
SLICE = 1 << 22  # elements that are decoded at a time
SILENT_KEYS = {"llama.rope.scaling.finetuned", "llama.tensor_data_layout", "llama.vocab_size"}  # they change nothing
# The tensors of a model and of a layer: their names in the file, and their shapes. V: vocabulary, C: width,
# F: width of the feedforward, Q: all query heads, K: all heads of keys.
TENSORS = {"model.embed_tokens": ("token_embd", "VC"), "model.norm": ("output_norm", "C"), "lm_head": ("output", "VC")}
LAYER = {"input_layernorm": ("attn_norm", "C"), "self_attn.q_proj": ("attn_q", "QC"),
         "self_attn.k_proj": ("attn_k", "KC"), "self_attn.v_proj": ("attn_v", "KC"),
         "self_attn.o_proj": ("attn_output", "CQ"), "post_attention_layernorm": ("ffn_norm", "C"),
         "mlp.gate_proj": ("ffn_gate", "FC"), "mlp.up_proj": ("ffn_up", "FC"), "mlp.down_proj": ("ffn_down", "CF")}

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of tokens
LONGEST_PIECE = 1024  # SentencePiece itself makes none of more than 16 characters
MARK = "\u2581"  # SentencePiece's spelling of a space
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ENDINGS, LEAD, SPACES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?", r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LLAMA3 = ENDINGS + "|" + LEAD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
O200K = (f"{LEAD}{UPPER}*{LOWER}+{ENDINGS}?|{LEAD}{UPPER}+{LOWER}*{ENDINGS}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES)
TEKKEN = O200K.replace(ENDINGS + "?", "").replace("{1,3}", "")
# Names in tokenizer.ggml.pre: the pattern, and other differences: each digit becomes a piece before the pattern is
# applied, NFC comes first, or a piece that is a token is not merged.
SPLITTINGS = {"gpt-2": (GPT2, ""), "smollm": (GPT2, "digits"), "starcoder": (GPT2, "digits"),
              "refact": (GPT2, "digits"), "command-r": (GPT2, "digits"), "llama-bpe": (LLAMA3, "whole"),
              "llama3": (LLAMA3, "whole"), "qwen2": (LLAMA3.replace("{1,3}", ""), "nfc"), "tekken": (TEKKEN, "whole"),
              "gpt-4o": (O200K, "whole"), "llama4": (O200K, "whole")}


class Refusal(Exception):
    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def say(sentence):
    print("ringtrain_gguf:", "".join(c if c.isprintable() else "?" for c in sentence), file=sys.stderr)


class GgufFile:
    def __init__(self, path):
        self.path, self.changed, self.read = path, os.stat(path).st_mtime_ns, set()
        reader = gguf.GGUFReader(path)
        if reader.byte_order != "I":
            self.refuse("is big-endian; only little-endian files are read")
        self.fields, self.tensors = reader.fields, {tensor.name: tensor for tensor in reader.tensors}

    def refuse(self, what):
        raise Refusal(DAMAGED, f"{self.path}: {what}")

    # Returns a key's value. kind: int, float, bool or str, or [kind] for a list.
    def get(self, key, kind, *default):
        self.read.add(key)
        if key not in self.fields:
            return default[0] if default else self.refuse(f"has no key {key}")
        value, listed = self.fields[key].contents(), isinstance(kind, list)
        element = kind[0] if listed else kind
        if isinstance(value, list) != listed or any(type(one) is not element for one in (value if listed else [value])):
            self.refuse(f"key {key} is not {'a list of ' if listed else ''}{element.__name__}")
        return value

    # Returns a number of the model's keys.
    def size(self, key, *default):
        value = self.get("llama." + key, int, *default)
        return value if value > 0 else self.refuse(f"key llama.{key} is {value}: must be above 0")

    def tensor(self, name):
        return self.tensors.get(name) or self.refuse(f"has no tensor {name}, which this model needs")

    # Returns rows of a tensor as float32.
    def decoded(self, name, rows):
        data = self.tensors[name].data
        data = data.reshape(-1, data.shape[-1])[rows]
        plain = data.dtype.kind == "f"
        return data.astype(np.float32) if plain else gguf.quants.dequantize(data, self.tensors[name].tensor_type)


# Returns config.json without the ids of tokens.
def read_config(file, dtype):
    architecture = file.get("general.architecture", str, "")
    if architecture != "llama":
        file.refuse(f'is of architecture "{architecture}"; only llama is read; use the model\'s Hugging Face folder')
    width, heads = file.size("embedding_length"), file.size("attention.head_count")
    groups, head_dim = file.size("attention.head_count_kv", heads), file.size("attention.key_length", width // heads)
    if width % heads or heads % groups or head_dim % 2:
        file.refuse(f"width {width}, {heads} heads of {head_dim} elements, and {groups} key heads are inconsistent")
    for key in ("attention.value_length", "rope.dimension_count"):
        if file.size(key, head_dim) != head_dim:
            file.refuse(f"key llama.{key} is {file.size(key)}, but a head has {head_dim} elements")
    theta, scaling = file.get("llama.rope.freq_base", float, 10000.0), read_scaling(file)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": dtype, "torch_dtype": dtype,
              "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "hidden_act": "silu",
              "initializer_range": 0.02, "use_cache": True, "pad_token_id": None, "hidden_size": width,
              "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head_dim,
              "vocab_size": int(file.tensor("token_embd.weight").shape[-1]),
              "tie_word_embeddings": "output.weight" not in file.tensors,
              "num_hidden_layers": file.size("block_count"), "intermediate_size": file.size("feed_forward_length"),
              "max_position_embeddings": file.size("context_length"), "rope_theta": theta,
              "rms_norm_eps": file.get("llama.attention.layer_norm_rms_epsilon", float, 1e-5),
              "rope_scaling": {**scaling, "type": scaling["rope_type"]} if scaling else None,
              "rope_parameters": {**(scaling or {"rope_type": "default"}), "rope_theta": theta}}
    for key in file.fields.keys() - file.read - SILENT_KEYS:
        if key.startswith("llama."):
            file.refuse(f"has the key {key}, whose effect is not supported")
    return config


def read_scaling(file):
    kind, factor = file.get("llama.rope.scaling.type", str, "none"), file.get("llama.rope.scaling.factor", float, 1.0)
    length = file.get("llama.rope.scaling.original_context_length", int, 0)
    if kind == "none":
        return None
    if kind not in ("linear", "yarn") or not 1 <= factor <= 1e6 or length < (kind == "yarn"):
        file.refuse(f'key llama.rope.scaling.type is "{kind}", with factor {factor}, original_context_length {length}; '
                    "only none, linear and yarn are read, with a factor of 1 to 1e6, and yarn with a length above 0")
    yarn = {"beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": length}
    return {"rope_type": kind, "factor": factor, **(yarn if kind == "yarn" else {})}


# Returns the token that begins a text, if any, and those that end it. Reports and skips ids that are not tokens.
def read_ends(file, size):
    found = {}
    for role in ("bos", "eos", "eot", "eom"):  # of a text, of a turn, of a message: all these end a text
        key = f"tokenizer.ggml.{role}_token_id"
        token = file.get(key, int, None)
        if token is not None and 0 <= token < size:
            found[role] = token
        elif token is not None:
            say(f"{file.path}: {key}: {token} is not a token, as ids go from 0 to {size - 1}, so it is not written")
    return found.pop("bos", None), list(dict.fromkeys(found.values()))


# Returns by the folder's names, sorted: a tensor's name in the file, its shape, and the order of its rows.
def place_tensors(file, config):
    head, found = config["head_dim"], {}
    sizes = {"V": config["vocab_size"], "C": config["hidden_size"], "F": config["intermediate_size"],
             "Q": config["num_attention_heads"] * head, "K": config["num_key_value_heads"] * head}
    layers = ((f"model.layers.{number}.{ours}", (f"blk.{number}.{theirs}", shape))
              for number in range(config["num_hidden_layers"]) for ours, (theirs, shape) in LAYER.items())
    others = list(TENSORS.items())[:2 if config["tie_word_embeddings"] else 3]  # the last one is the head
    for ours, (theirs, letters) in itertools.chain(others, layers):
        tensor, shape = file.tensor(theirs + ".weight"), [sizes[letter] for letter in letters]
        if tensor.shape.tolist()[::-1] != shape:
            file.refuse(f"{tensor.name} is {tensor.shape.tolist()[::-1]}, but this model's is {shape}")
        file.decoded(tensor.name, slice(0, 1))  # refuse an unsupported type before anything is written
        rows = np.arange(shape[0] if len(shape) > 1 else 1)
        if "q_proj" in ours or "k_proj" in ours:  # llama.cpp has rows that rotate together next to each other
            rows = rows.reshape(-1, head // 2, 2).swapaxes(1, 2).ravel()
        found[ours + ".weight"] = tensor.name, shape, rows
    for name in file.tensors.keys() - {name for name, _, _ in found.values()}:
        file.refuse(f"has {name}, which a model with these keys does not have; use the model's Hugging Face folder")
    return dict(sorted(found.items()))


# Returns float32 values in the folder's dtype, rounded to nearest, ties to even.
def stored(values, dtype, name):
    result = gguf.quants.quantize(values, STORED[dtype])
    for value in values[~np.isfinite(gguf.quants.dequantize(result, STORED[dtype]))][:1]:
        raise Refusal(NUMERIC if math.isfinite(value) else DAMAGED, f"{name} holds {value}, which {dtype} cannot "
                      "represent; choose another --dtype, or another file")
    return result.tobytes()


# Writes safetensors. Returns the number of parameters.
def write_weights(file, tensors, dtype, path):
    size = 4 if dtype == "float32" else 2
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for ours, (_, shape, _) in tensors.items():
        begin, end = end, end + size * math.prod(shape)
        header[ours] = {"dtype": STORED[dtype].name, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as output:
        output.write(len(text).to_bytes(8, "little") + text)
        for ours, (theirs, shape, rows) in tensors.items():
            for part in np.array_split(rows, math.ceil(math.prod(shape) / SLICE)):
                output.write(stored(file.decoded(theirs, part), dtype, ours))
        output.flush()
        os.fsync(output.fileno())
    if os.stat(file.path).st_mtime_ns != file.changed:
        file.refuse("was changed while it was being read")
    return end // size


# Returns the parts of a tokenizer.json of BPE by merges other than the vocabulary: those in its model, and others.
def byte_level(file, vocabulary):
    pre, merges = file.get("tokenizer.ggml.pre", str, ""), file.get("tokenizer.ggml.merges", [str])
    if pre not in SPLITTINGS:
        file.refuse(f'key tokenizer.ggml.pre is "{pre}", which is not known here; use the model\'s tokenizer.json')
    pattern, more = SPLITTINGS[pre]
    for number, rule in enumerate(merges):
        pair = rule.split(" ")
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys():
            file.refuse(f"merge {number} is '{rule}', not two tokens that join into a token")
    parts = [{"type": "Digits", "individual_digits": True}] if more == "digits" else []
    if pattern != GPT2:  # the pattern of ByteLevel
        parts.append({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False})
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pattern == GPT2}
    return {"merges": merges, "ignore_merges": more == "whole"}, {
        "normalizer": {"type": "NFC"} if more == "nfc" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*parts, level]},
        "decoder": {**level, "add_prefix_space": True, "use_regex": True}}


# Returns the merges that give SentencePiece's ids. scores: those of the normal pieces, by text.
#
# SentencePiece merges the two adjacent symbols that together form the piece with the highest score, the leftmost first.
# When two symbols become a piece, no merge so far has crossed their outer ends. So between these ends, merging
# proceeded as in a text that consists of only the piece: it comes to two symbols once, if at all, and no other pair
# ever becomes the piece.
#
# Pieces with equal scores are refused, except the runs of a character (spaces, most often), if they all have one score
# and nothing else has it. These are ordered by length, the longest first, and still merge as the leftmost would. In
# both cases, a run starts with the leftmost two characters of a text: they make the shortest run, so no other run can
# be extended then. Only the run that was made last can be: with the one on its left, or with a character on its right.
# The first of these two is further left, and makes the longer run.
def merges_of(file, scores):
    pairs, runs, merges = {}, {}, []
    for text in sorted((text for text in scores if len(text) > 1), key=scores.get, reverse=True):
        for end in {text[0], text[-1]} - scores.keys():  # SentencePiece merges such a character anyway
            file.refuse(f"'{end}' is in a piece but is not a piece itself")
        symbols = list(text) if scores.keys() >= set(text) else []
        while len(symbols) > 2:
            joined = [left + right for left, right in itertools.pairwise(symbols)]
            best = max(range(len(joined)), key=lambda at: scores.get(joined[at], -math.inf))
            symbols = symbols[:best] + [joined[best]] + symbols[best + 2:] if joined[best] in scores else []
        if symbols:
            pairs[text] = symbols
            runs.setdefault(frozenset(text), set()).add(scores[text])
    for _, group in itertools.groupby(pairs, key=scores.get):
        texts = sorted(group, key=len, reverse=True)
        letters = frozenset("".join(texts))
        if len(texts) > 1 and (len(letters) > 1 or len(runs[letters]) > 1):
            file.refuse(f"the pieces '{texts[0]}' and '{texts[1]}' have the same score")
        merges += [pairs[text] for text in texts]
    return merges


# Returns the parts of a tokenizer.json of BPE by scores other than the vocabulary: those in its model, and others.
def sentence_pieces(file, vocabulary, types):
    for key in ("tokenizer.ggml.remove_extra_whitespaces", "tokenizer.ggml.precompiled_charsmap"):
        if key in file.fields and file.fields[key].contents():
            file.refuse(f"key {key} changes texts in a way that is not supported")
    scores = file.get("tokenizer.ggml.scores", [float])
    for text, token in vocabulary.items():
        if not 0 < len(text) <= LONGEST_PIECE or "\0" in text or not math.isfinite(scores[token]):
            file.refuse(f"piece {token} is not a text of 1 to {LONGEST_PIECE} characters with a score")
        if types[token] in (UNUSED, USER_DEFINED) or (len(text) == 1 and types[token] != NORMAL):
            kind = {UNUSED: "unused", USER_DEFINED: "user-defined"}.get(types[token], "a character but not normal")
            file.refuse(f"piece {token}, '{text}', is {kind}, which is not supported")
    normal, unknown, known_bytes = ([text for text in vocabulary if types[vocabulary[text]] == kind]
                                    for kind in (NORMAL, UNKNOWN, BYTE))
    if {f"<0x{byte:02X}>" for byte in range(256)} != set(known_bytes) and (known_bytes or not unknown):
        file.refuse("must have all byte pieces <0x00> to <0xFF>, or no byte piece and an unknown piece")
    space, mark = file.get("tokenizer.ggml.add_space_prefix", bool, True), {"type": "Replace", "content": MARK}
    normalizers = [{"type": "Prepend", "prepend": MARK}] * space + [{**mark, "pattern": {"String": " "}}]
    decoders = [{**mark, "pattern": {"String": MARK}, "content": " "}, *[{"type": "ByteFallback"}] * bool(known_bytes),
                {"type": "Fuse"}, *[{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * space]
    return {"merges": merges_of(file, {text: scores[vocabulary[text]] for text in normal}), "fuse_unk": True,
            "byte_fallback": bool(known_bytes), "unk_token": unknown[-1] if unknown else None}, {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "decoder": {"type": "Sequence", "decoders": decoders}}


# Returns the part that adds tokens at the ends of every text, as transformers does by default.
def post_processor(file, texts):
    def end(role):
        token = file.get(f"tokenizer.ggml.{role}_token_id", int, -1)
        wanted = file.get(f"tokenizer.ggml.add_{role}_token", bool, False) and 0 <= token < len(texts)
        return [("SpecialToken", texts[token])] if wanted else []

    def around(name, number):
        parts = [*end("bos"), ("Sequence", name), *end("eos")]
        return [{kind: {"id": text, "type_id": number}} for kind, text in parts]

    special = {text: {"id": text, "ids": [texts.index(text)], "tokens": [text]} for _, text in end("bos") + end("eos")}
    return {"type": "TemplateProcessing", "single": around("A", 0), "pair": around("A", 0) + around("B", 1),
            "special_tokens": special} if special else None


# Returns the tokenizer's files by name. begin, ends: from read_ends().
def tokenizer_files(file, begin, ends):
    model = file.get("tokenizer.ggml.model", str)
    if model not in ("gpt2", "llama"):
        file.refuse(f'its tokenizer is of the kind "{model}"; only gpt2 and llama are read; add a tokenizer.json')
    texts, vocabulary, added = file.get("tokenizer.ggml.tokens", [str]), {}, []
    types = file.get("tokenizer.ggml.token_type", [int], [NORMAL] * len(texts))
    for token, (text, kind) in enumerate(zip(texts, types, strict=True)):
        if model == "gpt2" and kind == UNUSED:  # padding
            continue
        if vocabulary.setdefault(text, token) != token:
            file.refuse(f"the tokens {vocabulary[text]} and {token} are the same")
        if kind not in (NORMAL, BYTE):
            added.append({"id": token, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": kind != USER_DEFINED})
    own, parts = byte_level(file, vocabulary) if model == "gpt2" else sentence_pieces(file, vocabulary, types)
    bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
           "vocab": vocabulary, **own}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "pre_tokenizer": None,
                 "post_processor": post_processor(file, texts), **parts, "model": bpe}
    special = {token["id"]: token["content"] for token in added}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
              "bos_token": special.get(begin), "eos_token": special.get(next(iter(ends), None)),
              "unk_token": bpe["unk_token"]}
    files = {"tokenizer.json": tokenizer, "tokenizer_config.json": {k: v for k, v in config.items() if v is not None},
             "chat_template.jinja": file.get("tokenizer.chat_template", str, None)}
    return {name: content for name, content in files.items() if content is not None}


# Makes the folder under a temporary name next to its path, and renames it when it is complete.
def convert(source, output, dtype):
    if os.path.lexists(output):
        raise Refusal(USAGE, f"{output}: already exists and is never overwritten; choose another path")
    np.seterr(all="ignore")  # overflows are reported by name
    file = GgufFile(source)
    config = read_config(file, dtype)
    tensors, (begin, ends) = place_tensors(file, config), read_ends(file, config["vocab_size"])
    ids = {"bos_token_id": begin, "eos_token_id": ends if len(ends) > 1 else next(iter(ends), None)}
    files = {"config.json": {**config, **ids}}
    if ends or begin is not None:
        files["generation_config.json"] = ids
    try:
        files |= tokenizer_files(file, begin, ends)
    except (Refusal, ValueError) as error:  # ValueError: lists of other lengths, or text that is not UTF-8
        say(f"the tokenizer is not converted: {'' if isinstance(error, Refusal) else source + ': '}{error}")
    parent, name = os.path.split(os.path.abspath(output))
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=name + ".partial-", dir=parent) as partial:
        content = os.path.join(partial, "content")
        os.mkdir(content)
        for name, value in files.items():
            with open(os.path.join(content, name), "w", encoding="utf-8", newline="") as text:
                text.write(value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True) + "\n")
        parameters = write_weights(file, tensors, dtype, os.path.join(content, "model.safetensors"))
        os.rename(content, output)
    print(f"{output}: {parameters} parameters of {source} as {dtype}; also written: {', '.join(sorted(files))}")


def main():
    parser = argparse.ArgumentParser(prog="ringtrain_gguf", description=__doc__)
    parser.add_argument("--input", required=True, metavar="FILE", help="the GGUF file, of architecture llama")
    parser.add_argument("--output", required=True, metavar="DIR", help="the folder to make; it must not exist")
    parser.add_argument("--dtype", choices=STORED, default="float32", help="data type of the weights, rounded to nearest")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        convert(arguments.input, arguments.output, arguments.dtype)
        return 0
    except Refusal as error:
        code, sentence = error.code, str(error)
    except KeyboardInterrupt:
        code, sentence = STOPPED, "stopped by a signal; nothing was written"
    except OSError as error:
        code, sentence = DAMAGED, f"{error.filename or arguments.output}: {error.strerror}"
    except Exception as error:  # of the package, which does not check its input
        code, sentence = DAMAGED, f"{arguments.input}: is damaged or not a GGUF file: {type(error).__name__}: {error}"
    say(sentence)
    return code


if __name__ == "__main__":
    sys.exit(main())
