"""Traces a training step by running it, twice: once with the whole batch, and once with a part of it.

Both runs compute real values, so a model may branch on its sizes and settings as it likes; every function of PyTorch that
it calls is seen (torch.overrides.TorchFunctionMode), and so is every leaf module. What differs between the runs tells how
sizes follow the batch; and where the part's output is not the part of the whole output, an operation mixes samples. The
part is the batch's last, as the first would not show what looks at the samples before, such as a running sum.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Iterator, Optional

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from moeplan.errors import Error, InvalidInput, mismatch
from moeplan.torch import moe_tasks, operations
from moeplan.torch.by_batch import alike, merged, size_by_batch
from moeplan.torch.instructions import instructions_of
from moeplan.torch.layer import MoELayer
from moeplan.torch.leaving import can_leave
from moeplan.torch.step_inputs import Arguments, Inputs, Loss, are_alike, batch_of, called, loss_of, part_of
from moeplan.torch.traced import (
    BatchSize,
    ByBatch,
    Call,
    Constant,
    Given,
    Read,
    Source,
    TensorType,
    Traced,
    Weight,
    flat_tensors,
    leaves,
    mapped,
    memory_of,
    sources_of,
    unbuilt,
)


def trace(model: nn.Module, inputs: Inputs, loss: Loss) -> Traced:
    """The step ``loss(model(inputs)).backward()``. Nothing of the model, its gradients or the random state changes: dropout
    drops nothing here.

    Every MoELayer runs once, forward, so all ranks of the job call it together. The model runs twice more where the second
    pass made other calls, as after a first pass that has filled a cache of masks or positions. Raises InvalidInput, naming the module
    or function and where it is, for what a training graph cannot hold.
    """

    def go(tape: _Tape) -> tuple[Any, Optional[Source]]:
        output = called(model, tape.inputs)
        # A loss may look at targets of the whole batch, and mixes samples in any case.
        return output, (None if tape.first else tape.loss_of(loss, output))

    return _traced(model, inputs, go)


def trace_forward(model: nn.Module, arguments: Arguments, forward: Callable[..., Any]) -> Traced:
    """The same of a forward pass alone: of ``forward(*arguments.args, **arguments.kwargs)``, the model's own."""

    def go(tape: _Tape) -> tuple[Any, Optional[Source]]:
        args, kwargs = tape.inputs
        tape.runs_later = True
        return forward(*args, **kwargs), None

    if are_alike(arguments):
        raise mismatch("inputs", "samples that are all alike", "some that differ, as what mixes samples is seen from their values")
    return _traced(model, arguments, go)


def _traced(model: nn.Module, inputs: Any, go: Callable[[_Tape], tuple[Any, Optional[Source]]]) -> Traced:
    """Both runs. ``go``: calls the model, gives what it gave and the Source of a loss."""
    batch = batch_of(inputs)
    part = batch // 2
    whole = _Tape(model, inputs, batch, None)
    output, loss = whole.run(go)
    if part > 0:
        try:
            _run_part(_Tape(model, part_of(inputs, batch, -part), part, whole), go)
        except _OtherCalls:
            # The first run may have kept tensors in the model; now both runs find them.
            whole = _Tape(model, inputs, batch, None, known_layers=whole.layer_outputs())
            output, loss = whole.run(go)
            _run_part(_Tape(model, part_of(inputs, batch, -part), part, whole), go)
    for call in whole.calls:
        call.values = []
    kept = [*sources_of(output), *([] if loss is None else [loss])]
    return Traced(
        calls=whole.calls,
        instructions=instructions_of(whole.calls, kept, whole.model_ends),
        parameters=dict(model.named_parameters()),
        batch=batch,
        part=part,
        loss=loss,
        model_outputs=output,
        model_ends=whole.model_ends,
    )


def _run_part(tape: _Tape, go: Callable[[_Tape], Any]) -> None:
    try:
        tape.run(go)
    except Error:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        # The whole batch has run: something has its size that no input has brought.
        expected = "calls that take part of the batch, too: sizes from the inputs, and tensors of the batch among them"
        raise mismatch(tape.where, f"{type(error).__name__} with {tape.batch} samples ({error})", expected) from error


class _OtherCalls(InvalidInput):
    """The part of the batch makes other calls than the whole."""


class _Tape:
    """The calls of one run. ``first``: the tape of the whole batch, with which this one is compared. ``known_layers``: what
    the MoELayers give, in the order of their calls, where they have run before."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        batch: int,
        first: Optional[_Tape],
        known_layers: Optional[list[torch.Tensor]] = None,
    ) -> None:
        self.model, self.inputs, self.batch, self.first = model, inputs, batch, first
        self.calls: list[Call] = []
        self.model_ends = 0
        self.busy = False  # Calls that are made meanwhile are no part of the step.
        self.runs_later = False  # The calls are to run again: what they do beside their outputs would be lost.
        self._stack = [""]  # Paths of the modules that are being called.
        self._failed = ""  # Of the innermost that has raised.
        self._paths = {id(module): path for path, module in reversed(list(model.named_modules()))}
        self._sources: dict[int, Source] = {id(one): Weight(name) for name, one in model.named_parameters()}
        self._sources.update({id(one): Given(i) for i, one in enumerate(flat_tensors(inputs))})
        self._known_layers = None if known_layers is None else iter(known_layers)
        owned = {"a parameter": model.parameters(), "a buffer": model.buffers(), "an input": flat_tensors(inputs)}
        self._owners = {memory_of(one): kind for kind, tensors in owned.items() for one in tensors}
        self._changed: dict[int, int] = {}  # By memory: the call that changed it in place last.
        self._put_back: Optional[torch.Tensor] = None  # What y[key] += x is about to write to a second time.
        self._held: list[torch.Tensor] = []  # So that no other tensor gets the id of one that is known.

    # ---- A run.

    @property
    def where(self) -> str:
        """What is called, or was where that has failed."""
        return self._failed or self._stack[-1] or "model"

    def run(self, go: Callable[[_Tape], tuple[Any, Optional[Source]]]) -> tuple[Any, Optional[Source]]:
        """What ``go`` gives, with a Source for each tensor of the model's output; of a part nothing, without gradients."""
        with torch.set_grad_enabled(self.first is None), _modules_through(self), _Functions(self):
            output, loss = go(self)
        if loss is None:
            self.model_ends = len(self.calls)
        return (None if self.first else unbuilt(output, lambda one: self._source_of(one, "the model's output"))), loss

    def loss_of(self, loss: Loss, output: Any) -> Source:
        """What follows belongs to the loss."""
        self.model_ends = len(self.calls)
        self._stack = ["loss"]
        return self._loss_source(loss_of(loss, output, self.inputs))

    def _loss_source(self, scalar: Any) -> Source:
        if not isinstance(scalar, torch.Tensor) or scalar.numel() != 1:
            found = f"a tensor of shape {tuple(scalar.shape)}" if isinstance(scalar, torch.Tensor) else type(scalar).__name__
            raise mismatch("loss", found, "a scalar tensor; give a function of the model's output that returns one")
        if not scalar.requires_grad:
            raise mismatch("loss", "a tensor without a gradient", "one that depends on parameters")
        return self._source_of(scalar, "loss")

    # ---- What is called.

    def function(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if self.busy:
            return function(*args, **kwargs)
        if operations.name_of(function) == "iter":
            return iter(self.function(torch.Tensor.unbind, args, {}))
        with self._alone():
            return self._function(function, args, kwargs)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    def _function(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = operations.name_of(function)
        function, args, kwargs = operations.by_shape(name, function, args, kwargs)
        where = self._stack[-1] or "model"
        self._put_back = args[0] if self._puts_back(name, args) else None
        tensors = [leaf for leaf in flat_tensors((args, kwargs))]
        varies = any(self._varies(self._source_of(one, where)) for one in tensors)
        operations.check_function(name, where, args, kwargs, varies)
        if name in operations.ASIDE:
            return self._aside(name, function, args, kwargs, where)
        if torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled():
            raise mismatch(where, "torch.autocast", "a model in one dtype, such as model.to(torch.bfloat16)")
        told = operations.is_told_in_place(name, args, kwargs)
        mutates = (operations.is_in_place(name) or told) and bool(args) and isinstance(args[0], torch.Tensor)
        if told and not mutates:
            raise mismatch(where, f"a call of {name} in place with its input by name", "the input as the first argument")
        if mutates:
            self._keep_values(args[0])
        quiet = operations.without_dropout(name, args, kwargs)
        encoded = self._encoded((args, kwargs), where)
        if quiet is None:
            result = function(*args, **kwargs)
        else:
            result = function(*quiet[0], **quiet[1])
            if result is args[0] and not mutates:
                result = result.clone()  # As one that drops would give it.
        if not flat_tensors(result) and not mutates:
            return result
        call = Call(len(self.calls), name, function, self._stack[-1], *encoded, mutates=mutates, random=quiet is not None)
        return self._add(call, tensors, args[0] if mutates else result, result)

    def _aside(self, name: str, function: Any, args: Any, kwargs: dict[str, Any], where: str) -> Any:
        before = args[0].requires_grad
        result = function(*args, **kwargs)
        if self.runs_later and (name in ("register_hook", "retain_grad") or args[0].requires_grad != before):
            raise mismatch(where, f"a call of {name} on a tensor of the pass", "a forward pass that can run from its trace")
        return result

    def _puts_back(self, name: str, args: Any) -> bool:
        """Whether the call is the last of y[key] += x: assigns to y[key] what was taken there and has been changed in place. A
        copy of y, to which that is assigned, is then what y is."""
        if name != "setitem_" or not isinstance(args[2], torch.Tensor) or flat_tensors(args[1]):
            return False
        y, value = (self._sources.get(id(one)) for one in (args[0], args[2]))
        if not isinstance(y, Read) or not isinstance(value, Read):
            return False
        change = self.calls[value.call]
        view = next(iter(change.sources), None)
        if not change.mutates or not isinstance(view, Read) or self._changed.get(memory_of(args[0])) != change.index:
            return False
        taken = self.calls[view.call]
        return taken.name == "getitem" and taken.args == (y, args[1])

    def _keep_values(self, tensor: torch.Tensor) -> None:
        """What was written to the memory of ``tensor``, which changes now, is compared as it was."""
        memory = memory_of(tensor)
        for call in self.calls if self.first is None else ():
            call.values = [one.detach().clone() if memory_of(one) == memory else one for one in call.values]

    def refuse_unless_busy(self, function: type) -> None:
        if not self.busy:
            checkpoints = "Checkpoint" in function.__name__ or function.__module__ == "torch.utils.checkpoint"
            kind = "activation checkpointing" if checkpoints else "an autograd.Function"
            raise mismatch(
                self._stack[-1] or "model",
                f"{kind}, {function.__name__}",
                "functions and modules of PyTorch, whose calls can be seen, for this capture",
            )

    def refuse_saved_tensor_hooks(self) -> None:
        raise mismatch(
            self._stack[-1] or "model",
            "activation checkpointing, or other hooks for saved tensors",
            "functions and modules of PyTorch that keep what they save, for this capture",
        )

    def refuse_statistics(self) -> None:
        if self.runs_later:
            raise mismatch(
                self._stack[-1] or "model",
                "the router's statistics or aux_loss of an MoELayer, which would be those of this pass for ever",
                "none inside of the forward pass: backward passes have the plan's auxLossCoefficient, and what is printed "
                "may be read after the step",
            )

    def module(self, original: Any, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        if self.busy:
            return original(module, *args, **kwargs)
        path = self._paths.get(id(module))
        if path is None:
            path = self._stack[-1]
            if operations.is_leaf(module, path):
                path = f"{path}.{type(module).__name__}".lstrip(".")
        if not operations.is_leaf(module, path):
            self._stack.append(path)
            try:
                return original(module, *args, **kwargs)
            except Exception:
                self._failed = self._failed or path
                raise
            finally:
                self._stack.pop()
        with self._alone():
            return self._leaf(original, module, path, args, kwargs)

    def _leaf(self, original: Any, module: nn.Module, path: str, args: Any, kwargs: dict[str, Any]) -> Any:
        tensors = [*flat_tensors((args, kwargs)), *module.parameters()]
        random = operations.is_dropout(module)
        encoded = self._encoded((args, kwargs), path)
        call = Call(len(self.calls), path.rpartition(".")[2], module, path, *encoded, is_module=True, random=random)
        call.weights = [self._sources[id(one)].name for one in module.parameters() if id(one) in self._sources]
        call.mutates = bool(getattr(module, "inplace", False))
        if call.mutates and not args:
            raise mismatch(path, f"{type(module).__name__} in place with its input by name", "the input as the first argument")
        if call.mutates:
            self._keep_values(args[0])
        kept = [*module.buffers(), *(() if call.mutates else tensors)]
        versions = [(one, one._version) for one in kept if not one.is_inference()]
        state = _random_state(tensors)
        if random:
            result = args[0] if call.mutates else args[0].clone()
        elif isinstance(module, MoELayer) and self.first is not None:
            result = self._part_of_known(call.index, path, tensors[0])
        elif isinstance(module, MoELayer) and self._known_layers is not None:
            result = next(self._known_layers)
        else:
            result = original(module, *args, **kwargs)
        if not isinstance(module, MoELayer) and any(one._version != version for one, version in versions):
            found = f"{type(module).__name__}, which changes its buffers, parameters or inputs"
            raise mismatch(path, found, "modules that keep no state of their calls")
        if not random and not torch.equal(_random_state(tensors), state):
            found = f"{type(module).__name__}, which draws random numbers"
            raise mismatch(path, found, "random numbers of Dropout alone, as a module of its own")
        if self.first is None and call.weights and not isinstance(module, MoELayer):
            call.leaves = can_leave(module, args, kwargs)
        return self._add(call, tensors, result, result)

    def layer_outputs(self) -> list[torch.Tensor]:
        """What the MoELayers gave, in the order of their calls, without what made it."""
        found = [call.values[0] for call in self.calls if call.is_moe]
        return [one.detach().clone().requires_grad_(one.requires_grad) for one in found]

    def _part_of_known(self, index: int, path: str, x: torch.Tensor) -> torch.Tensor:
        """Of a layer's output for the input ``x``: its exchanges, and the pairs that it drops, are those of the whole batch."""
        whole = self._same_call(index, "an MoELayer", path).values[0].detach()
        axes = [axis for axis, sizes in enumerate(zip(whole.shape, x.shape)) if sizes[0] != sizes[1]]
        if whole.dim() != x.dim() or len(axes) > 1:
            found = f"rows {tuple(x.shape)} with {self.batch} samples where {tuple(whole.shape)} were with {self.first.batch}"
            raise mismatch(path, found, "rows of which one dimension follows the batch")
        for axis in axes:
            whole = whole.narrow(axis, whole.shape[axis] - x.shape[axis], x.shape[axis])
        return whole.clone()

    # ---- What is written down.

    def _add(self, call: Call, read: list[torch.Tensor], written: Any, result: Any) -> Any:
        outputs = flat_tensors(written)
        memory = {memory_of(one) for one in read}
        call.grad_enabled = torch.is_grad_enabled()
        call.varies = call.is_module or call.random or any(self._varies(one) for one in call.sources)
        call.aliases = not call.mutates and bool(outputs) and all(memory_of(one) in memory for one in outputs)
        self._note_change(call, read)
        if self.first is None:
            call.values = outputs
            call.outputs = [TensorType(tuple(one.shape), one.dtype, one.requires_grad, None) for one in outputs]
        else:
            self._compare(call, outputs)
        self.calls.append(call)
        for i, one in enumerate(outputs):
            self._sources[id(one)] = Read(call.index, i)
        self._held.extend(outputs)
        return result

    def _note_change(self, call: Call, read: list[torch.Tensor]) -> None:
        if not call.mutates:
            return
        kind = self._owners.get(memory_of(read[0]))  # Whether by itself or through a view.
        if kind is not None:
            where = call.path or "model"
            raise mismatch(where, f"{call.name}, which changes {kind} in place", "operations that change none")
        if self.first is None:
            self._changed[memory_of(read[0])] = call.index

    def _source_of(self, tensor: torch.Tensor, where: str) -> Source:
        source = self._sources.get(id(tensor))
        if source is None:
            if tensor.requires_grad:
                found = "a tensor with a gradient that nothing in the step has made"
                raise mismatch(where, found, "inputs without gradients, and functions and modules whose calls can be seen")
            source = self._sources[id(tensor)] = Constant(tensor)
            self._owners.setdefault(memory_of(tensor), "a buffer")
            self._held.append(tensor)
        elif isinstance(source, Read) and self.first is None and tensor is not self._put_back:
            self._check_read(self.calls[source.call], source.output, tensor, where)
        return source

    def _check_read(self, call: Call, output: int, tensor: torch.Tensor, where: str) -> None:
        if tensor.requires_grad != call.outputs[output].requires_grad:
            raise mismatch(where, f"the output of {call.name}, whose gradient was switched", "one that stays as it is")
        if self._changed.get(memory_of(tensor), -1) > call.index:
            raise mismatch(where, f"the output of {call.name}, which was changed in place through a view", "the changed view")

    def _varies(self, source: Source) -> bool:
        if isinstance(source, Read):
            return self.calls[source.call].varies
        return not isinstance(source, Constant)

    def _encoded(self, value: Any, where: str) -> Any:
        return mapped(lambda leaf: self._source_of(leaf, where) if isinstance(leaf, torch.Tensor) else leaf, _plain(value))

    # ---- How the whole batch differs from its part.

    def _same_call(self, index: int, what: str, where: str) -> Call:
        calls = self.first.calls
        if index >= len(calls):
            raise self._other_calls(where, f"{what} with {self.batch} samples alone")
        return calls[index]

    def _other_calls(self, where: str, found: str) -> InvalidInput:
        expected = "the same calls for every batch: no loop over samples, and no branch on how many there are"
        return _OtherCalls(str(mismatch(where or "model", found, expected)), where or "model", found, expected)

    def _check_constants(self, whole: Call, call: Call) -> None:
        """What neither the model holds nor a call has made has to be the same tensor for every batch."""
        for one, other in zip(whole.sources, call.sources):
            if isinstance(one, Constant) and isinstance(other, Constant) and not _same_values(one.tensor, other.tensor):
                found = f"{call.name}, which reads a tensor of the batch that no call was seen to make"
                raise mismatch(call.path or "model", found, "functions and modules of PyTorch, none of torch.jit or other libraries")

    def _compare(self, call: Call, outputs: list[torch.Tensor]) -> None:
        whole = self._same_call(call.index, call.name, call.path)
        if whole.name != call.name or whole.path != call.path:
            raise self._other_calls(call.path, f"{call.name} with {self.batch} samples where {whole.name} was with {self.first.batch}")
        if len(whole.outputs) != len(outputs):
            found = f"{call.name}, of {len(outputs)} tensors with {self.batch} samples and {len(whole.outputs)} with {self.first.batch}"
            raise self._other_calls(call.path, found)
        self._check_constants(whole, call)
        batches = self.first.batch, self.batch
        calls = self.first.calls
        cut_reads = any(calls[one.call].outputs[one.output].axis is not None for one in _reads(whole))
        whole.args = merged(whole.args, call.args, *batches)
        whole.kwargs = merged(whole.kwargs, call.kwargs, *batches)
        mixes = any(isinstance(leaf, ByBatch) for leaf in leaves((whole.args, whole.kwargs)))
        mixes = mixes or any(calls[one.call].mixes for one in _reads(whole) if not calls[one.call].varies)
        mixes = mixes or self._moves_samples(whole)
        types = []
        for known, value, now in zip(whole.outputs, whole.values, outputs):
            shape = tuple(size_by_batch(*sizes, *batches) for sizes in zip(value.shape, now.shape))
            cut = [i for i, size in enumerate(shape) if isinstance(size, BatchSize)]
            expected = value.detach()
            for axis in cut:
                expected = expected[(slice(None),) * axis + (slice(-now.shape[axis], None),)]
            agrees = len(cut) < 2 and expected.shape == now.shape and (not whole.varies or alike(now, expected))
            if not agrees or (cut_reads and not cut):
                mixes = True
            if not agrees and not call.aliases and expected.shape == now.shape:
                now.detach().copy_(expected)  # So that what follows is judged by itself.
            types.append(known._replace(shape=shape, axis=cut[0] if cut and agrees else None))
        whole.outputs = types
        whole.mixes = mixes or (whole.is_moe and moe_tasks.why_whole(whole.target, types[0].axis) != "")

    def _moves_samples(self, call: Call) -> bool:
        first = next(iter(call.sources), None)
        if not isinstance(first, Read) or call.is_module or not isinstance(call.args, tuple) or not call.args:
            return False
        kind = self.first.calls[first.call].outputs[first.output]
        return kind.axis is not None and operations.moves_samples(
            call.name, call.args, call.kwargs, len(kind.shape), kind.axis
        )


def _reads(call: Call) -> list[Read]:
    return [one for one in call.sources if isinstance(one, Read)]


def _plain(value: Any) -> Any:
    """The tensors of an object, such as a model's output, as a list."""
    return flat_tensors(value) if hasattr(value, "__dict__") and not isinstance(value, (torch.Tensor, dict)) else value


def _random_state(tensors: list[torch.Tensor]) -> torch.Tensor:
    """That of the device which the tensors are on."""
    on_card = next((one.device for one in tensors if one.device.type == "cuda"), None)
    return torch.get_rng_state() if on_card is None else torch.cuda.get_rng_state(on_card)


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or (one.shape == other.shape and one.dtype == other.dtype and alike(one, other))


class _Functions(TorchFunctionMode):
    """Brings every function of PyTorch that is called inside to the tape."""

    def __init__(self, tape: _Tape) -> None:
        super().__init__()
        self.tape = tape

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.tape.function(function, args, kwargs or {})


@contextlib.contextmanager
def _modules_through(tape: _Tape) -> Iterator[None]:
    """Brings every call of a module inside to the tape, and every index: PyTorch 1.13 shows a mode tuples of them alone. An
    autograd.Function, which no mode sees, is refused."""
    original = nn.Module.__call__
    get_item = torch.Tensor.__getitem__

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return tape.module(original, module, args, kwargs)

    def index(tensor: torch.Tensor, key: Any) -> Any:
        return tape.function(get_item, (tensor, key), {})

    def apply(function: type, *args: Any, **kwargs: Any) -> Any:
        tape.refuse_unless_busy(function)
        return apply_function.__get__(None, function)(*args, **kwargs)

    def enter(hooks: Any) -> Any:
        tape.refuse_saved_tensor_hooks()
        return enter_hooks(hooks)

    def statistics(layer: MoELayer) -> Any:
        tape.refuse_statistics()
        return router_statistics(layer)

    router_statistics = MoELayer.router_statistics
    saved_tensors_hooks = torch.autograd.graph.saved_tensors_hooks
    enter_hooks = saved_tensors_hooks.__enter__
    apply_function = inspect.getattr_static(torch.autograd.Function, "apply")
    with contextlib.ExitStack() as changes:
        _replace(changes, nn.Module, "__call__", call)
        _replace(changes, torch.Tensor, "__getitem__", index)
        _replace(changes, torch.autograd.Function, "apply", classmethod(apply))
        _replace(changes, MoELayer, "router_statistics", statistics)
        _replace(changes, saved_tensors_hooks, "__enter__", enter)
        yield


def _replace(changes: contextlib.ExitStack, owner: type, name: str, value: Any) -> None:
    """Gives the class another attribute until ``changes`` ends."""
    if name in vars(owner):
        changes.callback(setattr, owner, name, vars(owner)[name])
    else:
        changes.callback(delattr, owner, name)
    setattr(owner, name, value)
