"""Formulas for the ring and the workspace of a rank (docs/architecture.md), written independently of the program.

All results are bytes of a rank that trains in float32; they are compared with the plan that `train --dry-run` prints.
"""

ELEMENT = 4

# The differences between the architectures: two vectors per norm, norms per block, a position table, a gate, biases,
# norms of q's and k's heads, or of all of them together.
LLAMA = {"layer_norm": False, "norms": 2, "table": False, "gated": True, "qkv_bias": False, "bias": False,
         "qk_norm": False, "qk_whole": False}
TRAITS = {"llama": LLAMA, "mistral": LLAMA,
          "gpt2": {**LLAMA, "layer_norm": True, "table": True, "gated": False, "qkv_bias": True, "bias": True},
          "qwen2": {**LLAMA, "qkv_bias": True}, "qwen3": {**LLAMA, "qk_norm": True}, "smollm3": LLAMA,
          "olmo2": {**LLAMA, "qk_norm": True, "qk_whole": True}, "olmo3": {**LLAMA, "qk_norm": True, "qk_whole": True},
          "gemma2": {**LLAMA, "norms": 4}, "gemma3_text": {**LLAMA, "norms": 4, "qk_norm": True},
          "phi3": LLAMA, "granite": LLAMA}


def traits_of(model):
    return TRAITS[model["architecture"]]


def rounded(size):
    """The allocated size: a multiple of 64 bytes."""
    return max(64, (size + 63) // 64 * 64)


def ring(ranks, tokens, heads, head_dim, documents=False):
    """Two blocks of keys and values in flight, two of their gradients, and one that returns; none for one rank. tokens:
    of a micro-batch on the rank with the most; heads: of keys and values."""
    if ranks == 1:
        return 0
    block = rounded(2 * tokens * heads * head_dim * ELEMENT)
    ids = rounded(tokens * 4) if documents else 0
    buffers = min(ranks - 1, 2)
    return buffers * (block + ids) + (buffers + (1 if ranks > 2 else 0)) * block


def group_sizes(model):
    """Return the elements of a bucket of gradients at the model's ends (the embeddings, or the final norm and head), and
    of a block. Each parameter is padded to a multiple of 16."""
    def padded(*shapes):
        return sum((size + 15) // 16 * 16 for size in shapes)

    width, inner, vocabulary = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
    queries = model["num_attention_heads"] * model["head_dim"]
    keys = model["num_key_value_heads"] * model["head_dim"]
    head = () if model["tie_word_embeddings"] else (vocabulary * width,)
    traits = traits_of(model)

    def linear(out, into, bias=traits["bias"]):
        return (out * into, out) if bias else (out * into,)

    norm = (width, width) if traits["layer_norm"] else (width,)
    embeddings = (vocabulary * width, *((model["max_position_embeddings"] * width,) if traits["table"] else ()))
    feedforward = (*linear(inner, width) * (2 if traits["gated"] else 1), *linear(width, inner))
    heads = ((queries, keys) if traits["qk_whole"] else (model["head_dim"],) * 2) if traits["qk_norm"] else ()
    block = (*norm * traits["norms"], *linear(queries, width, traits["qkv_bias"]),
             *linear(keys, width, traits["qkv_bias"]) * 2, *linear(width, queries), *heads, *feedforward)
    return max(padded(*embeddings), padded(*norm, *head)), padded(*block)


def workspace(model, tokens, ranks, feedforward_chunk, loss_chunk, keeps_all):
    """Chunk-sized and constant tensors, without attention's own workspace (see kernels/attention.h). tokens: of a
    micro-batch on the rank; ranks: of the whole mesh; keeps_all: recompute is none."""
    width, inner, vocabulary = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
    traits = traits_of(model)
    statistics = 2 if traits["layer_norm"] else 1  # per token, of a norm
    sizes = []
    if feedforward_chunk > 0:  # otherwise they are activations
        chunk = min(feedforward_chunk, tokens)
        hidden = 1 if keeps_all else 3 if traits["gated"] else 2  # the product; up; gate
        sizes += [chunk * size * ELEMENT for size in (width, statistics, width, *[inner] * hidden)]
    chunk = min(loss_chunk, tokens)
    sizes += [chunk * size * ELEMENT for size in (vocabulary, width, width, statistics)]
    sizes += [chunk * 8, 8]         # each token's loss, and their sum, in double
    sizes += [8, 16]                # the gradient's norm in double; it and the loss, for the host
    sizes += [4 * 2**20]            # panels of a matrix product
    if ranks > 1:                   # two buckets in transit, a slice from every other rank
        end, block = group_sizes(model)
        large = max(end, block) if model["num_hidden_layers"] > 1 else end
        sizes += [(ranks - 1) * ((size + ranks - 1) // ranks) * ELEMENT for size in (large, block)]
    return sum(rounded(size) for size in sizes)
