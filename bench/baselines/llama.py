"""A Llama in plain PyTorch, with the shape of bench/configs/llama_124m.yaml."""
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, LAYERS, HEADS, KEY_VALUE_HEADS, FEEDFORWARD, THETA = 50257, 768, 12, 12, 4, 2432, 10000.0
HEAD = WIDTH // HEADS


def rotated(x, cos, sin):
    """x: [B, H, S, D]; the halves of a head are the two coordinates."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.feedforward_norm = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEY_VALUE_HEADS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, KEY_VALUE_HEADS * HEAD, bias=False)
        self.attention_output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, FEEDFORWARD, bias=False) for _ in range(2))
        self.down = nn.Linear(FEEDFORWARD, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        normed = self.attention_norm(x)
        q, k, v = (project(normed).view(batch, length, -1, HEAD).transpose(1, 2)
                   for project in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True,
                                                  enable_gqa=True)
        x = x + self.attention_output(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        normed = self.feedforward_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    vocabulary = VOCABULARY

    def __init__(self, length=8192):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for x in self.parameters():
            if x.dim() == 2:
                nn.init.normal_(x, std=0.02)
        self.head.weight = self.tokens.weight
        angles = torch.outer(torch.arange(length), THETA ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, labels):
        x = self.tokens(tokens)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCABULARY), labels.reshape(-1))
