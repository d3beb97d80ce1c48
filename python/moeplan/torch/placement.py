"""Experts that change places between ranks, and what a router's loads say of the places they have."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
import torch.distributed as dist

from moeplan import library
from moeplan.errors import mismatch
from moeplan.torch.tensors import is_dense
from moeplan.torch.world import World, _peers_named

# Places are numbered through: those of the rank with the first experts, then those of the next. A placement says for each
# place the job's number of the expert that is there.


def check(placement: Sequence[int], experts: int, groups: int) -> list[int]:
    """The placement as a list. Raises InvalidInput where it is none, or takes experts of a group apart."""
    placed = [int(expert) for expert in placement]
    if sorted(placed) != list(range(experts)):
        raise mismatch("physical_to_logical", f"{placed}", f"each of 0 to {experts - 1} once")
    of_group = experts // groups
    for first in range(0, experts, of_group):
        if len({expert // of_group for expert in placed[first : first + of_group]}) > 1:
            found = f"places {first} to {first + of_group - 1} with experts of several groups"
            raise mismatch("physical_to_logical", found, "groups that stay together, as the router chooses among them")
    return placed


def inverse(placement: Sequence[int]) -> list[int]:
    """For each expert its place."""
    places = [0] * len(placement)
    for place, expert in enumerate(placement):
        places[expert] = place
    return places


def busiest_ratio(shares: Sequence[float], ranks: int) -> float:
    """What the busiest of ``ranks`` has, over the mean, where each has as many of the places."""
    each = len(shares) // ranks
    loads = [sum(shares[i * each : (i + 1) * each]) for i in range(ranks)]
    return max(loads) * ranks / sum(loads) if sum(loads) > 0 else 1.0


def planned_shares(workload: Any) -> list[float]:
    """The loads by place that a plan was made for (moeplan.v1.Workload), on any scale."""
    experts = workload.layer.experts
    if workload.routing.tokens_per_expert:
        return list(workload.routing.tokens_per_expert)
    return [(i + 1) ** -workload.routing.skew for i in range(experts)]


class Move:
    """From one placement to another, for tensors of one layer. ``holders``: the ranks that share out the experts of this
    rank's columns, in the order of their experts."""

    def __init__(self, world: World, holders: Sequence[int], groups: Sequence[Sequence[int]], own_experts: int,
                 before: Sequence[int], after: Sequence[int]) -> None:
        self._world, self._holders, self._groups = world, holders, groups
        places = inverse(before)
        self._sources = [places[expert] for expert in after]  # Where what comes to a place is now.
        own = holders.index(world.rank) * own_experts
        peers = range(0, own_experts * len(holders), own_experts)
        # By peer: the own places whose experts go there, in the order of the places they go to; and the other way.
        self._sent = [[s - own for s in self._sources[p : p + own_experts] if own <= s < own + own_experts] for p in peers]
        own_sources = self._sources[own : own + own_experts]
        self._received = [[i for i, s in enumerate(own_sources) if p <= s < p + own_experts] for p in peers]

    def apply(self, name: str, tensor: torch.Tensor) -> None:
        """Makes this rank's part of a tensor, or of one that is shaped like it, that of the new placement."""
        if name in library.ROUTER:
            tensor.copy_(tensor[self._sources])
        elif not is_dense(name):
            tensor.copy_(self._exchanged(tensor))

    def _exchanged(self, tensor: torch.Tensor) -> torch.Tensor:
        order = [i for places in self._sent for i in places]
        rows = tensor[order].contiguous()
        if len(self._holders) > 1:
            # As bytes, which every backend sends.
            sent = rows.reshape(len(rows), -1).view(torch.uint8)
            received = torch.empty_like(sent)
            sizes = [[len(places) for places in side] for side in (self._received, self._sent)]
            with _peers_named(), self._world._on_device():
                group = self._world._group_of(self._groups, self._holders)
                dist.all_to_all_single(received, sent, *sizes, group=group)
            rows = received.view(tensor.dtype).view(rows.shape)
        result = torch.empty_like(tensor)
        result[[i for places in self._received for i in places]] = rows
        return result


def tensors_like(name: str, parameter: torch.Tensor, optimizer: Optional[torch.optim.Optimizer]) -> list[torch.Tensor]:
    """A parameter, its gradient, and what an optimizer keeps of it.

    Raises InvalidInput where the optimizer has copies of its own to learn with, or keeps what has another shape.
    """
    found = [parameter.detach()]
    if parameter.grad is not None:
        found.append(parameter.grad)
    if optimizer is None or not parameter.requires_grad:
        return found
    if all(one is not parameter for group in optimizer.param_groups for one in group["params"]):
        raise mismatch("optimizer", f"one that does not have {name}", "the one that changes the layer's own parameters")
    for key, value in sorted(optimizer.state.get(parameter, {}).items(), key=lambda item: str(item[0])):
        if not isinstance(value, torch.Tensor) or value.numel() <= 1:
            continue
        if value.shape != parameter.shape:
            raise mismatch("optimizer", f"{key} of {name} in another shape", "states in the shapes of their parameters")
        found.append(value)
    return found
