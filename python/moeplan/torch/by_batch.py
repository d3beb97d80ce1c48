"""How a step of the whole batch differs from that of its part. Pure."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch

from moeplan.torch.traced import BatchSize, ByBatch, Constant, Given, Read, Weight, sources_of

_AGREE = {torch.float64: 1e-6, torch.float32: 1e-3}
_ROUNDED = 5e-2


def rounding(dtype: torch.dtype) -> float:
    """How far values of the dtype may be off, as a part of the largest."""
    return _AGREE.get(dtype, _ROUNDED)


def alike(found: torch.Tensor, expected: torch.Tensor) -> bool:
    if found.is_complex() and expected.is_complex():
        pairs = (torch.view_as_real(one.detach().resolve_conj()) for one in (found, expected))
        return alike(*pairs)
    if not found.is_floating_point():
        return torch.equal(found, expected)
    if found.numel() == 0:
        return True
    both = found.detach().double(), expected.double()
    finite = both[0].isfinite()
    if not torch.equal(finite, both[1].isfinite()):
        return False
    one, other = (value.where(finite, torch.zeros_like(value)) for value in both)
    most = float(other.abs().max())
    return float((one - other).abs().max()) <= rounding(found.dtype) * most


def size_by_batch(whole: int, part: int, whole_batch: int, part_batch: int) -> Any:
    """How the size follows the batch."""
    if whole == part:
        return whole
    scale = Fraction(whole - part, whole_batch - part_batch)
    return BatchSize(scale, whole - scale * whole_batch)


def merged(whole: Any, part: Any, whole_batch: int, part_batch: int) -> Any:
    """The arguments of the whole batch, with a BatchSize for each number that differs."""
    if type(whole) is not type(part):
        return ByBatch(whole, whole_batch)
    if isinstance(whole, (Read, Given, Weight, Constant)):
        return whole
    if isinstance(whole, (tuple, list)) and len(whole) != len(part) and not any(sources_of(whole)):
        return ByBatch(whole, whole_batch)
    if isinstance(whole, (tuple, list)) and len(whole) == len(part):
        inside = [merged(one, other, whole_batch, part_batch) for one, other in zip(whole, part)]
        return tuple(inside) if isinstance(whole, tuple) else inside
    if isinstance(whole, dict):
        return {key: merged(one, part.get(key), whole_batch, part_batch) for key, one in whole.items()}
    if isinstance(whole, slice):
        fields = ("start", "stop", "step")
        return slice(*(merged(getattr(whole, f), getattr(part, f), whole_batch, part_batch) for f in fields))
    if isinstance(whole, int) and not isinstance(whole, bool):
        return size_by_batch(whole, part, whole_batch, part_batch)
    if isinstance(whole, float) and whole != part:
        return ByBatch(whole, whole_batch)
    return whole
