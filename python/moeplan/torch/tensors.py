"""The tensors of a layer: their whole shapes, a rank's part of them, and what they begin with. Pure; any thread."""

from __future__ import annotations

import math
from typing import Any, Optional

import torch

from moeplan import library

# Their places in this list number the draws that layers begin with.
_DRAWN = tuple(name for name in library.TENSORS if name != "gate_bias")


def is_dense(name: str) -> bool:
    """Whether every rank of an MP group holds the tensor, or its part of a shared expert's, for its own source batch."""
    return name in library.ROUTER or name.startswith("shared_")


def full_shapes(layer: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of the whole tensors that a layer (moeplan.v1.Layer) has, by the names of ``load_full_weights``."""
    gated, biased, router = layer.expert_matrices == 3, layer.expert_bias, layer.router
    shapes: dict[str, tuple[int, ...]] = {"gate": (layer.experts, layer.model_dim)}
    for name, there in (("gate_bias", router.bias), ("correction_bias", router.correction_bias)):
        if there:
            shapes[name] = (layer.experts,)
    for prefix, experts, hidden in (
        ("", (layer.experts,), layer.hidden_dim),
        ("shared_", (), layer.shared_hidden_dim),
    ):
        if hidden == 0:
            continue
        for name, shape, there in (
            ("up", (layer.model_dim, hidden), True),
            ("gate_up", (layer.model_dim, hidden), gated),
            ("down", (hidden, layer.model_dim), True),
            ("up_bias", (hidden,), biased),
            ("gate_up_bias", (hidden,), gated and biased),
            ("down_bias", (layer.model_dim,), biased),
        ):
            if there:
                shapes[prefix + name] = (*experts, *shape)
    return shapes


def own_part(shard: library.Shard, name: str) -> Optional[tuple[slice, ...]]:
    """Where a rank's part of a whole tensor lies; None where it has no part."""
    if name in library.ROUTER:
        return (slice(None),)
    if name.startswith("shared_"):
        experts: tuple[slice, ...] = ()
        hidden = slice(shard.shared_first_hidden, shard.shared_first_hidden + shard.shared_hidden)
        last = shard.shared_adds_last_bias
    else:
        experts = (slice(shard.first_expert, shard.first_expert + shard.experts),)
        hidden = slice(shard.first_hidden, shard.first_hidden + shard.hidden)
        last = shard.adds_last_bias
    kind = name.replace("shared_", "")
    if kind == "down_bias":
        return experts if last else None
    return (*experts, hidden) if kind in ("down", "up_bias", "gate_up_bias") else (*experts, slice(None), hidden)


def initial(
    layer: Any, name: str, shape: tuple[int, ...], part: tuple[slice, ...], seed: int, dtype: torch.dtype
) -> torch.Tensor:
    """As torch.nn.Linear begins; one expert at a time, whole, so that every layout has the same. Routers' biases are 0."""
    if name == "correction_bias":
        return torch.zeros(shape, dtype=torch.float32)  # Added to scores, which are float.
    if name == "gate_bias":
        return torch.zeros(shape, dtype=dtype)
    hidden = layer.shared_hidden_dim if name.startswith("shared_") else layer.hidden_dim
    bound = 1 / math.sqrt(hidden if "down" in name else layer.model_dim)
    generator = torch.Generator()

    def drawn(number: int, shape: tuple[int, ...]) -> torch.Tensor:
        generator.manual_seed((seed * len(_DRAWN) + _DRAWN.index(name)) * 65536 + number)
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)

    if is_dense(name):
        return drawn(0, shape)[part].to(dtype).contiguous()
    experts, inside = range(shape[0])[part[0]], part[1:]
    if len(experts) == 0:
        return torch.empty(0, *shape[1:], dtype=dtype)
    return torch.stack([drawn(expert, shape[1:])[inside] for expert in experts]).to(dtype).contiguous()
