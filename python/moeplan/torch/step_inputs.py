"""What a step is called with: inputs, their samples, and the loss of what the model gives. Pure; any thread."""

from __future__ import annotations

import inspect
from typing import Any, Callable, NamedTuple, Optional, Union

import torch
from torch import nn

from moeplan.errors import mismatch
from moeplan.torch.traced import flat_tensors, mapped

Inputs = Union[torch.Tensor, tuple, list, dict]
Loss = Optional[Callable[..., torch.Tensor]]


class Arguments(NamedTuple):
    """Of a forward pass."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def batch_of(inputs: Inputs) -> int:
    """The samples: the first dimension of the first tensor."""
    tensors = [one for one in flat_tensors(inputs) if one.dim() > 0]
    if not tensors:
        raise mismatch("inputs", "no tensor", "the model's inputs, with samples along their first dimension")
    return tensors[0].shape[0]


def part_of(inputs: Inputs, batch: int, part: int, first: int = 0) -> Inputs:
    """``part`` samples from ``first`` on, or the last ``-part``, of every tensor that has ``batch`` along its first
    dimension."""
    samples = slice(part, None) if part < 0 else slice(first, first + part)

    def cut(value: Any) -> Any:
        has_samples = isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == batch
        return value[samples] if has_samples else value

    return mapped(cut, inputs)


def are_alike(inputs: Any) -> bool:
    """Whether there are several samples, each the same as the first."""
    batch = batch_of(inputs)
    cut = [one for one in flat_tensors(inputs) if one.dim() > 0 and one.shape[0] == batch]
    return batch > 1 and all(bool((one == one[:1]).all()) for one in cut)


def called(model: nn.Module, inputs: Inputs) -> Any:
    """What the model gives; inside of DistributedDataParallel, which would wait for gradients."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def loss_of(loss: Loss, output: Any, inputs: Inputs) -> Any:
    """``loss(output)``, or ``loss(output, inputs)`` where it takes two; None: what the model calls its loss."""
    if loss is not None:
        return loss(output, inputs) if _takes_two(loss) else loss(output)
    if isinstance(output, torch.Tensor):
        return output
    if hasattr(output, "loss"):
        return output.loss
    scalars = [one for one in flat_tensors(output) if one.numel() == 1]
    return scalars[0] if scalars else output


def _takes_two(loss: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss)
    except (TypeError, ValueError):
        return False
    needed = [
        one
        for one in signature.parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    return len(needed) == 2
