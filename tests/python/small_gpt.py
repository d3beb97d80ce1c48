"""A small GPT-2-like model that knows nothing of moeplan: its head is the embedding, and norms and projections are written in
the ways that models write them. ``make_moe(i)`` makes the MLP of every second block."""

import math

import torch
from torch import nn


class RootMeanSquareNorm(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(model))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))


class Conv1D(nn.Module):
    """A linear layer with its matrix the other way round, as GPT-2 has it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-1 / math.sqrt(inputs), 1 / math.sqrt(inputs)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, model, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = Conv1D(model, 3 * model)
        self.out = nn.Linear(model, model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, model = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(later, float("-inf"))
        return self.dropout(self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, model)))


class Mlp(nn.Module):
    """Two matrices of its own, each used twice, as it is and transposed."""

    def __init__(self, model):
        super().__init__()
        self.up = nn.Parameter(torch.empty(2 * model, model).uniform_(-0.3, 0.3))
        self.down = nn.Parameter(torch.empty(2 * model, model).uniform_(-0.3, 0.3))

    def forward(self, x):
        return nn.functional.gelu(x @ self.up.T) @ self.down + 0.1 * (x @ self.down.t()) @ self.up


class Block(nn.Module):
    def __init__(self, model, heads, mlp, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(model), RootMeanSquareNorm(model)
        self.attention = Attention(model, heads, dropout)
        self.mlp = mlp

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class SmallGpt(nn.Module):
    """``recompute(function, x)`` calls a block; None: as it is."""

    def __init__(self, make_moe, layers=4, model=8, heads=2, vocabulary=16, length=8, dropout=0.0, recompute=None):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, model)
        self.places = nn.Parameter(torch.zeros(length, model).uniform_(-0.1, 0.1))
        self.blocks = nn.ModuleList(
            Block(model, heads, make_moe(i) if i % 2 == 1 else Mlp(model), dropout) for i in range(layers)
        )
        self.norm = nn.LayerNorm(model)
        self.head = nn.Linear(model, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.recompute = recompute

    def forward(self, text):
        x = self.tokens(text[:, :-1]) + self.places[: text.shape[1] - 1]
        for block in self.blocks:
            x = block(x) if self.recompute is None else self.recompute(block, x)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
