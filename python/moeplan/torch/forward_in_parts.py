"""A model's forward pass with ranges of it in parts: while the rows of one part's MoE layers are on their way, the next
part computes.

The model's own forward runs once for each shape of its inputs, to be traced (tracer.py). Then its calls run from the trace,
those of a range for one part of the batch after the other. The parts take turns at every MoELayer. Each is an ordinary part
of autograd's graph, so their backward passes take turns there, too.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from typing import Any, Callable, Iterator, Sequence

import torch

from moeplan.errors import mismatch
from moeplan.torch.deferred import Slots
from moeplan.torch.layer import MoELayer
from moeplan.torch.layer_functions import BatchInParts
from moeplan.torch.ranges import Partition, Range, steps_of
from moeplan.torch.side_by_side import lane
from moeplan.torch.step_inputs import Arguments
from moeplan.torch.traced import (
    BatchSize,
    Call,
    Constant,
    Given,
    Instruction,
    Read,
    Source,
    Traced,
    Weight,
    flat_tensors,
    leaves,
    rebuilt,
    sources_of,
)
from moeplan.torch.tracer import trace_forward

_MOST_PROGRAMS = 8


class ForwardInParts:
    """Makes ``model`` run its forward passes under ``partitions`` where gradients are wanted. After ``end`` it is as ever.

    A pass is traced anew where shapes, modes, what learns, buffers, or numbers and tensors of the model's modules and their
    configurations have changed; what else the forward pass reads beside tensors is that of the traced pass.
    """

    def __init__(self, model: torch.nn.Module, partitions: Sequence[Partition], slots: Slots) -> None:
        self._model = model
        self._partitions = partitions
        self._slots = slots
        self._programs: OrderedDict[Any, Program] = OrderedDict()
        self._own = "forward" in vars(model)  # Somebody else has replaced it before.
        self._forward = model.forward
        model.forward = self._run  # type: ignore[method-assign]

    def end(self) -> None:
        if self._own:
            self._model.forward = self._forward  # type: ignore[method-assign]
        else:
            del self._model.forward

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._forward(*args, **kwargs)
        if lane() != 0:
            raise mismatch("side_by_side", "a model that runs under a schedule", "parts outside of moeplan.torch.scheduled")
        arguments = Arguments(args, kwargs)
        return self._program(arguments).run(flat_tensors(arguments), self._slots)

    def _program(self, arguments: Arguments) -> Program:
        key = self._key(arguments)
        known = self._programs.get(key)
        if known is None or known.is_stale():
            known = self._programs[key] = Program(self._model, self._trace(arguments), self._partitions)
            while len(self._programs) > _MOST_PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return known

    def _trace(self, arguments: Arguments) -> Traced:
        self._slots.closed = True
        try:
            return trace_forward(self._model, arguments, self._forward)
        finally:
            self._slots.closed = False
            self._slots.clear()  # The traced layers have made room there.

    def _key(self, arguments: Arguments) -> Any:
        """Whether two forward passes call the same."""
        given = list(leaves(arguments))
        alike = [next(i for i, other in enumerate(given) if other is one) for one in given]
        known = tuple(_known(one, same) for one, same in zip(given, alike))
        # Somebody may have put another forward in the place of a module's.
        modes = tuple((id(one), one.training, id(vars(one).get("forward"))) for one in self._model.modules())
        learns = tuple((id(one), one.requires_grad) for one in self._model.parameters())
        return known, tuple(arguments.kwargs), modes, learns


def _known(leaf: Any, same: int) -> Any:
    """An argument as passes are told apart by. ``same``: the place of the first that is the same tensor."""
    if isinstance(leaf, torch.Tensor):
        return same, leaf.shape, leaf.dtype, leaf.device, leaf.requires_grad
    if leaf is None or isinstance(leaf, (bool, int, float, str, torch.dtype, torch.device)):
        return leaf
    raise mismatch("forward", f"an argument of class {type(leaf).__name__}", "tensors, numbers and strings, or nests of them")


class Program:
    """The traced calls, and how they run. Raises InvalidInput for a range that cannot be cut."""

    def __init__(self, model: torch.nn.Module, traced: Traced, partitions: Sequence[Partition]) -> None:
        self._traced = traced
        kept = [source for source in (*sources_of(traced.model_outputs), traced.loss) if isinstance(source, Read)]
        self._steps = steps_of(traced, partitions, kept)
        self._frees = self._last_uses(set(kept))
        self._model = model
        self._constants = [(one, one._version, one.clone()) for one in self._found_constants()]
        self._settings = self._found_settings()
        leaf = {id(call.target) for call in traced.calls if call.is_module}
        self._several = [(path, one) for path, one in model.named_modules() if one is not model and id(one) not in leaf]
        inside = [one for step in self._steps if isinstance(step, Range) for one in step.instructions]
        self._layers = [(one.id, one.layer) for one in inside if one.layer is not None]

    def is_stale(self) -> bool:
        """Whether what the trace took as constant has changed."""
        now = self._found_constants()
        if len(now) != len(self._constants) or self._found_settings() != self._settings:
            return True
        for i, (tensor, (known, version, value)) in enumerate(zip(now, self._constants)):
            if tensor is not known:
                return True
            if tensor._version != version:  # DistributedDataParallel writes the same values before every pass.
                if tensor.shape != value.shape or not torch.equal(tensor, value):
                    return True
                self._constants[i] = (tensor, tensor._version, value)
        return False

    def _own_modules(self) -> list[torch.nn.Module]:
        return [module for module in self._model.modules() if not isinstance(module, MoELayer)]

    def _found_constants(self) -> list[torch.Tensor]:
        """Buffers and other tensors that the model itself may read, whose values may have decided what it calls."""
        found = [one for module in self._own_modules() for one in module.buffers(recurse=False)]
        found += [one for module in self._own_modules() for one in vars(module).values() if isinstance(one, torch.Tensor)]
        return [one for one in found if not one.is_inference()]

    def _found_settings(self) -> list[Any]:
        """Numbers and strings of the model's modules, and of the configurations that they hold."""
        held = {id(one): one for module in self._own_modules() for name, one in vars(module).items() if _is_configuration(name, one)}
        fields = [*map(vars, self._own_modules()), *(one if isinstance(one, dict) else vars(one) for one in held.values())]
        return [one for some in fields for one in some.values() if isinstance(one, (bool, int, float, str))]

    def run(self, given: list[torch.Tensor], slots: Slots) -> Any:
        """What the model gives. Raises InvalidInput where it has got hooks that would not run."""
        return rebuilt(self._traced.model_outputs, self._run(given, slots).whole)

    def loss(self, given: list[torch.Tensor], slots: Slots) -> torch.Tensor:
        """The loss of a traced step."""
        assert self._traced.loss is not None
        return self._run(given, slots).whole(self._traced.loss)

    def _run(self, given: list[torch.Tensor], slots: Slots) -> _Values:
        self.refuse_hooks()
        values = _Values(self._traced, given)
        for step, done in zip(self._steps, self._frees):
            if isinstance(step, Range):
                _RangeRun(step, values, slots).run()
            else:
                values.keep(step, values.of_whole(step))
            values.forget(done)
        return values

    def refuse_hooks(self) -> None:
        for path, module in [*self._several, *self._layers]:
            if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
                expected = "none on modules that run in parts or are several operations, or the plan without its partitions"
                raise mismatch(path, "hooks", expected)

    def _last_uses(self, kept: set[Read]) -> list[list[Read]]:
        """By step: what nobody reads behind it."""
        last: dict[Read, int] = {}
        for i, step in enumerate(self._steps):
            members = [*step.before, *step.instructions] if isinstance(step, Range) else [step]
            for one in members:
                last.update(dict.fromkeys([*one.reads, *one.outputs], i))
        frees: list[list[Read]] = [[] for _ in self._steps]
        for read, i in last.items():
            if read not in kept:
                frees[i].append(read)
        return frees


def _is_configuration(name: str, value: Any) -> bool:
    """Whether a module's attribute has settings in fields of its own. Other objects may count steps, or keep what they saw."""
    named = name in ("config", "cfg", "args", "hparams", "params") and (isinstance(value, dict) or hasattr(value, "__dict__"))
    is_settings = named or dataclasses.is_dataclass(value)
    return is_settings and not isinstance(value, (type, torch.nn.Module, torch.Tensor))


class _Values:
    """The tensors of a forward pass under way."""

    def __init__(self, traced: Traced, given: list[torch.Tensor]) -> None:
        self.traced = traced
        self.given = given
        self._whole: dict[Read, torch.Tensor] = {}
        self._fixed: dict[tuple[int, int], list[torch.Tensor]] = {}

    def whole(self, source: Source) -> torch.Tensor:
        """Of the whole batch."""
        if isinstance(source, Given):
            return self.given[source.index]
        if isinstance(source, Read) and self.traced.calls[source.call].varies:
            return self._whole[source]
        return self.fixed(source, self.traced.batch)

    def fixed(self, source: Source, batch: int) -> torch.Tensor:
        """What depends on parameters and the size of the batch alone."""
        if isinstance(source, Weight):
            return self.traced.parameters[source.name]
        if isinstance(source, Constant):
            return source.tensor
        assert isinstance(source, Read)
        key = (source.call, batch)
        if key not in self._fixed:
            self._fixed[key] = self.traced.calls[source.call].run(lambda one: self.fixed(one, batch), batch)
        return self._fixed[key][source.output]

    def of_whole(self, one: Instruction) -> list[torch.Tensor]:
        """The outputs of an instruction with all samples."""
        return outputs_of(one, self.traced.batch, self.whole, lambda call, args, kwargs: call.apply(args, kwargs))

    def keep(self, one: Instruction, outputs: list[torch.Tensor]) -> None:
        self._whole.update(zip(one.outputs, outputs))

    def keep_read(self, read: Read, tensor: torch.Tensor) -> None:
        self._whole[read] = tensor

    def forget(self, reads: list[Read]) -> None:
        for read in reads:
            self._whole.pop(read, None)


def inputs_of(
    one: Instruction, batch: int, value_of: Callable[[Source], torch.Tensor], apply: Callable[[Call, Any, Any], Any]
) -> tuple[Any, Any]:
    """The arguments of an instruction's main call, for a batch of that size: runs the calls before it. ``value_of``: what
    others made; ``apply``: how a call runs."""
    local: dict[Read, torch.Tensor] = {}

    def find(source: Source) -> torch.Tensor:
        found = local.get(source) if isinstance(source, Read) else None
        return value_of(source) if found is None else found

    for call in one.calls[:-1]:
        if call.varies:
            args, kwargs = call.arguments(find, batch)
            made = call.tensors(args, apply(call, args, kwargs))
            local.update((Read(call.index, i), tensor) for i, tensor in enumerate(made))
    return one.main.arguments(find, batch)


def outputs_of(
    one: Instruction, batch: int, value_of: Callable[[Source], torch.Tensor], apply: Callable[[Call, Any, Any], Any]
) -> list[torch.Tensor]:
    args, kwargs = inputs_of(one, batch, value_of, apply)
    return one.main.tensors(args, apply(one.main, args, kwargs))


class _RangeRun:
    """One pass over a range."""

    def __init__(self, of: Range, values: _Values, slots: Slots) -> None:
        self._range, self._values, self._slots = of, values, slots
        self._traced = values.traced
        whole, parts = self._traced.batch, of.parts
        self._sizes = [whole // parts + (i < whole % parts) for i in range(parts)]
        self._made: list[dict[Read, torch.Tensor]] = [{} for _ in self._sizes]
        self._cuts: dict[Source, Sequence[torch.Tensor]] = {}
        self._batches: dict[str, BatchInParts] = {}
        self._masks: dict[int, torch.Tensor] = {}
        self._last = {read: one.id for one in of.instructions for read in one.reads}

    def run(self) -> None:
        for one in self._range.before:
            self._values.keep(one, self._values.of_whole(one))
        under_way = deque(self._part(i) for i in range(len(self._sizes)))
        with self._slots.kept():
            while under_way:
                part = under_way.popleft()
                if next(part, None) is not None:
                    under_way.append(part)
        for read in self._range.joined:
            axis = self._traced.type_of(read).axis
            assert axis is not None
            parts = [made[read] for made in self._made]
            self._values.keep_read(read, torch.cat(parts, axis))

    def _part(self, part: int) -> Iterator[str]:
        """Runs a part, and gives the other parts a turn at each MoELayer once that is under way."""
        made = self._made[part]
        for one in self._range.instructions:
            how = (one, self._sizes[part], lambda source: self._value(part, source), lambda *call: self._apply(part, *call))
            if one.layer is not None:
                args, kwargs = inputs_of(*how)
                begun = self._batch_of(one).begin(*args, **kwargs, lane=1 + part % 2)
                yield one.id
                outputs = [begun.end()]
            else:
                outputs = outputs_of(*how)
            made.update(zip(one.outputs, outputs))
            for read in one.reads:
                if self._last[read] == one.id and read not in self._range.joined:
                    made.pop(read, None)

    def _apply(self, part: int, call: Call, args: Any, kwargs: Any) -> Any:
        return self._dropped(call, part, args, kwargs) if call.random else call.apply(args, kwargs)

    def _value(self, part: int, source: Source) -> torch.Tensor:
        found = self._made[part].get(source) if isinstance(source, Read) else None
        if found is not None:
            return found
        axis = self._axis(source)
        if axis is None:
            varies = isinstance(source, Given) or (isinstance(source, Read) and self._traced.calls[source.call].varies)
            return self._values.whole(source) if varies else self._values.fixed(source, self._sizes[part])
        if source not in self._cuts:
            self._cuts[source] = self._cut(source, axis)
        return self._cuts[source][part]

    def _axis(self, source: Source) -> int | None:
        """The dimension along which what others made, or the job gave, is cut."""
        if isinstance(source, Given):
            tensor = self._values.given[source.index]
            return 0 if tensor.dim() > 0 and tensor.shape[0] == self._traced.batch else None
        if isinstance(source, Read) and self._traced.calls[source.call].varies:
            return self._traced.type_of(source).cut
        return None

    def _cut(self, source: Source, axis: int) -> Sequence[torch.Tensor]:
        return torch.split(self._values.whole(source), [self._size_along(source, axis, size) for size in self._sizes], axis)

    def _size_along(self, source: Source, axis: int, batch: int) -> int:
        if isinstance(source, Given):
            return batch
        assert isinstance(source, Read)
        size = self._traced.type_of(source).shape[axis]
        return size.at(batch) if isinstance(size, BatchSize) else int(size)

    def _batch_of(self, one: Instruction) -> BatchInParts:
        assert one.layer is not None
        if one.id not in self._batches:
            shape = self._traced.type_of(one.outputs[0]).shape_at(self._traced.batch)
            self._batches[one.id] = one.layer.in_parts(shape[:-1].numel())
        return self._batches[one.id]

    # ---- Dropout.

    def _dropped(self, call: Call, part: int, args: Any, kwargs: Any) -> torch.Tensor:
        """A part of what the whole batch would get: its mask is drawn once, when the first part comes."""
        x = args[0] if args else kwargs["input"]
        kind = call.outputs[0]
        assert kind.axis is not None
        if call.index not in self._masks:
            ones = torch.ones(kind.shape_at(self._traced.batch), dtype=x.dtype, device=x.device)
            with torch.no_grad():
                drawn = call.target(ones, *args[1:], **kwargs) if args else call.target(**{**kwargs, "input": ones})
            self._masks[call.index] = drawn
        sizes = [kind.shape_at(size)[kind.axis] for size in self._sizes]
        mask = self._masks[call.index].narrow(kind.axis, sum(sizes[:part]), sizes[part])
        return x.mul_(mask) if call.mutates else x * mask
