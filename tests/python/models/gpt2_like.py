"""A GPT-2-like language model with a plain Mixture of Experts in every second block, as a user of PyTorch writes it."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, length, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("seen", torch.tril(torch.ones(length, length, dtype=torch.bool)).view(1, 1, length, length))

    def forward(self, x):
        batch, length, width = x.size()
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(~self.seen[:, :, :length, :length], float("-inf"))
        y = self.dropout(F.softmax(scores, dim=-1)) @ v
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.activation, self.down = nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class SparseFeedForward(nn.Module):
    """Every token goes to one expert, whose output counts as much as the router gave it."""

    def __init__(self, width, hidden, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * 0.05)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * 0.05)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weight, chosen = self.router(rows).softmax(-1).max(-1)
        out = torch.zeros_like(rows)
        for expert in range(len(self.up)):
            mine = (chosen == expert).nonzero().squeeze(-1)
            out = out.index_add(0, mine, F.gelu(rows[mine] @ self.up[expert]) @ self.down[expert] * weight[mine, None])
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self, width, heads, length, dropout, mlp):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = CausalSelfAttention(width, heads, length, dropout), mlp
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        x = x + self.mlp(self.norm2(x))
        return x


class LanguageModel(nn.Module):
    """Tokens [B, L] in, logits out; with targets [B, L], logits and their loss."""

    def __init__(self, vocabulary=64, width=32, heads=4, layers=2, hidden=64, experts=4, length=16, dropout=0.1):
        super().__init__()
        self.length = length
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        mlps = [SparseFeedForward(width, hidden, experts) if i % 2 else FeedForward(width, 4 * width) for i in range(layers)]
        self.blocks = nn.ModuleList(Block(width, heads, length, dropout, mlp) for mlp in mlps)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets=None):
        length = tokens.shape[1]
        if length > self.length:
            raise ValueError(f"a sequence of {length} tokens, of which {self.length} have places")
        places = torch.arange(length, device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.places(places))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))
