"""MoE blocks with the parameters and the formulas that transformers has for Mixtral and Qwen3, written anew."""

import torch
from torch import nn


class Expert(nn.Module):
    """An expert of its own: linear layers by the given names, for gate, up and down."""

    def __init__(self, model, hidden, names):
        super().__init__()
        self.names = names
        for name, into, out in zip(names, (model, model, hidden), (hidden, hidden, model)):
            setattr(self, name, nn.Linear(into, out, bias=False))
        self.act_fn = nn.SiLU()

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(self.act_fn(gate(x)) * up(x))


def chosen(logits, top_k):
    weights, experts = logits.float().softmax(-1).topk(top_k, -1)
    return weights / weights.sum(-1, keepdim=True), experts


def combined(x, weights, experts, count, expert_of):
    out = torch.zeros_like(x)
    for expert in range(count):
        token, choice = torch.nonzero(experts == expert, as_tuple=True)
        out = out.index_add(0, token, expert_of(expert, x[token]) * weights[token, choice].unsqueeze(-1).to(x.dtype))
    return out


class BlockOfModules(nn.Module):
    """Version 4: experts are modules, and what is returned has the router's logits with it."""

    def __init__(self, model, hidden, experts, top_k, names=("w1", "w3", "w2")):
        super().__init__()
        self.top_k, self.jitter_noise, self.norm_topk_prob = top_k, 0.0, True
        self.gate = nn.Linear(model, experts, bias=False)
        self.experts = nn.ModuleList(Expert(model, hidden, names) for _ in range(experts))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        logits = self.gate(rows)
        weights, experts = chosen(logits, self.top_k)
        out = combined(rows, weights, experts, len(self.experts), lambda expert, x: self.experts[expert](x))
        return out.view_as(x), logits


class Router(nn.Module):
    def __init__(self, model, experts, top_k):
        super().__init__()
        self.top_k, self.norm_topk_prob = top_k, True
        self.weight = nn.Parameter(torch.randn(experts, model) / model**0.5)


class FusedExperts(nn.Module):
    def __init__(self, model, hidden, experts):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * hidden, model) / model**0.5)
        self.down_proj = nn.Parameter(torch.randn(experts, model, hidden) / hidden**0.5)
        self.act_fn = nn.SiLU()

    def one(self, expert, x):
        gate, up = (x @ self.gate_up_proj[expert].T).chunk(2, -1)
        return (self.act_fn(gate) * up) @ self.down_proj[expert].T


class FusedBlock(nn.Module):
    """Version 5: one tensor for all experts, and the output alone."""

    def __init__(self, model, hidden, experts, top_k):
        super().__init__()
        self.gate = Router(model, experts, top_k)
        self.experts = FusedExperts(model, hidden, experts)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weights, experts = chosen(rows @ self.gate.weight.T, self.gate.top_k)
        return combined(rows, weights, experts, len(self.experts.down_proj), self.experts.one).view_as(x)


class Layer(nn.Module):
    """A decoder layer without its attention, which takes the output of either block."""

    def __init__(self, model, block):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(model), block

    def forward(self, x):
        y = self.mlp(self.norm(x))
        return x + (y[0] if isinstance(y, tuple) else y)
