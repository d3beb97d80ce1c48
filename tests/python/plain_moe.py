"""An MoE layer in plain PyTorch on one process: what moeplan's layers must equal."""

import math

import torch


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


class PlainMoE:
    """One source batch at a time. ``weights``: whole tensors by the names of MoELayer.load_full_weights."""

    def __init__(self, layer, weights):
        self.layer = layer
        self.weights = {name: value.detach().cpu().clone().double().requires_grad_() for name, value in weights.items()}

    def _ffn(self, rows, up, down, gate_up, up_bias, gate_up_bias, down_bias):
        hidden = rows @ up
        if up_bias is not None:
            hidden = hidden + up_bias
        if gate_up is None:
            hidden = gelu(hidden)
        else:
            gated = rows @ gate_up
            if gate_up_bias is not None:
                gated = gated + gate_up_bias
            hidden = torch.nn.functional.silu(gated) * hidden
        out = hidden @ down
        return out if down_bias is None else out + down_bias

    def _tensors(self, prefix, expert):
        names = ("up", "down", "gate_up", "up_bias", "gate_up_bias", "down_bias")
        found = [self.weights.get(prefix + name) for name in names]
        return [value if value is None or expert is None else value[expert] for value in found]

    def __call__(self, x):
        """[L, M] in; the output, the router's losses with their coefficients, and (token, choice) pairs by expert."""
        layer, experts, k = self.layer, self.layer["experts"], self.layer["topK"]
        tokens = x.shape[0]
        slots = tokens  # Of each expert, in a dropless layer.
        if layer["capacityFactor"] > 0:
            slots = max(1, math.ceil(k * layer["capacityFactor"] * tokens / experts - 1e-9))
        logits = x @ self.weights["gate"].T
        probabilities = logits.softmax(-1)
        weights, chosen = probabilities.topk(k, -1)
        if k > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        # Slots are taken token by token, and choice by choice.
        taken = torch.nn.functional.one_hot(chosen.flatten(), experts)
        place = (taken.cumsum(0) * taken).sum(-1).view(tokens, k) - 1
        out = torch.zeros_like(x)
        for expert in range(experts):
            token, choice = torch.nonzero((chosen == expert) & (place < slots), as_tuple=True)
            part = self._ffn(x[token], *self._tensors("", expert)) * weights[token, choice].unsqueeze(-1)
            out = out.index_add(0, token, part)
        if "shared_up" in self.weights:
            out = out + self._ffn(x, *self._tensors("shared_", None))
        pairs = taken.sum(0)
        balance = experts * ((pairs / pairs.sum()) * probabilities.mean(0)).sum()
        squared = (logits.logsumexp(-1) ** 2).mean()
        losses = layer.get("auxLossCoefficient", 0) * balance + layer.get("zLossCoefficient", 0) * squared
        return out, losses, pairs
