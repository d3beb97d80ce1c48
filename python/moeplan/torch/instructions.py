"""Puts the calls of a traced step together as instructions. Pure; any thread."""

from __future__ import annotations

from collections import Counter
from typing import Iterable, Iterator

from moeplan.torch import moe_tasks, operations
from moeplan.torch.traced import Call, Instruction, Read, Source, Weight


def instructions_of(calls: list[Call], kept: Iterable[Source], model_ends: int) -> list[Instruction]:
    """The instructions of the calls, in their order, but for what mixes samples and only the loss or the model's output
    needs, such as a router's loss: that runs once the model's samples have. So it stands in the way of no range. ``kept``: what
    is read after the step's end; ``model_ends``: the first call of the loss.

    A view that one instruction reads, and what depends on neither inputs nor parameters, go to their first reader; a view
    with several readers is an instruction of its own.
    """
    owners = _owners(calls, {one.call for one in kept if isinstance(one, Read)})
    members: dict[int, list[Call]] = {}
    for call in calls:
        if owners[call.index] is not None:
            members.setdefault(owners[call.index], []).append(call)
    names = _Names({call.path for call in calls if call.is_module})
    found = [_instruction(calls[index], members[index], calls, names) for index in sorted(members)]
    aside = _aside([one for one in found if one.main.index < model_ends], calls)
    return sorted(found, key=lambda one: (one.main.index >= model_ends, one.main.index in aside))


def _aside(instructions: list[Instruction], calls: list[Call]) -> set[int]:
    """The last calls of those that give nothing, through any others, to instructions of samples, and read nothing that is
    changed in place later."""
    changed = {_origin(calls, call.index): call.index for call in calls if call.mutates}  # By origin: the last change.
    needed: set[int] = set()  # Calls.
    aside: set[int] = set()
    for one in reversed(instructions):
        draws = any(call.random for call in one.calls)  # In the order of the step.
        changes = any(changed.get(_origin(calls, read.call), -1) > one.main.index for read in one.reads)
        if one.samples or one.layer is not None or draws or changes or one.main.index in needed:
            needed.update(read.call for read in one.reads)
        else:
            aside.add(one.main.index)
    return aside


def _origin(calls: list[Call], index: int) -> int:
    """The call that made the memory of what the call gives."""
    while calls[index].aliases or calls[index].mutates:
        first = next(iter(calls[index].sources), None)
        if not isinstance(first, Read):
            break
        index = first.call
    return index


def _owners(calls: list[Call], kept: set[int]) -> dict[int, int | None]:
    """By call: the last call of its instruction; None where nothing reads it."""
    owners: dict[int, int | None] = {}
    readers: dict[int, set[int]] = {call.index: set() for call in calls}
    for call in reversed(calls):
        found = readers[call.index]
        if not _folds(call) or (call.varies and (len(found) > 1 or call.index in kept)):
            owner: int | None = call.index
        else:
            owner = min(found, default=None)
        owners[call.index] = owner
        if owner is None:
            continue
        for source in call.sources:
            if isinstance(source, Read):
                readers[source.call].add(owner)
    return owners


def _folds(call: Call) -> bool:
    return not call.varies or call.aliases


def _instruction(main: Call, members: list[Call], calls: list[Call], names: _Names) -> Instruction:
    inside = {call.index for call in members}
    sources = dict.fromkeys(source for call in members for source in call.sources)
    reads = [one for one in sources if isinstance(one, Read) and one.call not in inside and calls[one.call].varies]
    weights = [one.name for one in sources if isinstance(one, Weight)]
    weights += main.weights
    samples = not any(call.mixes for call in members) and all(one.axis is not None for one in main.outputs)
    samples = samples and not (main.is_moe and moe_tasks.why_whole(main.target))
    op = operations.op_of_module(main.target) if main.is_module else operations.op_of_function(main.name)
    if not samples and op != "MOE":
        op = "OTHER"
    return Instruction(names.of(main), op, members, reads, weights, samples)


class _Names:
    """A module's call has the module's path, and "@2" where it is called again; a function its name behind the path of the
    module that calls it, and "_1" where that calls it again."""

    def __init__(self, paths: set[str]) -> None:
        self._paths = paths  # Of modules that are called, whose names no function takes.
        self._seen: Counter[tuple[bool, str]] = Counter()
        self._given: set[str] = set()

    def of(self, call: Call) -> str:
        taken = self._given if call.is_module else self._given | self._paths
        name = next(name for name in self._candidates(call) if name not in taken)
        self._given.add(name)
        return name

    def _candidates(self, call: Call) -> Iterator[str]:
        if call.is_module:
            base = call.path or type(call.target).__name__
        else:
            base = f"{call.path}.{call.name}".lstrip(".")
        while True:
            count = self._seen[call.is_module, base]
            self._seen[call.is_module, base] += 1
            if call.is_module:
                yield base if count == 0 else f"{base}@{count + 1}"
            else:
                yield base if count == 0 else f"{base}_{count}"
