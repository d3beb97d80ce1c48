"""Adapters of MoE blocks of Hugging Face's transformers, for moeplan.torch.replace.

Read from src/transformers/models/*/modeling_*.py: until version 4 experts are modules of their own and most blocks return
(output, router logits); in version 5 the weights of all experts lie in one tensor and most blocks return their output. No
pair is dropped, so plans have ``capacityFactor`` 0; ``layer.router`` of a plan is what ``Planner.import_model`` makes of
the model's config. Later versions record router logits by the class of the block, which is gone: leave
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
    """Qwen3MoeSparseMoeBlock and OlmoeSparseMoeBlock."""
    router = block if hasattr(block, "norm_topk_prob") else block.gate
    if router.norm_topk_prob:
        _check_top_k(router.top_k)
    return _block(block, gate="gate_proj", up="up_proj", down="down_proj", raw_weights=not router.norm_topk_prob)


def deepseek_v3(block: torch.nn.Module) -> Block:
    """DeepseekV3MoE; those of Kimi K2, GLM-4.5 and dots.llm1 are like it.

    Groups that a token may not choose from are passed over as in DeepSeek's own code. That of transformers sets their
    scores to 0, so that a token may choose from them where its corrected scores are below 0.
    """
    gate = block.gate
    said = {name: getattr(gate if hasattr(gate, name) else block, name) for name in _DEEPSEEK}
    router = {
        "scoreFunction": "SIGMOID",
        "correctionBias": True,
        "rawWeights": not said["norm_topk_prob"],
        "weightScale": float(said["routed_scaling_factor"]),
        "expertGroups": said["n_group"],
        "groupsPerToken": said["topk_group"],
    }
    if said["norm_topk_prob"]:
        _check_top_k(said["top_k"])
    weights = {
        "gate": gate.weight.detach(),
        "correction_bias": gate.e_score_correction_bias.detach(),
        **_experts(block.experts, "gate_proj", "up_proj", "down_proj"),
        **_shared(block.shared_experts),
    }
    return Block(weights, top_k=said["top_k"], dropless=True, router=router)


def gpt_oss(block: torch.nn.Module) -> Block:
    """GptOssMLP in floating point (dequantize MXFP4 first). In place of the router's scores it returns None."""
    experts, router = block.experts, block.router
    if not isinstance(getattr(experts, "gate_up_proj", None), torch.Tensor):
        raise mismatch("experts", "weights that are quantized", "floating point; load the model dequantized")
    if experts.alpha != _STEEPNESS:
        raise mismatch("alpha", str(experts.alpha), f"{_STEEPNESS}, that of the executor's experts with a swigluLimit")
    both, biases = experts.gate_up_proj.detach(), experts.gate_up_proj_bias.detach()
    weights: dict[str, Weights] = {
        "gate": router.weight.detach(),
        "gate_bias": router.bias.detach(),
        "gate_up": both[..., ::2],
        "up": both[..., 1::2],
        "gate_up_bias": biases[..., ::2],
        "up_bias": biases[..., 1::2],
        "down": experts.down_proj.detach(),
        "down_bias": experts.down_proj_bias.detach(),
    }
    _check_top_k(router.top_k)
    return Block(
        weights,
        top_k=router.top_k,
        dropless=True,
        returns=lambda layer, x, y: (y, None),
        router={"bias": True},
        swiglu_limit=float(experts.limit),
    )


def llama4(block: torch.nn.Module) -> Block:
    """Llama4TextMoe of the published models, whose tokens have one expert each."""
    experts = block.experts
    _check_silu(experts.act_fn)
    gate_up, up = experts.gate_up_proj.detach().chunk(2, dim=-1)
    weights: dict[str, Weights] = {
        "gate": block.router.weight.detach(),
        "gate_up": gate_up,
        "up": up,
        "down": experts.down_proj.detach(),
        **_shared(block.shared_expert),
    }
    router = {"scoreFunction": "SIGMOID", "rawWeights": True, "weighsInput": True}
    return Block(weights, top_k=block.top_k, dropless=True, returns=_rows_with_logits, router=router)


_DEEPSEEK = ("top_k", "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor")
_STEEPNESS = 1.702


def _check_top_k(top_k: int) -> None:
    if top_k == 1:
        raise mismatch("top_k", "1", "more: of a single expert the executor's gate keeps the probability for a weight")


_CLASSES: dict[str, Adapter] = {
    "mixtral.modeling_mixtral.MixtralSparseMoeBlock": mixtral,
    "qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock": qwen3_moe,
    "olmoe.modeling_olmoe.OlmoeSparseMoeBlock": qwen3_moe,
    "deepseek_v3.modeling_deepseek_v3.DeepseekV3MoE": deepseek_v3,
    "glm4_moe.modeling_glm4_moe.Glm4MoeMoE": deepseek_v3,
    "dots1.modeling_dots1.Dots1MoE": deepseek_v3,
    "gpt_oss.modeling_gpt_oss.GptOssMLP": gpt_oss,
    "llama4.modeling_llama4.Llama4TextMoe": llama4,
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


def _block(block: torch.nn.Module, gate: str, up: str, down: str, raw_weights: bool = False) -> Block:
    weights = {"gate": block.gate.weight.detach(), **_experts(block.experts, gate, up, down)}
    router = {"rawWeights": raw_weights}
    if isinstance(block.experts, torch.nn.ModuleList):
        return Block(weights, top_k=block.top_k, dropless=True, returns=_with_logits, router=router)
    return Block(weights, top_k=block.gate.top_k, dropless=True, router=router)


def _check_silu(activation: torch.nn.Module) -> None:
    if "SiLU" not in type(activation).__name__:
        raise mismatch("hidden_act", type(activation).__name__, "SiLU: the executor's experts with a gate are SwiGLU")


def _experts(experts: Any, gate: str, up: str, down: str) -> dict[str, Weights]:
    """The experts' matrices: linear layers of these names in modules, or [E, 2 H, M] and [E, M, H] in one for all."""
    apart = isinstance(experts, torch.nn.ModuleList)
    _check_silu((experts[0] if apart else experts).act_fn)
    if apart:
        return {
            name: [getattr(expert, linear).weight.detach().T for expert in experts]
            for name, linear in (("gate_up", gate), ("up", up), ("down", down))
        }
    first, second = experts.gate_up_proj.detach().transpose(1, 2).chunk(2, dim=-1)
    return {"gate_up": first, "up": second, "down": experts.down_proj.detach().transpose(1, 2)}


def _shared(expert: torch.nn.Module) -> dict[str, Weights]:
    _check_silu(getattr(expert, "act_fn", None) or expert.activation_fn)
    return {
        f"shared_{name}": getattr(expert, linear).weight.detach().T
        for name, linear in (("gate_up", "gate_proj"), ("up", "up_proj"), ("down", "down_proj"))
    }


def _with_logits(layer: MoELayer, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the block returned: the logits, too, whose gradients go to the gate's weight."""
    return y, torch.nn.functional.linear(x.reshape(-1, x.shape[-1]), layer._by_expert("gate", layer.gate))


def _rows_with_logits(layer: MoELayer, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, with the output as rows of tokens."""
    return y.reshape(-1, y.shape[-1]), _with_logits(layer, x, y)[1]
