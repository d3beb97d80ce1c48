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
        limit = self.layer.get("swigluLimit", 0)
        if gate_up is None:
            hidden = gelu(hidden)
        else:
            gated = rows @ gate_up
            if gate_up_bias is not None:
                gated = gated + gate_up_bias
            if limit > 0:
                gated, hidden = gated.clamp(max=limit), hidden.clamp(-limit, limit)
                hidden = (hidden + 1) * gated * torch.sigmoid(1.702 * gated)
            else:
                hidden = torch.nn.functional.silu(gated) * hidden
        out = hidden @ down
        return out if down_bias is None else out + down_bias

    def _tensors(self, prefix, expert):
        names = ("up", "down", "gate_up", "up_bias", "gate_up_bias", "down_bias")
        found = [self.weights.get(prefix + name) for name in names]
        return [value if value is None or expert is None else value[expert] for value in found]

    def _routed(self, logits):
        """The weights and experts that tokens choose, and every expert's part of the sum of scores."""
        router, k = self.layer.get("router", {}), self.layer["topK"]
        sigmoid = router.get("scoreFunction") == "SIGMOID"
        scores = torch.sigmoid(logits) if sigmoid else logits.softmax(-1)
        keys = scores.detach()
        if "correction_bias" in self.weights:
            keys = keys + self.weights["correction_bias"].detach()
        groups = router.get("expertGroups", 1)
        best = router.get("groupsPerToken", groups)
        if best < groups:
            grouped = keys.view(len(keys), groups, -1)
            of_group = grouped.topk(2, -1).values.sum(-1) if "correction_bias" in self.weights else grouped.amax(-1)
            left = torch.zeros_like(of_group).scatter(1, of_group.topk(best, -1).indices, 1).bool()
            keys = grouped.masked_fill(~left.unsqueeze(-1), -math.inf).view_as(keys)
        chosen = keys.topk(k, -1).indices
        weights = scores.gather(-1, chosen)
        if k > 1 and not router.get("rawWeights", False):
            weights = weights / weights.sum(-1, keepdim=True)
        return weights * router.get("weightScale", 1), chosen, scores / scores.sum(-1, keepdim=True)

    def __call__(self, x):
        """[L, M] in; the output, the router's losses with their coefficients, and (token, choice) pairs by expert."""
        layer, experts, k = self.layer, self.layer["experts"], self.layer["topK"]
        tokens = x.shape[0]
        slots = tokens  # Of each expert, in a dropless layer.
        if layer["capacityFactor"] > 0:
            slots = max(1, math.ceil(k * layer["capacityFactor"] * tokens / experts - 1e-9))
        logits = x @ self.weights["gate"].T
        if "gate_bias" in self.weights:
            logits = logits + self.weights["gate_bias"]
        weights, chosen, probabilities = self._routed(logits)
        # Slots are taken token by token, and choice by choice.
        taken = torch.nn.functional.one_hot(chosen.flatten(), experts)
        place = (taken.cumsum(0) * taken).sum(-1).view(tokens, k) - 1
        out = torch.zeros_like(x)
        for expert in range(experts):
            token, choice = torch.nonzero((chosen == expert) & (place < slots), as_tuple=True)
            weight = weights[token, choice].unsqueeze(-1)
            if layer.get("router", {}).get("weighsInput", False):
                part = self._ffn(x[token] * weight, *self._tensors("", expert))
            else:
                part = self._ffn(x[token], *self._tensors("", expert)) * weight
            out = out.index_add(0, token, part)
        if "shared_up" in self.weights:
            out = out + self._ffn(x, *self._tensors("shared_", None))
        pairs = taken.sum(0)
        balance = experts * ((pairs / pairs.sum()) * probabilities.mean(0)).sum()
        squared = (logits.logsumexp(-1) ** 2).mean()
        losses = layer.get("auxLossCoefficient", 0) * balance + layer.get("zLossCoefficient", 0) * squared
        return out, losses, pairs
