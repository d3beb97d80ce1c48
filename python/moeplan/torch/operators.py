"""The operators of a traced step, as their times are kept: what each calls, with its sizes, dtypes and settings. Pure."""

from __future__ import annotations

import hashlib
from typing import Any, Optional

import torch

from moeplan.torch import moe_tasks
from moeplan.torch.operator_times import Operator
from moeplan.torch.traced import BatchSize, ByBatch, Call, Constant, Given, Instruction, Read, Traced, Weight, mapped


class Operators:
    """The operators of a traced step, by instruction and pass."""

    def __init__(self, traced: Traced, ranks: int, nodes: int) -> None:
        self._traced = traced
        self._ranks, self._nodes = ranks, nodes
        self._texts: dict[tuple[str, int], str] = {}
        self.reached = traced.reached()

    def forward(self, one: Instruction, batch: int) -> list[Operator]:
        """An MoELayer has one for each of its instructions."""
        if one.layer is not None:
            return [self.of(one, name, batch) for name in moe_tasks.instructions_of(one.layer)]
        return [self.of(one, "forward", batch)]

    def backward(self, one: Instruction, batch: int) -> list[Operator]:
        if one.id not in self.reached:
            return []
        if one.layer is not None:
            return [self.of(one, name, batch) for name in moe_tasks.sides_of(one.layer)]
        there = (self._traced.goes_back(one), self._traced.learns(one))
        return [self.of(one, side, batch) for side, any_of in zip(("dx", "dw"), there) if any_of]

    def step(self, parts: int, ends: Optional[tuple[str, str]] = None) -> Operator:
        """The step itself, with the range between ``ends`` in so many parts, or as it is. Steps whose instructions have other
        names, or read others, are other steps."""
        whole = self._traced.batch
        everything = "\n".join(f"{one.id} {one.reads} {self._text(one, whole)}" for one in self._traced.instructions)
        digest = hashlib.sha256(everything.encode()).hexdigest()
        return Operator(f"step {digest}", f"{parts} parts of {ends[0]} to {ends[1]}" if ends else "as it is")

    def of(self, one: Instruction, side: str, batch: Optional[int] = None) -> Operator:
        if side == "dx" or (side == "dw" and not self._traced.goes_back(one)):
            side += " of " + "+".join(str(max(1, len(givers))) for givers in self.reached[one.id])
        return Operator(self._text(one, self._traced.batch if batch is None else batch), side)

    def _text(self, one: Instruction, batch: int) -> str:
        key = one.id, batch
        if key not in self._texts:
            self._texts[key] = self._described(one, batch)
        return self._texts[key]

    def _described(self, one: Instruction, batch: int) -> str:
        if one.layer is not None:
            read = next(source for source in one.main.sources if isinstance(source, Read))
            shape = self._traced.type_of(read).shape_at(batch)
            whole = self._traced.type_of(read).shape_at(self._traced.batch)
            return moe_tasks.described(one.layer, shape, whole, self._ranks, self._nodes)
        inside = {call.index: i for i, call in enumerate(one.calls)}
        return "; ".join(self._described_call(call, inside, batch) for call in one.calls)

    def _described_call(self, call: Call, inside: dict[int, int], batch: int) -> str:
        def text(leaf: Any) -> Any:
            if isinstance(leaf, Read) and leaf.call in inside:
                return _Text(f"%{inside[leaf.call]}.{leaf.output}")
            if isinstance(leaf, Read):
                kind = self._traced.type_of(leaf)
                return _Text(f"{kind.dtype}{list(kind.shape_at(batch))}{' learns' if kind.requires_grad else ''}")
            if isinstance(leaf, Given):
                return _Text("input")
            if isinstance(leaf, (Weight, Constant)):
                tensor = self._traced.parameters[leaf.name] if isinstance(leaf, Weight) else leaf.tensor
                return _Text(f"{tensor.dtype}{list(tensor.shape)}{' learns' if tensor.requires_grad else ''}")
            if isinstance(leaf, BatchSize):
                return leaf.at(batch)
            if isinstance(leaf, ByBatch):
                return leaf.value
            return leaf if isinstance(leaf, (int, float, str, bool, type(None))) else _Text(str(leaf))

        name = _described_module(call.target) if call.is_module else call.name
        kinds = [f"{kind.dtype}{list(kind.shape_at(batch))}" for kind in call.outputs]
        return f"{name} {mapped(text, call.args)} {mapped(text, call.kwargs)} -> {', '.join(kinds)}"


class _Text(str):
    """Printed inside a nest as it is."""

    def __repr__(self) -> str:
        return str(self)


def _described_module(module: torch.nn.Module) -> str:
    settings = {
        key: value
        for key, value in sorted(vars(module).items())
        if not key.startswith("_") and isinstance(value, (bool, int, float, str, tuple))
    }
    weights = [f"{name} {one.dtype}{list(one.shape)} {one.requires_grad}" for name, one in module.named_parameters()]
    return f"{type(module).__module__}.{type(module).__qualname__} {settings} {weights}"
