"""Which instructions of a model's forward pass run in parts, as the plan of its training graph says. Pure; any thread."""

from __future__ import annotations

import itertools
from typing import NamedTuple, Optional, Sequence, Union

from moeplan.errors import mismatch
from moeplan.torch import moe_tasks, operations
from moeplan.torch.traced import BatchSize, Instruction, Read, Traced

_DROPOUTS_IN_PARTS = {
    *("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"),
    *("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout"),
}


class Partition(NamedTuple):
    """Of a plan: the instructions from ``first`` to ``last``, in ``parts`` along the batch. ``place``: where it says so."""

    first: str
    last: str
    parts: int
    place: str


class Range(NamedTuple):
    """Instructions that run part by part. ``before``: others between them, which read nothing of theirs and are of the batch
    as a whole, such as positions, or mix samples.
    ``joined``: outputs that others read, or that the model gives, as a whole."""

    instructions: list[Instruction]
    before: list[Instruction]
    parts: int
    joined: list[Read]


Step = Union[Instruction, Range]


def steps_of(traced: Traced, partitions: Sequence[Partition], kept: Sequence[Read]) -> list[Step]:
    """What runs after what. ``kept``: what the model gives.

    An MoELayer is in parts as a whole, also where the plan cuts some of its instructions alone; ranges that meet in one
    are one range, of the more parts. Raises InvalidInput that names what the model has not, or what cannot be cut.
    """
    steps: list[Step] = []
    done = 0
    for first, last, one in _spans(traced, partitions):
        steps += traced.instructions[done:first]
        steps.append(_range(traced, traced.instructions[first : last + 1], one, kept))
        done = last + 1
    return steps + traced.instructions[done:]


def longest(traced: Traced) -> Optional[tuple[str, str]]:
    """The names of the first and the last instruction of the longest stretch of the model that carries samples from one
    instruction to the next: of those with the most MoELayers. None where no such stretch has half of them, so that what it
    takes in parts would be lost in what the rest takes."""
    stretches = itertools.groupby(traced.instructions, lambda one: _carries_samples(traced, one))
    found = [list(stretch) for carries, stretch in stretches if carries]
    layers = [sum(one.layer is not None for one in stretch) for stretch in found]
    if not layers or 2 * max(layers) < max(1, sum(one.layer is not None for one in traced.instructions)):
        return None
    best = max(zip(layers, map(len, found), found), key=lambda each: each[:2])[2]
    return moe_tasks.ends_of(best[0])[0], moe_tasks.ends_of(best[-1])[1]


def _carries_samples(traced: Traced, one: Instruction) -> bool:
    if not one.samples or one.op == "OTHER" or one.main.index >= traced.model_ends:
        return False
    if one.layer is not None and moe_tasks.why_whole(one.layer):
        return False
    return any(traced.producer[read.call].samples for read in one.reads)


def _spans(traced: Traced, partitions: Sequence[Partition]) -> list[tuple[int, int, Partition]]:
    """Places of the first and last instructions, in their order, with the parts that they have."""
    places = {one.id: i for i, one in enumerate(traced.instructions)}
    spans: list[tuple[int, int, Partition]] = []
    for one in partitions:
        first, last = (_place(places, traced, name, one.place) for name in (one.first, one.last))
        if first > last:
            raise mismatch(one.place, f"{one.first} behind {one.last}", "a range in the order of the forward pass")
        spans.append((first, last, one))
    spans.sort(key=lambda span: span[:2])
    apart: list[tuple[int, int, Partition]] = []
    for first, last, one in spans:
        if apart and first <= apart[-1][1]:
            begin, end, other = apart.pop()
            first, last, one = begin, max(end, last), max(other, one, key=lambda each: each.parts)
        apart.append((first, last, one))
    return apart


def _place(places: dict[str, int], traced: Traced, name: str, where: str) -> int:
    if name in places and traced.by_id[name].layer is None:
        return places[name]
    path, _, task = name.rpartition(".")
    if path in places and traced.by_id[path].layer is not None and task in moe_tasks.FORWARD:
        return places[path]
    raise mismatch(where, name, "instructions of this model's forward pass, as moeplan.torch.capture has them")


def _range(traced: Traced, inside: list[Instruction], partition: Partition, kept: Sequence[Read]) -> Range:
    parted: list[Instruction] = []
    before: list[Instruction] = []
    made: set[Read] = set()
    for one in inside:
        if one.samples:
            _check(traced, one, made, partition.place)
            parted.append(one)
            made.update(one.outputs)
        elif one.layer is not None and moe_tasks.why_whole(one.layer):
            found = f"{one.id}, whose {moe_tasks.why_whole(one.layer)} looks at the whole batch"
            raise mismatch(partition.place, found, "layers whose source batches may come in parts")
        elif any(call.random for call in one.calls):
            raise mismatch(partition.place, f"{one.id}, which draws for the batch as a whole", "Dropout of what is cut, whose mask is")
        elif made.isdisjoint(one.reads):
            before.append(one)
        else:
            raise mismatch(partition.place, f"{one.id}, which mixes samples", "instructions whose parts give parts")
    members = {one.id for one in inside}
    read = {read for one in traced.instructions if one.id not in members for read in one.reads} | set(kept)
    parts = min(partition.parts, traced.batch)
    for size in {traced.batch // parts, -(-traced.batch // parts)}:
        for one in parted:
            for call in one.calls:
                for output in call.outputs:
                    output.shape_at(size)  # Raises where a part would have half an element.
    return Range(parted, before, parts, [output for one in parted for output in one.outputs if output in read])


def _check(traced: Traced, one: Instruction, made: set[Read], place: str) -> None:
    for read in one.reads:
        kind = traced.type_of(read)
        if read not in made and kind.cut is None and any(isinstance(size, BatchSize) for size in kind.shape):
            raise mismatch(place, f"{one.id}, which reads {traced.name_of(read)}", "tensors of which one dimension follows the batch")
    for call in one.calls:
        name = type(call.target).__name__ if call.is_module else operations.name_of(call.target)
        if call.random and name not in _DROPOUTS_IN_PARTS:
            raise mismatch(place, f"{one.id}, whose {name} draws in a way of its own", "Dropout, whose mask can be cut")
