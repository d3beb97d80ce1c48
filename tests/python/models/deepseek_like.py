"""A DeepSeek-V3-like language model: latent attention, rotary positions as complex numbers, a first layer that is dense, and
experts beside a shared one, chosen in groups by sigmoids with a bias that is no weight's."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Args:
    vocab_size: int = 64
    dim: int = 32
    inter_dim: int = 64
    moe_inter_dim: int = 32
    n_layers: int = 2
    n_dense_layers: int = 1
    n_heads: int = 4
    n_routed_experts: int = 4
    n_shared_experts: int = 1
    n_activated_experts: int = 2
    n_expert_groups: int = 2
    n_limited_groups: int = 1
    route_scale: float = 2.5
    q_lora_rank: int = 16
    kv_lora_rank: int = 8
    qk_nope_head_dim: int = 8
    qk_rope_head_dim: int = 4
    v_head_dim: int = 8
    rope_theta: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * (x.float() * scale)).type_as(x)


def apply_rotary_emb(x, freqs_cis):
    pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs_cis.view(1, x.size(1), 1, -1)).flatten(3).type_as(x)


class MLA(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.n_heads, self.kv_lora_rank = args.n_heads, args.kv_lora_rank
        self.nope, self.rope, self.v_head_dim = args.qk_nope_head_dim, args.qk_rope_head_dim, args.v_head_dim
        self.wq_a = nn.Linear(args.dim, args.q_lora_rank, bias=False)
        self.q_norm = RMSNorm(args.q_lora_rank)
        self.wq_b = nn.Linear(args.q_lora_rank, self.n_heads * (self.nope + self.rope), bias=False)
        self.wkv_a = nn.Linear(args.dim, self.kv_lora_rank + self.rope, bias=False)
        self.kv_norm = RMSNorm(self.kv_lora_rank)
        self.wkv_b = nn.Linear(self.kv_lora_rank, self.n_heads * (self.nope + self.v_head_dim), bias=False)
        self.wo = nn.Linear(self.n_heads * self.v_head_dim, args.dim, bias=False)
        self.mask = None  # Made for the first sequence.

    def forward(self, x, freqs_cis):
        bsz, seqlen, _ = x.size()
        q = self.wq_b(self.q_norm(self.wq_a(x))).view(bsz, seqlen, self.n_heads, -1)
        q_nope, q_pe = torch.split(q, [self.nope, self.rope], dim=-1)
        kv, k_pe = torch.split(self.wkv_a(x), [self.kv_lora_rank, self.rope], dim=-1)
        q_pe, k_pe = apply_rotary_emb(q_pe, freqs_cis), apply_rotary_emb(k_pe.unsqueeze(2), freqs_cis)
        kv = self.wkv_b(self.kv_norm(kv)).view(bsz, seqlen, self.n_heads, -1)
        k_nope, v = torch.split(kv, [self.nope, self.v_head_dim], dim=-1)
        q = torch.cat([q_nope, q_pe], dim=-1)
        k = torch.cat([k_nope, k_pe.expand(-1, -1, self.n_heads, -1)], dim=-1)
        if self.mask is None or self.mask.size(0) != seqlen:
            self.mask = torch.full((seqlen, seqlen), float("-inf"), device=x.device).triu_(1)
        scores = torch.einsum("bshd,bthd->bhst", q, k) / math.sqrt(self.nope + self.rope)
        scores += self.mask
        y = torch.einsum("bhst,bthd->bshd", scores.softmax(dim=-1, dtype=torch.float32).type_as(x), v)
        return self.wo(y.flatten(2))


class MLP(nn.Module):
    def __init__(self, dim, inter_dim):
        super().__init__()
        self.w1 = nn.Linear(dim, inter_dim, bias=False)
        self.w2 = nn.Linear(inter_dim, dim, bias=False)
        self.w3 = nn.Linear(dim, inter_dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Gate(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.topk, self.n_groups, self.topk_groups = args.n_activated_experts, args.n_expert_groups, args.n_limited_groups
        self.route_scale = args.route_scale
        self.weight = nn.Parameter(torch.randn(args.n_routed_experts, args.dim) / math.sqrt(args.dim))
        self.bias = nn.Parameter(torch.linspace(-0.1, 0.1, args.n_routed_experts), requires_grad=False)

    def forward(self, x):
        scores = F.linear(x, self.weight).sigmoid()
        corrected = (scores + self.bias).view(x.size(0), self.n_groups, -1)
        best = corrected.topk(2, dim=-1)[0].sum(dim=-1).topk(self.topk_groups, dim=-1)[1]
        passed_over = torch.ones(x.size(0), self.n_groups, dtype=torch.bool, device=x.device).scatter_(1, best, False)
        chosen = corrected.masked_fill(passed_over.unsqueeze(-1), float("-inf")).flatten(1).topk(self.topk, dim=-1)[1]
        weights = scores.gather(1, chosen)
        return weights / weights.sum(dim=-1, keepdim=True) * self.route_scale, chosen


class MoE(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.gate = Gate(args)
        self.experts = nn.ModuleList([MLP(args.dim, args.moe_inter_dim) for _ in range(args.n_routed_experts)])
        self.shared_experts = MLP(args.dim, args.n_shared_experts * args.moe_inter_dim)
        self.register_buffer("tokens_per_expert", torch.zeros(args.n_routed_experts), persistent=False)

    def forward(self, hidden_states):
        x = hidden_states.view(-1, hidden_states.size(-1))
        weights, chosen = self.gate(x)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts))
        self.tokens_per_expert += counts
        y = self.shared_experts(x)
        for i, expert in enumerate(self.experts):
            if counts[i] > 0:
                token, choice = torch.where(chosen == i)
                y = y.index_add(0, token, expert(x[token]) * weights[token, choice, None])
        return y.view_as(hidden_states)


class Block(nn.Module):
    def __init__(self, number, args):
        super().__init__()
        self.attn = MLA(args)
        self.ffn = MLP(args.dim, args.inter_dim) if number < args.n_dense_layers else MoE(args)
        self.is_dense = number < args.n_dense_layers
        self.attn_norm, self.ffn_norm = RMSNorm(args.dim), RMSNorm(args.dim)

    def forward(self, x, freqs_cis):
        x = x + self.attn(self.attn_norm(x), freqs_cis)
        y = self.ffn_norm(x)
        return x + (self.ffn(y) if self.is_dense else self.ffn(hidden_states=y))


class Transformer(nn.Module):
    """Tokens [B, L] in, logits out."""

    def __init__(self, args, max_seq_len=128):
        super().__init__()
        self.embed = nn.Embedding(args.vocab_size, args.dim)
        self.layers = nn.ModuleList([Block(i, args) for i in range(args.n_layers)])
        self.norm = RMSNorm(args.dim)
        self.head = nn.Linear(args.dim, args.vocab_size, bias=False)
        freqs = args.rope_theta ** (-torch.arange(0, args.qk_rope_head_dim, 2).float() / args.qk_rope_head_dim)
        angles = torch.outer(torch.arange(max_seq_len).float(), freqs)
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, tokens):
        h = self.embed(tokens)
        for layer in self.layers:
            h = layer(h, self.freqs_cis[: tokens.size(1)])
        return self.head(self.norm(h))
