"""Adapters of MoE blocks of Hugging Face's transformers, for moeplan.torch.replace.

Read from src/transformers/models/*/modeling_*.py: until version 4 experts are modules of their own and a block returns
(output, router logits); in version 5 the weights of all experts lie in one tensor and a block returns its output.
Their weights are renormalised softmax probabilities of the chosen experts (TOP_K), and no pair is dropped, so plans
have ``capacityFactor`` 0. Later versions record router logits by the class of the block, which is gone: leave
``output_router_logits`` off, and give the plan an ``auxLossCoefficient`` instead.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from moeplan.errors import mismatch
from moeplan.torch.layer import MoELayer
from moeplan.torch.replace import Adapter, Block, Weights


def mixtral(block: torch.nn.Module) -> Block:
    """MixtralSparseMoeBlock, without jitter."""
    noise = getattr(block, "jitter_noise", 0)
    if noise:
        raise mismatch("router_jitter_noise", str(noise), "0: the executor's gate adds no noise")
    _check_top_k(block.top_k if hasattr(block, "top_k") else block.gate.top_k)
    return _block(block, gate="w1", up="w3", down="w2")


def qwen3_moe(block: torch.nn.Module) -> Block:
    """Qwen3MoeSparseMoeBlock with norm_topk_prob, as the published models have it."""
    router = block if hasattr(block, "norm_topk_prob") else block.gate
    if not router.norm_topk_prob:
        raise mismatch("norm_topk_prob", "False", "True: the executor's gate renormalises the weights of the chosen")
    _check_top_k(router.top_k)
    return _block(block, gate="gate_proj", up="up_proj", down="down_proj")


def _check_top_k(top_k: int) -> None:
    if top_k == 1:
        raise mismatch("top_k", "1", "more: of a single expert the executor's gate keeps the probability for a weight")


_CLASSES: dict[str, Adapter] = {
    "mixtral.modeling_mixtral.MixtralSparseMoeBlock": mixtral,
    "qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock": qwen3_moe,
}


def adapters() -> dict[type, Adapter]:
    """Those for the classes that the installed transformers has; none where it is not installed."""
    found: dict[type, Adapter] = {}
    for path, adapter in _CLASSES.items():
        module, _, name = path.rpartition(".")
        try:
            found[getattr(importlib.import_module(f"transformers.models.{module}"), name)] = adapter
        except (ImportError, AttributeError):
            continue
    return found


def _block(block: torch.nn.Module, gate: str, up: str, down: str) -> Block:
    experts: Any = block.experts
    apart = isinstance(experts, torch.nn.ModuleList)
    activation = (experts[0] if apart else experts).act_fn
    if "SiLU" not in type(activation).__name__:
        raise mismatch("hidden_act", type(activation).__name__, "SiLU: the executor's experts with a gate are SwiGLU")
    weights: dict[str, Weights] = {"gate": block.gate.weight.detach()}
    if apart:
        for name, linear in (("gate_up", gate), ("up", up), ("down", down)):
            weights[name] = [getattr(expert, linear).weight.detach().T for expert in experts]
        return Block(weights, top_k=block.top_k, dropless=True, returns=_with_logits)
    first, second = experts.gate_up_proj.detach().transpose(1, 2).chunk(2, dim=-1)
    weights.update(gate_up=first, up=second, down=experts.down_proj.detach().transpose(1, 2))
    return Block(weights, top_k=block.gate.top_k, dropless=True)


def _with_logits(layer: MoELayer, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the block returned: the logits, too, whose gradients go to the gate's weight."""
    return y, torch.nn.functional.linear(x.reshape(-1, x.shape[-1]), layer.gate)
