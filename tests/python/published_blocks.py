"""MoE blocks with the parameters and the formulas that transformers has for published models, written anew."""

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


def chosen(logits, top_k, normalised):
    weights, experts = logits.float().softmax(-1).topk(top_k, -1)
    return weights / weights.sum(-1, keepdim=True) if normalised else weights, experts


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
        weights, experts = chosen(logits, self.top_k, self.norm_topk_prob)
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
        weights, experts = chosen(rows @ self.gate.weight.T, self.gate.top_k, self.gate.norm_topk_prob)
        return combined(rows, weights, experts, len(self.experts.down_proj), self.experts.one).view_as(x)


class DeepSeekRouter(nn.Module):
    def __init__(self, model, experts, top_k, groups, top_groups):
        super().__init__()
        self.top_k, self.n_group, self.topk_group = top_k, groups, top_groups
        self.norm_topk_prob, self.routed_scaling_factor = True, 2.5
        self.weight = nn.Parameter(torch.randn(experts, model) / model**0.5)
        self.register_buffer("e_score_correction_bias", torch.linspace(-0.2, 0.2, experts))

    def forward(self, x):
        scores = (x.float() @ self.weight.float().T).sigmoid()
        keys = scores.detach() + self.e_score_correction_bias
        grouped = keys.view(len(x), self.n_group, -1)
        best = grouped.topk(2, -1).values.sum(-1).topk(self.topk_group, -1).indices
        left = torch.zeros(len(x), self.n_group).scatter(1, best, 1).bool()
        experts = grouped.masked_fill(~left.unsqueeze(-1), -torch.inf).view_as(keys).topk(self.top_k, -1).indices
        weights = scores.gather(-1, experts)
        return weights / weights.sum(-1, keepdim=True) * self.routed_scaling_factor, experts


class DeepSeekBlock(nn.Module):
    """DeepSeek-V3, in version 4: experts are modules; or, ``fused``, as in version 5."""

    def __init__(self, model, hidden, experts, top_k, fused=False):
        super().__init__()
        names = ("gate_proj", "up_proj", "down_proj")
        modules = nn.ModuleList(Expert(model, hidden, names) for _ in range(experts))
        self.experts = FusedExperts(model, hidden, experts) if fused else modules
        self.gate = DeepSeekRouter(model, experts, top_k, groups=4, top_groups=2)
        if fused:  # Version 5 has these on the block.
            for name in ("top_k", "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor"):
                setattr(self, name, getattr(self.gate, name))
        self.shared_experts = Expert(model, 2 * hidden, names)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weights, experts = self.gate(rows)
        count = len(self.gate.weight)
        one = self.experts.one if isinstance(self.experts, FusedExperts) else lambda expert, x: self.experts[expert](x)
        return combined(rows, weights, experts, count, one).view_as(x) + self.shared_experts(x)


class GptOssExperts(nn.Module):
    def __init__(self, model, hidden, experts):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(experts, model, 2 * hidden) / model**0.5)
        self.gate_up_proj_bias = nn.Parameter(torch.randn(experts, 2 * hidden))
        self.down_proj = nn.Parameter(torch.randn(experts, hidden, model) / hidden**0.5)
        self.down_proj_bias = nn.Parameter(torch.randn(experts, model))
        self.alpha, self.limit = 1.702, 1.5

    def one(self, expert, x):
        both = x @ self.gate_up_proj[expert] + self.gate_up_proj_bias[expert]
        gate, up = both[..., ::2].clamp(max=self.limit), both[..., 1::2].clamp(-self.limit, self.limit)
        hidden = (up + 1) * gate * torch.sigmoid(self.alpha * gate)
        return hidden @ self.down_proj[expert] + self.down_proj_bias[expert]


class GptOssBlock(nn.Module):
    """GPT-OSS: biases everywhere, and weights that are a softmax of the chosen logits."""

    def __init__(self, model, hidden, experts, top_k):
        super().__init__()
        self.router = nn.Linear(model, experts)
        self.router.top_k = top_k
        self.experts = GptOssExperts(model, hidden, experts)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        logits, experts = self.router(rows).topk(self.router.top_k, -1)
        out = combined(rows, logits.softmax(-1), experts, self.router.out_features, self.experts.one)
        return out.view_as(x), logits


class Llama4Experts(nn.Module):
    def __init__(self, model, hidden, experts):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(experts, model, 2 * hidden) / model**0.5)
        self.down_proj = nn.Parameter(torch.randn(experts, hidden, model) / hidden**0.5)
        self.act_fn = nn.SiLU()


class Llama4Block(nn.Module):
    """Llama 4: a token's expert gets it times a sigmoid. Every expert computes for all tokens, most of which are zero."""

    def __init__(self, model, hidden, experts, top_k=1):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(model, experts, bias=False)
        self.experts = Llama4Experts(model, hidden, experts)
        self.shared_expert = Expert(model, hidden, ("gate_proj", "up_proj", "down_proj"))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        logits = self.router(rows)
        best, experts = logits.topk(self.top_k, -1)
        scores = torch.full_like(logits, -torch.inf).scatter(1, experts, best).sigmoid()
        into = scores.T.unsqueeze(-1) * rows
        gate, up = (into @ self.experts.gate_up_proj).chunk(2, -1)
        out = ((self.experts.act_fn(gate) * up) @ self.experts.down_proj).sum(0)
        return out + self.shared_expert(rows), logits


class OlmoeBlock(FusedBlock):
    """OLMoE: probabilities stay as they are."""

    def __init__(self, model, hidden, experts, top_k):
        super().__init__(model, hidden, experts, top_k)
        self.gate.norm_topk_prob = False


class Layer(nn.Module):
    """A decoder layer without its attention, which takes the output of either block."""

    def __init__(self, model, block):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(model), block

    def forward(self, x):
        y = self.mlp(self.norm(x))
        return x + (y[0] if isinstance(y, tuple) else y).view_as(x)
