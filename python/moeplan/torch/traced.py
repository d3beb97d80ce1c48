"""A training step as instructions: what each runs, reads and writes, and how its sizes follow the batch.

``trace`` (tracer.py) makes a ``Traced``; ``capture`` times its instructions, and whoever runs a step under a plan finds
with it what to run for an id of the plan. Pure; any thread.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Callable, Iterator, NamedTuple, Optional, Union

import torch

from moeplan.errors import mismatch
from moeplan.torch.layer import MoELayer


class BatchSize(NamedTuple):
    """A size that follows the batch: ``scale`` · batch + ``offset``."""

    scale: Fraction
    offset: Fraction

    def at(self, batch: int) -> int:
        value = self.scale * batch + self.offset
        if value.denominator != 1:
            raise mismatch("batch", f"{batch}, of which a size of the model is {value}", "one whose sizes are whole")
        return int(value)


class ByBatch(NamedTuple):
    """An argument that changes with the batch in no way that is known. ``value`` is that of the traced batch."""

    value: Any
    batch: int


class Read(NamedTuple):
    """Output ``output`` of call ``call``."""

    call: int
    output: int


class Given(NamedTuple):
    """Tensor ``index`` of the step's inputs, in the order of ``flat_tensors``."""

    index: int


class Weight(NamedTuple):
    """A parameter of the model, by its path."""

    name: str


class Constant(NamedTuple):
    """A tensor that the step neither makes nor learns, such as a buffer."""

    tensor: torch.Tensor


Source = Union[Read, Given, Weight, Constant]
_SOURCES = (Read, Given, Weight, Constant)


class TensorType(NamedTuple):
    """``shape``: sizes, each an int or a BatchSize. ``axis``: the dimension that samples lie along, each part of a batch
    giving its part of the tensor; None where there is none."""

    shape: tuple[Any, ...]
    dtype: torch.dtype
    requires_grad: bool
    axis: Optional[int]

    @property
    def cut(self) -> Optional[int]:
        """The one dimension that follows the batch, also where its parts are not what the parts of a batch give."""
        found = [i for i, size in enumerate(self.shape) if isinstance(size, BatchSize)]
        return found[0] if len(found) == 1 else None

    def shape_at(self, batch: int) -> torch.Size:
        return torch.Size(size.at(batch) if isinstance(size, BatchSize) else size for size in self.shape)


@dataclass(eq=False)
class Call:
    """One function, or one leaf module, as the step calls it.

    ``args`` and ``kwargs`` hold a Source for each tensor and a BatchSize for each size that follows the batch. ``path``:
    the module's, or that of the module whose forward calls the function. ``aliases``: every output lies in the memory of
    something that is read. ``mutates``: the first argument is changed, and is the call's output. ``varies``: it depends on
    inputs or parameters. ``mixes``: a part of the batch does not give its part of the output. ``leaves``: a module's weight
    gradient may run later (leaving.py).
    """

    index: int
    name: str
    target: Any
    path: str
    args: Any
    kwargs: Any
    weights: list[str] = field(default_factory=list)  # Of a module, the paths of its parameters.
    grad_enabled: bool = True
    is_module: bool = False
    aliases: bool = False
    mutates: bool = False
    varies: bool = True
    random: bool = False
    mixes: bool = True
    leaves: bool = True
    outputs: list[TensorType] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)  # Of the traced batch, while it is traced.

    @property
    def sources(self) -> list[Source]:
        return list(sources_of((self.args, self.kwargs)))

    @property
    def is_moe(self) -> bool:
        return isinstance(self.target, MoELayer)

    def run(self, value_of: Callable[[Source], torch.Tensor], batch: int) -> list[torch.Tensor]:
        """The outputs, for a batch of that size. What is changed in place is a copy of what was read."""
        args, kwargs = self.arguments(value_of, batch)
        return self.tensors(args, self.apply(args, kwargs))

    def arguments(self, value_of: Callable[[Source], torch.Tensor], batch: int) -> tuple[Any, Any]:
        """What ``apply`` takes, for a batch of that size."""

        def resolve(leaf: Any) -> Any:
            if isinstance(leaf, _SOURCES):
                return value_of(leaf)
            if isinstance(leaf, BatchSize):
                return leaf.at(batch)
            return _same_batch(leaf, batch) if isinstance(leaf, ByBatch) else leaf

        args, kwargs = mapped(resolve, self.args), mapped(resolve, self.kwargs)
        if self.mutates:
            args = (args[0].clone(), *args[1:])
        return args, kwargs

    def apply(self, args: Any, kwargs: Any) -> Any:
        """What the function or module returns."""
        if self.grad_enabled:
            return self.target(*args, **kwargs)
        with torch.no_grad():
            return self.target(*args, **kwargs)

    def tensors(self, args: Any, result: Any) -> list[torch.Tensor]:
        """The outputs, where ``apply`` of these arguments returned ``result``."""
        return [args[0]] if self.mutates else flat_tensors(result)


def _same_batch(argument: ByBatch, batch: int) -> Any:
    if batch != argument.batch:
        raise mismatch("batch", f"{batch}, with which an argument changes unlike a size", f"{argument.batch}")
    return argument.value


@dataclass(eq=False)
class Instruction:
    """What is launched, timed and ordered as one.

    ``calls``: the one that gives it its name, last, after what only that reads: views, and what depends on neither inputs
    nor parameters. ``reads``: the outputs of other instructions that it reads; ``weights``: the parameters, by their paths.
    ``samples``: a part of the batch gives its part of every output. The backward pass has an instruction ID.dx where some
    read tensor has a gradient, and ID.dw where some parameter has. An MoELayer is one instruction here, of op "MOE".
    """

    id: str
    op: str
    calls: list[Call]
    reads: list[Read]
    weights: list[str]
    samples: bool

    @property
    def main(self) -> Call:
        return self.calls[-1]

    @property
    def outputs(self) -> list[Read]:
        return [Read(self.main.index, i) for i in range(len(self.main.outputs))]

    @property
    def layer(self) -> Optional[MoELayer]:
        return self.main.target if self.main.is_moe else None


@dataclass(eq=False)
class Traced:
    """One step of a model: forward pass and loss, as instructions in the order in which they run.

    ``batch``: the samples of the traced inputs, which lie along the first dimension. ``loss``: the scalar that goes back,
    None of a forward pass alone. ``model_outputs``: what the model gave, with a Source for each tensor (``rebuilt``);
    instructions after ``model_ends`` belong to the loss. ``part``: how many samples the second trace had, 0 where the batch
    could not be cut.
    """

    calls: list[Call]
    instructions: list[Instruction]
    parameters: dict[str, torch.nn.Parameter]
    batch: int
    part: int
    loss: Optional[Source]
    model_outputs: Any
    model_ends: int
    by_id: dict[str, Instruction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_id = {one.id: one for one in self.instructions}
        self.producer = {one.main.index: one for one in self.instructions}

    def type_of(self, read: Read) -> TensorType:
        return self.calls[read.call].outputs[read.output]

    def name_of(self, read: Read) -> str:
        """Of the tensor, in the graph: ID.y, ID.y2, ..."""
        suffix = ".y" if read.output == 0 else f".y{read.output + 1}"
        return self.producer[read.call].id + suffix

    def learns(self, one: Instruction) -> list[str]:
        """The parameters of the instruction that have a gradient."""
        return [name for name in one.weights if self.parameters[name].requires_grad]

    def can_wait(self, one: Instruction) -> bool:
        """Whether the instruction's weight gradient may run later: it is a module's that can leave it, called once in the step."""
        return one.main.is_module and one.main.leaves and sum(other.main.target is one.main.target for other in self.instructions) == 1

    def goes_back(self, one: Instruction) -> list[Read]:
        """What the instruction reads that has a gradient."""
        return [read for read in one.reads if self.type_of(read).requires_grad]

    def reached(self) -> dict[str, list[list[Instruction]]]:
        """For every instruction whose backward pass runs, and each of its outputs, who gives that a gradient. The loss
        has one of nobody."""
        given: dict[Read, list[Instruction]] = {self.loss: []} if isinstance(self.loss, Read) else {}
        found = {}
        for one in reversed(self.instructions):
            if not any(output in given for output in one.outputs):
                continue
            found[one.id] = [given.get(output, []) for output in one.outputs]
            for read in self.goes_back(one):
                given.setdefault(read, []).append(one)
        return found


_traced: weakref.WeakKeyDictionary[torch.nn.Module, Traced] = weakref.WeakKeyDictionary()


def remember(model: torch.nn.Module, traced: Traced) -> None:
    """Makes it what ``traced_of`` gives for the model."""
    _traced[model] = traced


def traced_of(model: torch.nn.Module) -> Traced:
    """The step that ``capture`` traced last. Raises InvalidInput where it traced none of this model."""
    if model not in _traced:
        raise mismatch("model", "one of which no step was captured", "moeplan.torch.capture of it, in this process")
    return _traced[model]


# ---- What a model gives.


class Like(NamedTuple):
    """An object that holds tensors, such as a model's output class: ``empty`` has its other fields."""

    empty: Any
    tensors: dict[str, Any]


def unbuilt(output: Any, source_of: Callable[[torch.Tensor], Any]) -> Any:
    """The nest with a Source for each tensor."""
    if isinstance(output, torch.Tensor):
        return source_of(output)
    is_plain = type(output) in (tuple, list, dict) or hasattr(output, "_fields") or not hasattr(output, "__dict__")
    if is_plain:
        return mapped(lambda leaf: source_of(leaf) if isinstance(leaf, torch.Tensor) else leaf, output)
    fields = output if isinstance(output, dict) else vars(output)
    held = {name: one for name, one in fields.items() if any(isinstance(leaf, torch.Tensor) for leaf in leaves(one))}
    return Like(_with(output, dict.fromkeys(held)), {name: unbuilt(one, source_of) for name, one in held.items()})


def rebuilt(output: Any, value_of: Callable[[Source], torch.Tensor]) -> Any:
    """What ``unbuilt`` had, with other tensors in it."""
    if isinstance(output, Like):
        return _with(output.empty, {name: rebuilt(one, value_of) for name, one in output.tensors.items()})
    return mapped(lambda leaf: value_of(leaf) if isinstance(leaf, _SOURCES) else leaf, output)


def _with(like: Any, fields: dict[str, Any]) -> Any:
    made = copy.copy(like)
    for name, value in fields.items():
        if isinstance(made, dict):
            made[name] = value
        else:
            setattr(made, name, value)
    return made


# ---- Nested arguments.


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The same nest of tuples, lists, dicts and slices, with ``function`` of each leaf."""
    if isinstance(value, _SOURCES) or isinstance(value, (BatchSize, ByBatch)):
        return function(value)
    if isinstance(value, tuple):
        inside = [mapped(function, one) for one in value]
        return type(value)(*inside) if hasattr(value, "_fields") else tuple(inside)
    if isinstance(value, list):
        return [mapped(function, one) for one in value]
    if isinstance(value, dict):
        return {key: mapped(function, one) for key, one in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(function, one) for one in (value.start, value.stop, value.step)))
    return function(value)


def leaves(value: Any) -> Iterator[Any]:
    found: list[Any] = []
    mapped(found.append, value)
    return iter(found)


def sources_of(value: Any) -> Iterator[Source]:
    if isinstance(value, Like):
        return (source for one in value.tensors.values() for source in sources_of(one))
    return (leaf for leaf in leaves(value) if isinstance(leaf, _SOURCES))


def flat_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors inside a nest; those of an object, such as a model's output, are those of its dict."""
    found: list[torch.Tensor] = []
    for leaf in leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, (type, torch.nn.Module)) and not callable(leaf):
            found.extend(one for one in vars(leaf).values() if isinstance(one, torch.Tensor))
    return found


def memory_of(tensor: torch.Tensor) -> int:
    """Which memory the tensor lies in: the same number for a tensor and its views."""
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr() or id(tensor)
