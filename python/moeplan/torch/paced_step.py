"""A traced step run one instruction after another, in the order of the step itself, with the time that each takes.

So an operator meets the memory, the caches and the ranks beside it as in the job; a loop over one operator would not. The
gradients of inputs and of weights are asked for one after the other.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import Any, Callable, Iterator, NamedTuple, Optional

import torch

from moeplan.torch import moe_tasks
from moeplan.torch.layer import MoELayer
from moeplan.torch.layer_functions import BatchInParts
from moeplan.torch.operator_times import Operator
from moeplan.torch.operators import Operators
from moeplan.torch.step_inputs import part_of
from moeplan.torch.traced import Call, Constant, Given, Instruction, Read, Source, Traced, Weight, flat_tensors


class _Went(NamedTuple):
    """What an instruction's backward pass needs of its forward pass."""

    read: dict[Read, torch.Tensor]
    written: list[torch.Tensor]
    layer_pass: Any


class PacedStep:
    """Runs the step, or the model both ways with one part of the batch after the other, and times its operators.

    Gradients of the model's parameters stay as they are. Collective where the model has MoELayers: every rank runs the
    same passes.
    """

    def __init__(self, traced: Traced, operators: Operators, inputs: Any, device: torch.device) -> None:
        self._traced, self._operators = traced, operators
        self._inputs = inputs
        self._device = device
        self._clock = _CardClock() if device.type == "cuda" else _HostClock()
        self._passes: dict[int, list[dict[Operator, list[float]]]] = {}  # By how many samples they had.
        self._last_reader = {read: one.main.index for one in traced.instructions for read in _everything_read(one)}
        self._times: dict[Operator, list[float]] = {}
        self._took_s = 0.0  # All calls of the pass.
        self._calls_s: dict[int, list[float]] = {}
        self._steps_s: dict[int, list[float]] = {}  # By the parts that they ran in.
        self._pending: list[Callable[[], None]] = []
        self._in_parts: dict[int, BatchInParts] = {}  # By call, while parts of one batch run.
        self.gradients: dict[str, torch.Tensor] = {}  # Of the parameters, by their paths, from the last pass both ways.

    def run(self, batch: int, counts: bool) -> None:
        """One pass both ways of the whole batch, in parts of ``batch`` samples, which are without the loss. ``counts``:
        ``times_s`` has it."""
        self._pending = []
        self._in_parts = {}
        with _seeded(), torch.enable_grad(), _nothing_deferred(self._traced):
            parts = [(first, min(batch, self._traced.batch - first)) for first in range(0, self._traced.batch, batch)]
            went = [self._only_whole_parts(size == batch, self._forward, size, first) for first, size in parts]
            for _, size in reversed(parts):
                self._only_whole_parts(size == batch, self._backward, went.pop(), size)
        self._clock.settle()
        if counts:
            self._times = {}
            self._took_s = 0.0
            for add in self._pending:
                add()
            self._passes.setdefault(batch, []).append(self._times)
            self._calls_s.setdefault(batch, []).append(self._took_s)
        self._pending = []

    def _only_whole_parts(self, counts: bool, run: Callable[..., Any], *args: Any) -> Any:
        """Samples that are left over have to run, but their times are those of another size."""
        noted = len(self._pending)
        result = run(*args)
        if not counts:
            del self._pending[noted:]
        return result

    def run_as_it_is(self, forward: Callable[[], torch.Tensor], counts: bool, parts: int = 1) -> None:
        """The step as the job runs it, whole or in parts: ``forward`` gives the loss, which goes back. It runs twice, and the
        second counts, which finds memory and ranks as a step does that follows another."""
        learning = [one for one in self._traced.parameters.values() if one.requires_grad]
        with _seeded(), torch.enable_grad(), _nothing_deferred(self._traced):
            self._clock.settle()
            torch.autograd.grad(forward(), learning, allow_unused=True)
            begin = self._clock.mark()
            torch.autograd.grad(forward(), learning, allow_unused=True)
            end = self._clock.mark()
            self._clock.settle()
        if counts:
            self._steps_s.setdefault(parts, []).append(self._clock.seconds(begin, end))

    def step_s(self, parts: int) -> float:
        """Seconds of a step as it is, or in so many parts: the median of those that count."""
        return statistics.median(self._steps_s[parts])

    def _of_steps(self) -> float:
        """How long steps took as they are, over the calls of a pass of the whole batch; 1 where none ran."""
        passes_s = self._calls_s.get(self._traced.batch, [])
        if not passes_s or 1 not in self._steps_s:
            return 1.0
        return self.step_s(1) / statistics.median(passes_s)

    def times_s(self, batch: int) -> dict[Operator, float]:
        """Seconds of each operator with so many samples: the median of those in the passes that count, as a part of a step.

        Parts differ, as a capacity leaves later ones less, so the mean of a pass counts. Medians leave out what now and then
        stops a process, which no step is without, and a pass leaves ranks more time to part than a step does. So all are
        scaled: together they take what a pass took, in the median, and all calls of a pass what a step took that ran as it
        is.
        """
        passes = self._passes[batch]
        found = {
            operator: statistics.median(statistics.fmean(one[operator]) for one in passes if operator in one)
            for operator in {operator for one in passes for operator in one}
        }
        together = statistics.median(sum(map(sum, one.values())) for one in passes)
        apart = sum(found[operator] * len(seconds) for operator, seconds in passes[0].items())
        scale = self._of_steps() * (together / apart if apart > 0 else 1.0)
        return {operator: scale * seconds for operator, seconds in found.items()}

    # ---- Forward.

    def _forward(self, batch: int, first: int) -> dict[str, _Went]:
        given = flat_tensors(part_of(self._inputs, self._traced.batch, batch, first))
        values: dict[Read, torch.Tensor] = {}
        went = {}
        whole = batch == self._traced.batch
        for one in self._traced.instructions:
            if not whole and one.main.index >= self._traced.model_ends:
                break
            went[one.id] = self._one_forward(one, batch, given, values)
        return went

    def _one_forward(self, one: Instruction, batch: int, given: list[torch.Tensor], values: dict[Read, torch.Tensor]) -> _Went:
        stubs = {
            source: _without_memory(values[source]).requires_grad_()
            for source in one.reads
            if self._traced.type_of(source).requires_grad
        }
        read = {source: _entered(values[source], stubs.get(source)) for source in one.reads}
        local: dict[Read, torch.Tensor] = {}

        def value_of(source: Source) -> torch.Tensor:
            if isinstance(source, Given):
                return given[source.index]
            if isinstance(source, Weight):
                return self._traced.parameters[source.name]
            if isinstance(source, Constant):
                return source.tensor
            found = local.get(source, read.get(source))
            return values[source] if found is None else found

        if batch == self._traced.batch or one.samples:
            spans = self._timed_calls(one, batch, value_of, local)
        else:
            spans = self._stood_in_for(one, batch, value_of, local)
        layer_pass = one.layer._passes.last if one.layer is not None else None
        self._note_forward(one, batch, spans, layer_pass)
        return _Went(stubs, self._given_out(one, local, values), layer_pass)

    def _timed_calls(
        self, one: Instruction, batch: int, value_of: Callable[[Source], torch.Tensor], local: dict[Read, torch.Tensor]
    ) -> list[tuple[Any, Any]]:
        """Runs the instruction's calls, whose outputs go to ``local``; gives when each began and ended."""
        spans = []
        for call in one.calls:
            args, kwargs = call.arguments(value_of, batch)
            begin = self._clock.mark()
            result = self._result(call, args, kwargs, batch)
            spans.append((begin, self._clock.mark()))
            for i, tensor in enumerate(call.tensors(args, result)):
                local[Read(call.index, i)] = tensor
        return spans

    def _result(self, call: Call, args: Any, kwargs: Any, batch: int) -> Any:
        """What the call gives; a layer gets less than the batch as a part of it, whose gate knows of the others."""
        if call.is_moe and batch != self._traced.batch and not moe_tasks.why_whole(call.target):
            return self._batch_of(call)(*args, **kwargs)
        return call.apply(args, kwargs)

    def _batch_of(self, call: Call) -> BatchInParts:
        if call.index not in self._in_parts:
            rows = call.outputs[0].shape_at(self._traced.batch)[:-1].numel()
            self._in_parts[call.index] = call.target.in_parts(rows)
        return self._in_parts[call.index]

    def _stood_in_for(
        self, one: Instruction, batch: int, value_of: Callable[[Source], torch.Tensor], local: dict[Read, torch.Tensor]
    ) -> list[tuple[Any, Any]]:
        """The same with a part of the batch for an instruction that is never cut: where it cannot run with that, others
        read zeros of the right shapes."""
        spans: list[tuple[Any, Any]] = []
        with contextlib.suppress(RuntimeError, IndexError, ValueError):
            spans = self._timed_calls(one, batch, value_of, local)
        for call in one.calls:
            for i, kind in enumerate(call.outputs):
                found, shape = local.get(Read(call.index, i)), kind.shape_at(batch)
                if found is None or found.shape != shape:
                    local[Read(call.index, i)] = torch.zeros(shape, dtype=kind.dtype, device=self._device)
        return spans

    def _given_out(
        self, one: Instruction, local: dict[Read, torch.Tensor], values: dict[Read, torch.Tensor]
    ) -> list[torch.Tensor]:
        """Leaves the outputs, and what later instructions read beside them, in ``values``, and takes out what nobody reads
        any more. Gives the outputs without their memory, which goes when nobody else needs it."""
        for source, tensor in local.items():
            if self._last_reader.get(source, -1) > one.main.index:
                values[source] = tensor.detach()
        for source in one.reads:
            if self._last_reader[source] == one.main.index:
                values.pop(source, None)
        written = [local[output] for output in one.outputs]
        for tensor in written:
            if tensor.grad_fn is not None:
                tensor.data = _without_memory(tensor)
        return written

    def _note_forward(self, one: Instruction, batch: int, spans: list[tuple[Any, Any]], layer_pass: Any) -> None:
        def add() -> None:
            took_s = sum(self._clock.seconds(begin, end) for begin, end in spans)
            self._took_s += took_s
            if one.layer is None:
                self._add(self._operators.of(one, "forward", batch), took_s)
                return
            times = moe_tasks.forward_times_s(_timeline(one.layer, layer_pass, "FORWARD"), took_s)
            for name in moe_tasks.instructions_of(one.layer):
                self._add(self._operators.of(one, name, batch), times[name])

        self._pending.append(add)

    # ---- Backward.

    def _backward(self, went: dict[str, _Went], batch: int) -> None:
        gradients: dict[Read, list[torch.Tensor]] = {}
        self.gradients = {}
        for one in reversed(self._traced.instructions):
            if one.id not in self._operators.reached:
                went.pop(one.id, None)
            elif one.id not in went or not (batch == self._traced.batch or one.samples):
                went.pop(one.id, None)
                self._go_past(one, batch, gradients)
            else:
                self._one_backward(one, went.pop(one.id), batch, gradients)

    def _go_past(self, one: Instruction, batch: int, gradients: dict[Read, list[torch.Tensor]]) -> None:
        """Hands gradients on for an instruction that is no part of such a pass. Their values count for nothing."""
        for source in self._traced.goes_back(one):
            kind = self._traced.type_of(source)
            ones = torch.ones(kind.shape_at(batch), dtype=kind.dtype, device=self._device)
            gradients.setdefault(source, []).append(ones)

    def _one_backward(
        self, one: Instruction, forward: _Went, batch: int, gradients: dict[Read, list[torch.Tensor]]
    ) -> None:
        pairs = [
            (tensor, gradients.pop(output, [torch.ones_like(tensor)] if output == self._traced.loss else []))
            for output, tensor in zip(one.outputs, forward.written)
        ]
        written = [tensor for tensor, given in pairs if given]
        sums = [_Sum(given, gradients) for _, given in pairs if given]
        marks = [self._clock.mark()]
        received = [one_sum.value() for one_sum in sums]
        goes_back, learns = self._traced.goes_back(one), self._traced.learns(one)
        sides = []
        if one.layer is not None:
            self._layer_backward(one, forward, batch, written, received, gradients)
            return
        if goes_back:
            wanted = [forward.read[source] for source in goes_back]
            found = torch.autograd.grad(written, wanted, received, retain_graph=bool(learns), allow_unused=True)
            sides.append("dx")
            marks.append(self._clock.mark())
            _hand_on(goes_back, found, gradients)
        if learns:
            if goes_back:
                marks.append(self._clock.mark())
            wanted = [self._traced.parameters[name] for name in learns]
            found = torch.autograd.grad(written, wanted, received, allow_unused=True)
            self._learn(learns, found)
            sides.append("dw")
            marks.append(self._clock.mark())
        self._clock.asked()
        self._note_backward(one, batch, sides, marks)

    def _note_backward(self, one: Instruction, batch: int, sides: list[str], marks: list[Any]) -> None:
        def add() -> None:
            for i, side in enumerate(sides):
                took_s = max(0.0, self._clock.seconds(marks[2 * i], marks[2 * i + 1]) - self._clock.asking_s)
                self._took_s += took_s
                self._add(self._operators.of(one, side, batch), took_s)

        self._pending.append(add)

    def _layer_backward(
        self,
        one: Instruction,
        forward: _Went,
        batch: int,
        written: list[torch.Tensor],
        received: list[torch.Tensor],
        gradients: dict[Read, list[torch.Tensor]],
    ) -> None:
        layer = one.layer
        assert layer is not None
        goes_back = self._traced.goes_back(one)
        wanted = [*(forward.read[source] for source in goes_back)]
        wanted += [self._traced.parameters[name] for name in self._traced.learns(one)]
        begin = self._clock.mark()
        found = torch.autograd.grad(written, wanted, received, allow_unused=True)
        end = self._clock.mark()
        _hand_on(goes_back, found, gradients)
        self._learn(self._traced.learns(one), found[len(goes_back) :])

        def add() -> None:
            took_s = self._clock.seconds(begin, end)
            self._took_s += took_s
            times = moe_tasks.backward_times_s(_timeline(layer, forward.layer_pass, "BACKWARD"), took_s)
            for name in moe_tasks.sides_of(layer):
                self._add(self._operators.of(one, name, batch), times[name])

        self._pending.append(add)

    def _learn(self, names: list[str], found: Any) -> None:
        for name, gradient in zip(names, found):
            if gradient is not None:
                known = self.gradients.get(name)
                self.gradients[name] = gradient if known is None else known + gradient

    def _add(self, operator: Operator, seconds: float) -> None:
        self._times.setdefault(operator, []).append(seconds)


class _Sum:
    """The sum of an output's gradients, as autograd takes it: in the memory of the first where nobody else has that."""

    def __init__(self, tensors: list[torch.Tensor], others: dict[Read, list[torch.Tensor]]) -> None:
        self._tensors = tensors
        taken = [one.data_ptr() for given in (*others.values(), tensors[1:]) for one in given]
        self._in_place = tensors[0].is_contiguous() and tensors[0].data_ptr() not in taken

    def value(self) -> torch.Tensor:
        total, *more = self._tensors
        for tensor in more:
            total = total.add_(tensor) if self._in_place else total + tensor
            self._in_place = True
        return total


def _without_memory(like: torch.Tensor) -> torch.Tensor:
    """A tensor of its shape in the memory of one element."""
    return like.new_empty(()).expand(like.shape)


def _entered(value: torch.Tensor, stub: Optional[torch.Tensor]) -> torch.Tensor:
    """``value``, whose gradient goes to ``stub``, which does not keep its memory."""
    if stub is None:
        return value
    entered = stub.view_as(stub)
    entered.data = value
    return entered


def _everything_read(one: Instruction) -> Iterator[Read]:
    return (source for call in one.calls for source in call.sources if isinstance(source, Read))


def _hand_on(reads: list[Read], found: Any, gradients: dict[Read, list[torch.Tensor]]) -> None:
    for source, gradient in zip(reads, found):
        if gradient is not None:
            gradients.setdefault(source, []).append(gradient)


def _timeline(layer: MoELayer, layer_pass: Any, phase: str) -> list[dict[str, Any]]:
    """Of that pass, which need not be the layer's last."""
    last, layer._passes.last = layer._passes.last, layer_pass
    try:
        return layer.last_timeline(phase)
    finally:
        layer._passes.last = last


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """The job's random numbers stay as they are."""
    cards = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=cards):
        yield


@contextlib.contextmanager
def _nothing_deferred(traced: Traced) -> Iterator[None]:
    """Layers compute their weight gradients at once, where their timelines have them."""
    layers = {id(one.layer): one.layer for one in traced.instructions if one.layer is not None}.values()
    before = [layer.defer_weight_gradients for layer in layers]
    for layer in layers:
        layer.defer_weight_gradients = False
    try:
        yield
    finally:
        for layer, deferred in zip(layers, before):
            layer.defer_weight_gradients = deferred


class _HostClock:
    """The processor's. ``asked`` takes the time of asking for a gradient that is nothing; ``asking_s`` is the median since
    the last ``settle``, which a step, that asks once for all, does not take for each of its operators."""

    def __init__(self) -> None:
        begins = torch.zeros(1, requires_grad=True)
        self._view, self._begins, self._gradient = begins.view_as(begins), begins, torch.ones(1)
        self._asked: list[float] = []
        self.asking_s = 0.0

    def asked(self) -> None:
        begin = self.mark()
        torch.autograd.grad([self._view], [self._begins], [self._gradient], retain_graph=True, allow_unused=True)
        self._asked.append(self.seconds(begin, self.mark()))

    def mark(self) -> float:
        return time.perf_counter()

    def settle(self) -> None:
        self.asking_s = statistics.median(self._asked) if self._asked else 0.0
        self._asked = []

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


class _CardClock:
    """Events on the current stream of the card, which are looked at once all has run."""

    asking_s = 0.0

    def asked(self) -> None:
        pass

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def settle(self) -> None:
        torch.cuda.synchronize()

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return begin.elapsed_time(end) / 1e3
