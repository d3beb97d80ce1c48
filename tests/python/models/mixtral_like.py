"""A Mixtral-like language model: RMSNorm, rotary positions, grouped queries, and SwiGLU experts of which each token has two."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    vocabulary: int = 64
    width: int = 32
    hidden: int = 48
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 2
    experts: int = 4
    experts_per_token: int = 2
    theta: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        squares = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x.float() * torch.rsqrt(squares + self.eps)).to(x.dtype)


def rotated(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.key_value_heads = config.heads, config.key_value_heads
        self.head = config.width // config.heads
        self.q_proj = nn.Linear(config.width, self.heads * self.head, bias=False)
        self.k_proj = nn.Linear(config.width, self.key_value_heads * self.head, bias=False)
        self.v_proj = nn.Linear(config.width, self.key_value_heads * self.head, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head, config.width, bias=False)

    def forward(self, x, cos, sin, mask):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.head).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.key_value_heads, self.head).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.key_value_heads, self.head).transpose(1, 2)
        q = q * cos + rotated(q) * sin
        k = k * cos + rotated(k) * sin
        groups = self.heads // self.key_value_heads
        k, v = (t[:, :, None].expand(-1, -1, groups, -1, -1).reshape(batch, self.heads, length, self.head) for t in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) / self.head**0.5 + mask
        weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        y = torch.matmul(weights, v).transpose(1, 2).contiguous()
        return self.o_proj(y.reshape(batch, length, -1))


class Expert(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.w1 = nn.Linear(config.width, config.hidden, bias=False)
        self.w2 = nn.Linear(config.hidden, config.width, bias=False)
        self.w3 = nn.Linear(config.width, config.hidden, bias=False)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class SparseMoeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.top_k = config.experts_per_token
        self.gate = nn.Linear(config.width, config.experts, bias=False)
        self.experts = nn.ModuleList(Expert(config) for _ in range(config.experts))

    def forward(self, x):
        rows = x.view(-1, x.shape[-1])
        logits = self.gate(rows)
        weights, chosen = logits.softmax(-1).topk(self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            token, choice = torch.where(chosen == number)
            out.index_add_(0, token, expert(rows[token]) * weights[token, choice, None])
        return out.view_as(x), logits


class DecoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_norm, self.post_attention_norm = RMSNorm(config.width), RMSNorm(config.width)
        self.self_attn = Attention(config)
        self.block_sparse_moe = SparseMoeBlock(config)

    def forward(self, hidden, **positions):
        residual = hidden
        hidden = residual + self.self_attn(self.input_norm(hidden), **positions)
        residual = hidden
        hidden, logits = self.block_sparse_moe(self.post_attention_norm(hidden))
        return residual + hidden, logits


class Model(nn.Module):
    """Tokens [B, L] in; {"logits", "router_logits"} out."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        head = config.width // config.heads
        self.register_buffer("frequencies", config.theta ** (-torch.arange(0, head, 2).float() / head), persistent=False)

    def positions(self, x):
        length = x.shape[1]
        angles = torch.outer(torch.arange(length, device=x.device).float(), self.frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        mask = torch.full((length, length), float("-inf"), device=x.device).triu_(1)
        return {"cos": angles.cos().to(x.dtype), "sin": angles.sin().to(x.dtype), "mask": mask}

    def forward(self, tokens):
        hidden = self.embed_tokens(tokens)
        positions = self.positions(hidden)
        router_logits = []
        for layer in self.layers:
            hidden, logits = layer(hidden, **positions)
            router_logits.append(logits)
        return {"logits": self.lm_head(self.norm(hidden)), "router_logits": router_logits}
