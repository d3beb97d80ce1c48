"""Gradients of a model's MoE layers between a backward pass and the optimizer's step."""

from __future__ import annotations

from typing import Iterator

import torch

from moeplan import library
from moeplan.torch.layer import MoELayer
from moeplan.torch.tensors import is_dense


def _layers(model: torch.nn.Module) -> Iterator[MoELayer]:
    return (module for module in model.modules() if isinstance(module, MoELayer))


def flush_weight_gradients(model: torch.nn.Module) -> None:
    """Adds what ``defer_weight_gradients`` has left in any of the model's MoELayers. Not collective."""
    for layer in _layers(model):
        layer.weight_gradients()


def reduce_gradients(model: torch.nn.Module, experts_only: bool = False) -> None:
    """Sums the gradients of the model's MoELayers over the ranks that hold the same parameters.

    Those of experts over the ranks with the same shard, those of gates and shared experts over the source batches. Until
    then ``.grad`` is this rank's part; a mean over the batches is the caller's to take. Other parameters are left to
    whoever replicates them. ``experts_only`` leaves gates and shared experts, too: where DistributedDataParallel has them.
    Collective; call it once after the backward passes of a step.
    """
    for layer in _layers(model):
        for name in library.TENSORS:
            parameter = getattr(layer, name)
            if parameter is None or not parameter.requires_grad or layer._passes.reduced:
                continue
            dense = is_dense(name)
            if dense and experts_only:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            layer.world._sum(parameter.grad, layer._dense_groups if dense else layer._expert_groups)
        layer._passes.reduced = True
