"""The training graph of a job's own model, with times that were measured where it runs."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import statistics
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

import torch

from moeplan.errors import InvalidInput
from moeplan.torch import moe_tasks
from moeplan.torch.deferred import Slots
from moeplan.torch.forward_in_parts import Program
from moeplan.torch.graph_writer import written
from moeplan.torch.operator_times import Operator, OperatorTimes
from moeplan.torch.operators import Operators
from moeplan.torch.paced_step import PacedStep
from moeplan.torch.ranges import Partition, longest
from moeplan.torch.step_inputs import Inputs, Loss, called, loss_of
from moeplan.torch.traced import Traced, flat_tensors, remember
from moeplan.torch.tracer import trace
from moeplan.torch.world import World

_RUNS = 5
_CUTS = (1, 2, 4, 8)


class CapturedGraph(dict):
    """The dict that ``moeplan plan --graph`` accepts. ``timed``: how many operators this capture has timed, 0 where all
    were known. ``traced``: what the instructions run."""

    timed: int = 0
    traced: Traced


def capture(
    model: torch.nn.Module,
    inputs: Inputs,
    loss: Loss,
    world: World,
    cache: Union[str, os.PathLike, None] = None,
) -> CapturedGraph:
    """The training graph of one step of this rank: ``loss(model(*inputs))`` and its backward pass.

    ``inputs``: a tensor, a tuple of the model's arguments or a dict of its keyword arguments; samples lie along the first
    dimension of the first tensor, and of those whose first is as long. ``loss``: a function of the model's output that gives
    a scalar, or of output and inputs; None where the output is, or has, the loss. ``cache``: the file of operator times;
    None: operators.db in the user's cache folder.

    Every operator that the file lacks is timed in steps that run one instruction after another: the median of five after
    one that does not count, scaled so that all together take what the step takes as the job runs it, in turn with those;
    then the mean over the ranks. Times of parts are measured, both ways, in 2, 4 and 8 parts of the batch, lie between those
    on straight lines of logarithms, and are at least their share of the whole, but for layers with a capacity. An MoELayer's
    tasks take what they take inside of these steps. Steps whose longest range runs in 2, 4 and 8 parts, as
    ``moeplan.torch.scheduled`` runs them, are timed in turn with the others: ``measuredSteps``, from which the planner has what
    parts take beside each other. Weights, gradients and random states stay as they are. The optimizer, and what sums gradients
    over ranks, are not in the graph.

    Collective: every rank of the job captures its own model, with as many samples. Raises InvalidInput, naming the module
    or the function, for what a graph cannot hold.
    """
    traced = trace(model, inputs, loss)
    for one in traced.instructions:
        if one.layer is not None:
            moe_tasks.check_plan(one.id, one.layer)
    operators = Operators(traced, world.ranks, world.nodes)
    times = _opened(cache, world)
    steps = _steps_of(model, traced, operators, lambda: loss_of(loss, called(model, inputs), inputs), inputs, world)
    wanted = {size: _operators_of(traced, operators, size) for size in _sizes(traced)}
    for step in steps:
        wanted[traced.batch // step.parts].append(step.operator)
    known = times.find(operator for of_size in wanted.values() for operator in of_size)
    if any(step.operator not in known for step in steps):  # They are compared, so all are of one session.
        known = {one: seconds for one, seconds in known.items() if one not in {step.operator for step in steps}}
    paced = PacedStep(traced, operators, inputs, world.device)
    measured = _measure(paced, steps, world, wanted, known)
    times.keep(measured)
    seconds = _agreed({**known, **measured}, world)
    graph = CapturedGraph(written(traced, _Times(traced, operators, seconds, sorted(wanted))))
    if len(steps) > 1:
        own = [{**step.fields, "timeS": {**known, **measured}[step.operator]} for step in steps]
        graph["measuredSteps"] = world._gather(own)[0]  # One session's, also where the files of ranks differ.
    graph.timed = len(measured)
    graph.traced = traced
    remember(model, traced)
    return graph


def _opened(cache: Union[str, os.PathLike, None], world: World) -> OperatorTimes:
    """The file of operator times. Where one rank cannot use its own, all raise. Collective."""
    times, failed = None, None
    try:
        times = OperatorTimes(cache, world.device, world.gpus_per_node)
    except InvalidInput as error:
        failed = error
    for error in world._gather(failed):
        if error is not None:
            raise error
    assert times is not None
    return times


class _Step(NamedTuple):
    """The step as the job runs it, whole or with its longest range in ``parts``. ``run``: gives its loss."""

    parts: int
    operator: Operator
    run: Callable[[], torch.Tensor]
    fields: dict[str, Any]


def _steps_of(
    model: torch.nn.Module,
    traced: Traced,
    operators: Operators,
    whole: Callable[[], torch.Tensor],
    inputs: Inputs,
    world: World,
) -> list[_Step]:
    """Those that all ranks can run, the whole first. ``whole``: gives the loss of the step as it is. Collective."""
    steps = [_Step(1, operators.step(1), whole, {"parts": 1})]
    ends = longest(traced) if traced.part > 0 else None
    given = flat_tensors(inputs)
    for parts in sorted({min(cut, traced.batch) for cut in _CUTS} - {1}):
        program = _program(model, traced, ends, parts) if ends else None
        if program is None or ends is None:
            continue
        run = functools.partial(program.loss, given, Slots())
        steps.append(_Step(parts, operators.step(parts, ends), run, {"parts": parts, "first": ends[0], "last": ends[1]}))
    everywhere = [set(operators_of_rank) for operators_of_rank in world._gather([step.operator for step in steps])]
    return [step for step in steps if step.parts == 1 or all(step.operator in one for one in everywhere)]


def _program(model: torch.nn.Module, traced: Traced, ends: tuple[str, str], parts: int) -> Optional[Program]:
    """The step in parts; None where ``scheduled`` would refuse them."""
    with contextlib.suppress(InvalidInput):
        program = Program(model, traced, [Partition(*ends, parts, "measuredSteps")])
        program.refuse_hooks()
        return program
    return None


def _sizes(traced: Traced) -> list[int]:
    """The batch and its parts of which times are measured, the whole first."""
    if traced.part == 0:
        return [traced.batch]
    return sorted({max(1, traced.batch // cut) for cut in _CUTS}, reverse=True)


def _operators_of(traced: Traced, operators: Operators, size: int) -> list[Operator]:
    """Those of both passes: of the whole batch all, of a part of it those of what can be cut."""
    found = []
    for one in traced.instructions:
        if size == traced.batch or (one.samples and one.main.index < traced.model_ends):
            found += operators.forward(one, size) + operators.backward(one, size)
    return found


def _measure(
    paced: PacedStep,
    steps: Sequence[_Step],
    world: World,
    wanted: Mapping[int, Iterable[Operator]],
    known: Mapping[Operator, float],
) -> dict[Operator, float]:
    """Seconds of the operators that are not known. Collective: a size that any rank lacks is run by all, and then all steps
    are."""
    missing = {size: [one for one in of_size if one not in known] for size, of_size in wanted.items()}
    lacking = set().union(*world._gather({size for size, some in missing.items() if some}))

    def together() -> None:
        """No rank begins before the last: it would count how late the others are from what ran before."""
        world._gather(None)

    for run in range(_RUNS + 1):
        for size in sorted(lacking):
            together()
            paced.run(size, counts=run > 0)
        for step in steps if lacking else ():
            together()
            paced.run_as_it_is(step.run, counts=run > 0, parts=step.parts)
    found: dict[Operator, float] = {step.operator: paced.step_s(step.parts) for step in steps if lacking}
    for size in sorted(lacking):
        found.update(paced.times_s(size))
    everywhere = world._gather(found)
    needed = {operator for some in missing.values() for operator in some}
    return {one: statistics.fmean(times[one] for times in everywhere if one in times) for one in needed}


def _agreed(seconds: Mapping[Operator, float], world: World) -> dict[Operator, float]:
    """The same on all ranks, whose files may say different things: the median of theirs. Collective."""
    everywhere = world._gather(dict(seconds))
    return {one: statistics.median(times[one] for times in everywhere if one in times) for one in seconds}


class _Times:
    """The times of a graph's instructions. ``sizes``: the parts of the batch that were measured, smallest first."""

    def __init__(self, traced: Traced, operators: Operators, seconds: Mapping[Operator, float], sizes: list[int]) -> None:
        self._traced, self._operators, self._seconds, self._sizes = traced, operators, seconds, sizes
        self.most_parts = min(_CUTS[-1], max(1, traced.batch))

    def forward_s(self, one: Any, side: str) -> float:
        return self._seconds[self._operators.of(one, side)]

    def backward_s(self, one: Any, side: str) -> float:
        return self._seconds.get(self._operators.of(one, side), 0.0)

    def parts_s(self, one: Any, side: str) -> Optional[list[float]]:
        """The time of one part of k, for k of 1 and more: at least its share of the whole, which parts that were measured
        at a quieter moment would undercut. Parts of a layer with a capacity may take less, as they may send fewer rows than
        slots. None for what cannot be cut, or takes no time."""
        if not one.samples or one.main.index >= self._traced.model_ends:
            return None
        points = [(size, self._seconds.get(self._operators.of(one, side, size))) for size in self._sizes]
        if any(seconds is None for _, seconds in points):
            return None
        has_slots = one.layer is not None and one.layer.plan.workload.layer.capacity_factor > 0
        whole_s = 0.0 if has_slots else points[-1][1]
        return [max(_between(points, self._traced.batch / k), whole_s / k) for k in range(1, self.most_parts + 1)]


def _between(points: list[tuple[int, float]], size: float) -> float:
    """The time at ``size`` on straight lines of logarithms through the points, which are sorted by size."""
    for (low, low_s), (high, high_s) in zip(points, points[1:]):
        if size <= high:
            break
    else:
        return points[-1][1] * size / points[-1][0]
    if size <= low:
        return low_s if size == low else low_s * size / low
    if low_s <= 0 or high_s <= 0:
        return low_s + (high_s - low_s) * (size - low) / (high - low)
    share = math.log(size / low) / math.log(high / low)
    return math.exp(math.log(low_s) + share * math.log(high_s / low_s)) if size < high else high_s
