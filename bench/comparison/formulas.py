"""The formulas of docs/architecture.md for what a rank holds, written again from its words alone.

All are bytes of a rank that trains in float32; the plan that `train --dry-run` prints is compared with them.
"""

ELEMENT = 4


def rounded(size):
    """As the allocator gives it out: in multiples of 64 bytes."""
    return max(64, (size + 63) // 64 * 64)


def ring(ranks, tokens, heads, head_dim, documents=False):
    """Two blocks of keys and values in flight, two of their gradients, one coming home; none for one rank. tokens: of a
    micro-batch on the rank that holds most; heads: of keys and values."""
    if ranks == 1:
        return 0
    block = rounded(2 * tokens * heads * head_dim * ELEMENT)
    ids = rounded(tokens * 4) if documents else 0
    buffers = min(ranks - 1, 2)
    return buffers * (block + ids) + (buffers + (1 if ranks > 2 else 0)) * block


def largest_group(model):
    """Return the elements of the largest bucket of gradients: the embeddings, a block, or the final norm and head. Each
    parameter is padded to a multiple of 16."""
    def padded(*shapes):
        return sum((size + 15) // 16 * 16 for size in shapes)

    width, inner, vocabulary = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
    queries = model["num_attention_heads"] * model["head_dim"]
    keys = model["num_key_value_heads"] * model["head_dim"]
    head = () if model["tie_word_embeddings"] else (vocabulary * width,)
    if model["architecture"] == "gpt2":
        norm, linear = (width, width), lambda out, into: (out * into, out)
        embeddings = (vocabulary * width, model["max_position_embeddings"] * width)
        feedforward = (*linear(inner, width), *linear(width, inner))
    else:
        norm, linear = (width,), lambda out, into: (out * into,)
        embeddings = (vocabulary * width,)
        feedforward = (*linear(inner, width), *linear(inner, width), *linear(width, inner))
    block = (*norm, *linear(queries, width), *linear(keys, width), *linear(keys, width), *linear(width, queries), *norm,
             *feedforward)
    return max(padded(*embeddings), padded(*block), padded(*norm, *head))


def workspace(model, tokens, ranks, feedforward_chunk, loss_chunk, keeps_all):
    """What is chunk-sized or constant, without attention's own workspace (kernels/attention.h states that). tokens: of
    a micro-batch on the rank; ranks: of the whole mesh; keeps_all: recompute is none."""
    width, inner, vocabulary = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
    gpt2 = model["architecture"] == "gpt2"
    statistics = 2 if gpt2 else 1  # a token's, of a norm
    sizes = []
    if feedforward_chunk > 0:  # else they are activations
        chunk = min(feedforward_chunk, tokens)
        hidden = 1 if keeps_all else 2 if gpt2 else 3  # the product; up; gate
        sizes += [chunk * size * ELEMENT for size in (width, statistics, width, *[inner] * hidden)]
    chunk = min(loss_chunk, tokens)
    sizes += [chunk * size * ELEMENT for size in (vocabulary, width, width, statistics)]
    sizes += [chunk * 8, 8]         # each token's loss, and their sum, in double
    sizes += [8, 16]                # the gradient's norm in double; it and the loss, for the host
    sizes += [4 * 2**20]            # panels of a matrix product
    if ranks > 1:                   # two buckets on their way, a slice from every other rank
        slices = (ranks - 1) * ((largest_group(model) + ranks - 1) // ranks)
        sizes += [slices * ELEMENT] * 2
    return sum(rounded(size) for size in sizes)
