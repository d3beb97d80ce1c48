"""A layer's tensors, cut over the ranks of a job."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from moeplan import library
from moeplan.baseline import with_router_defaults
from moeplan.errors import InvalidInput, mismatch
from moeplan.torch.placement import Move, check, inverse, tensors_like
from moeplan.torch.tensors import full_shapes, initial, is_dense, own_part
from moeplan.torch.world import World
from moeplan.v1 import workload_pb2


class ShardedWeights(torch.nn.Module):
    """What a MoELayer holds: this rank's parts of its tensors, and how they make up the whole ones.

    ``workload``: moeplan.v1.Workload; ``shard``: where this rank's parts lie. Collective: every rank of the job makes them.
    """

    def __init__(self, workload: Any, shard: library.Shard, world: World, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self.world = world
        self.dtype = dtype
        self._workload = workload
        self._shard = shard
        self._make_groups()
        self.register_buffer("placement", None)
        self._make_parameters(seed)
        self._names = tuple(name for name in library.TENSORS if getattr(self, name) is not None)

    @property
    def _layer(self) -> Any:
        return self._workload.layer

    @property
    def _degrees(self) -> tuple[int, int, int, int]:
        """TP, EP, ESP and the ranks of a pipeline stage."""
        layout = self._workload.layout
        stages = max(1, layout.pipeline_parallel)
        return (
            max(1, layout.tensor_parallel),
            max(1, layout.expert_parallel),
            max(1, layout.expert_sharding_parallel),
            self.world.ranks // stages,
        )

    def _make_groups(self) -> None:
        tensor, expert, sharding, stage = self._degrees
        firsts = range(0, self.world.ranks, stage)
        holders = expert * sharding
        # Ranks with the same experts, with the same place in their MP group, of one MP group, of one stage.
        self._expert_groups = [[*range(f + i, f + stage, holders)] for f in firsts for i in range(holders)]
        self._dense_groups = [[*range(f + i, f + stage, tensor)] for f in firsts for i in range(tensor)]
        self._tensor_groups = [[*range(i, i + tensor)] for i in range(0, self.world.ranks, tensor)]
        self._stage_groups = [[*range(f, f + stage)] for f in firsts]
        # Ranks that share out the experts of the same columns, in the order of their experts.
        columns = [f + shard + first for f in firsts for first in range(0, stage, holders) for shard in range(sharding)]
        self._sharing_groups = [[*range(first, first + holders, sharding)] for first in columns]
        for groups in (
            self._expert_groups,
            self._dense_groups,
            self._tensor_groups,
            self._stage_groups,
            self._sharing_groups,
        ):
            self.world._make_groups(groups)

    # ---- Parameters.

    def _make_parameters(self, seed: int) -> None:
        shapes = full_shapes(self._layer)
        for name in library.WEIGHTS:
            part = own_part(self._shard, name) if name in shapes else None
            if part is None:
                self.register_parameter(name, None)
                continue
            value = initial(self._layer, name, shapes[name], part, seed, self.dtype).to(self.world.device)
            if name == "correction_bias":
                self.register_buffer(name, value)
                continue
            parameter = torch.nn.Parameter(value)
            if not is_dense(name):
                parameter.allreduce = False
                parameter.group_name = f"ep_size_{self._degrees[1]}"
            self.register_parameter(name, parameter)

    def load_full_weights(
        self,
        *,
        gate: torch.Tensor,
        up: torch.Tensor,
        down: torch.Tensor,
        gate_bias: torch.Tensor | None = None,
        correction_bias: torch.Tensor | None = None,
        gate_up: torch.Tensor | None = None,
        up_bias: torch.Tensor | None = None,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        shared_up: torch.Tensor | None = None,
        shared_gate_up: torch.Tensor | None = None,
        shared_down: torch.Tensor | None = None,
        shared_up_bias: torch.Tensor | None = None,
        shared_gate_up_bias: torch.Tensor | None = None,
        shared_down_bias: torch.Tensor | None = None,
    ) -> None:
        """Takes this rank's part of whole tensors, alike on all ranks.

        gate [E, M]; gate_bias, correction_bias [E]; up, gate_up [E, M, H]; down [E, H, M]; up_bias, gate_up_bias [E, H];
        down_bias [E, M]; shared_up, shared_gate_up [M, S]; shared_down [S, M]; shared_up_bias, shared_gate_up_bias [S];
        shared_down_bias [M]. Exactly those that the layer has. Not collective.
        """
        given = {name: value for name, value in locals().items() if name in library.WEIGHTS and value is not None}
        shapes = full_shapes(self._layer)
        for name in library.WEIGHTS:
            found = tuple(given[name].shape) if name in given else None
            if found != shapes.get(name):
                expected = f"a tensor of shape {shapes[name]}" if name in shapes else "none, as the layer has none"
                raise mismatch(name, "none" if found is None else f"a tensor of shape {found}", expected)
        with torch.no_grad():
            for name, value in given.items():
                part = own_part(self._shard, name)
                if part is not None:
                    getattr(self, name).copy_(self._by_place(name, value)[part])

    def full_weights(self) -> dict[str, torch.Tensor]:
        """The whole tensors, by the names and shapes of ``load_full_weights``. Collective; the same on all ranks."""
        return self._gathered({name: getattr(self, name) for name in library.WEIGHTS}, parts_of_sums=False)

    def _gathered(self, own: dict[str, torch.Tensor | None], parts_of_sums: bool) -> dict[str, torch.Tensor]:
        tensor, expert, sharding, stage = self._degrees
        place = self.world.rank % stage
        first_holder = place < expert * sharding, place < tensor
        whole = {}
        for name, shape in full_shapes(self._layer).items():
            if name not in own:
                continue
            dtype = torch.float32 if name == "correction_bias" else self.dtype
            full = torch.zeros(shape, dtype=dtype, device=self.world.device)
            part = own_part(self._shard, name)
            if name in library.ROUTER:
                counts = place % tensor == 0 if parts_of_sums else place == 0
            else:
                counts = parts_of_sums or first_holder[name.startswith("shared_")]
            value = own.get(name)
            if counts and part is not None and value is not None:
                full[part] = value.detach().to(dtype)
            self.world._sum(full, self._stage_groups)
            whole[name] = self._by_expert(name, full)
        return whole

    # ---- Where experts are.

    def _order(self) -> list[int] | None:
        """The expert at each place; None where each has its own number's."""
        return None if self.placement is None else self.placement.tolist()

    def _by_expert(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """A whole tensor whose first dimension, unless it is a shared expert's, is by place, by the job's numbers."""
        order = self._order()
        return tensor if order is None or name.startswith("shared_") else tensor[inverse(order)]

    def _by_place(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        order = self._order()
        return tensor if order is None or name.startswith("shared_") else tensor[order]

    def _move_experts(self, asked: Sequence[int], optimizer: torch.optim.Optimizer | None) -> None:
        """To a placement, with gradients and what the optimizer keeps. Collective; raises before anything has moved."""
        wrong: InvalidInput | None = None
        after: list[int] = []
        tensors: list[tuple[str, torch.Tensor]] = []
        try:
            after = self._checked(asked)
            for name in self._names:
                tensors.extend((name, tensor) for tensor in tensors_like(name, getattr(self, name), optimizer))
        except InvalidInput as error:
            wrong = error
        self._agree_to_move(wrong, after, [name for name, _ in tensors])
        before = self._order() or list(range(self._layer.experts))
        holders = next(group for group in self._sharing_groups if self.world.rank in group)
        move = Move(self.world, holders, self._sharing_groups, self._shard.experts, before, after)
        with torch.no_grad():
            for name, tensor in tensors:
                move.apply(name, tensor)
            if self.correction_bias is not None:
                move.apply("correction_bias", self.correction_bias)
        self.placement = torch.tensor(after, device=self.world.device)

    def _checked(self, asked: Sequence[int]) -> list[int]:
        layer, router = self._layer, with_router_defaults(self._layer.router)
        if layer.gate in (workload_pb2.Gate.RANDOM, workload_pb2.Gate.HASH):
            raise mismatch("plan.workload.layer.gate", workload_pb2.Gate.Kind.Name(layer.gate), "one that scores experts")
        limited = router.groups_per_token < router.expert_groups
        return check(asked, layer.experts, router.expert_groups if limited else 1)

    def _agree_to_move(self, wrong: InvalidInput | None, after: list[int], names: list[str]) -> None:
        """Raises InvalidInput on every rank of the stage where one cannot move experts, or would move others. Ranks that
        share out experts exchange tensor by tensor, so they have as many of each."""
        said = self.world._gather_in(self._stage_groups, (None if wrong is None else str(wrong), after))
        if wrong is not None:
            raise wrong
        for rank, (error, other) in said.items():
            if error is not None:
                raise mismatch("physical_to_logical", f"an error on rank {rank} ({error})", "a placement on every rank")
            if other != after:
                raise mismatch("physical_to_logical", f"{other} on rank {rank}", f"{after}, as on rank {self.world.rank}")
        for rank, other in self.world._gather_in(self._sharing_groups, names).items():
            if other != names:
                found = f"{len(other)} tensors to move on rank {rank}"
                raise mismatch("optimizer", found, f"{len(names)}, as on rank {self.world.rank}: parameters, gradients, states")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        if f"{prefix}gate" in state_dict:  # Else the weights stay, and experts where they are.
            saved = state_dict.get(f"{prefix}placement")
            self.placement = None if saved is None else torch.empty_like(saved, device=self.world.device)
        super()._load_from_state_dict(state_dict, prefix, *others)
