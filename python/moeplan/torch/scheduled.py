"""Steps of a job under the plan of its training graph (docs/lancet.md)."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import torch

from moeplan.errors import mismatch
from moeplan.torch.deferred import Slots
from moeplan.torch.forward_in_parts import ForwardInParts
from moeplan.torch.layer import MoELayer
from moeplan.torch.layer_schedule import LayerSchedule
from moeplan.torch.leaving import Leaving
from moeplan.torch.ranges import Partition
from moeplan.torch.replace import ReplacedBlock

WEIGHT_GRADIENTS, PARTITION = "weight-gradients", "partition"
_PLACE = "rules.lancet"
_EXCHANGES = (".all_to_all2.dx", ".all_to_all1.dx")  # In the order of a backward pass.


@contextlib.contextmanager
def scheduled(model: torch.nn.Module, answer: Any, *, without: str | Sequence[str] = ()) -> Iterator[None]:
    """Steps that run inside follow the plan of ``answer``: that of ``moeplan plan --graph --json``, as a dict or an Answer.

    Weight gradients run while the exchange that the plan names for them is under way, and the plan's ranges of the forward
    pass run in parts along the batch, of which one computes while the rows of another are on their way. Losses and gradients
    are those without, rounding aside. The model's modules, parameters and hooks are the same, inside and after. ``without``:
    "weight-gradients" or "partition", or both: what of the plan is left. Backward passes of what went forward inside may come
    after the end, unless activation checkpointing has modules compute again.

    An instruction is a module by its path; the weight gradient of module M is M.dw, of an MoELayer at path P P.gate.dw and
    P.experts.dw, and its exchanges going back P.all_to_all2.dx and P.all_to_all1.dx. One backward pass of a layer has
    both exchanges: what the first hides runs at once, and what the second hides once the experts have computed. Gradients of
    a gate, and of experts beside an exchange of their own layer, run in the layer's own backward pass. Under activation
    checkpointing with ``use_reentrant`` weight gradients run at once.

    With ranges, the forward pass that wants gradients runs from a trace, which the first pass makes with inputs of such
    shapes (``moeplan.torch.capture`` says what a trace can hold, and takes the same names). It calls the modules that are one
    operation, and their hooks; what a forward pass reads beside tensors and numbers of its modules, or does beside what it
    gives, is that of the traced pass. Weight gradients of modules that are several operations come at once. An MoELayer runs
    in parts as a whole; its statistics are those of the last part. Backward passes of parts take turns as well.

    Raises InvalidInput, and changes nothing, for an id of a weight gradient or exchange that the model has not. The first
    forward pass raises for a module whose weight gradients cannot wait, and for a range that the model has not or that cannot
    be cut. Collective: all ranks enter with the same plan. Not inside of ``side_by_side`` or ``micro_batches``.
    """
    left_out = {without} if isinstance(without, str) else set(without)
    if left_out - {WEIGHT_GRADIENTS, PARTITION}:
        raise mismatch("without", repr(without), f'"{WEIGHT_GRADIENTS}", "{PARTITION}" or both')
    plan = _read(answer)
    pairs = [] if WEIGHT_GRADIENTS in left_out else _resolved(model, plan)
    partitions = [] if PARTITION in left_out else plan.partitions
    _refuse_twice(model)
    with contextlib.ExitStack() as changes:
        slots = Slots()
        _enter(changes, pairs, slots)
        if partitions:
            changes.callback(ForwardInParts(*_inside(model, partitions), slots).end)
        yield


class _Plan(NamedTuple):
    weight_gradients: list[tuple[str, str]]  # Instructions with the exchanges that hide them, in the plan's order.
    partitions: list[Partition]


class _Pair(NamedTuple):
    """A weight gradient, and the layer whose backward pass it runs beside."""

    path: str  # Of the module; of an MoELayer's experts with their name behind it.
    module: torch.nn.Module
    of_experts: bool
    beside: MoELayer
    exchange: int  # The first of the backward pass is 0.


def _read(answer: Any) -> _Plan:
    given = getattr(answer, "response", answer)
    rules = given.get("rules") if isinstance(given, Mapping) else None
    lancet = rules.get("lancet") if isinstance(rules, Mapping) else None
    if not isinstance(lancet, Mapping):
        raise mismatch(_PLACE, "nothing", "an object; give the answer of moeplan plan --graph --json")
    order = {name: place for place, name in enumerate(lancet.get("order", []))}
    found = []
    for i, entry in enumerate(lancet.get("weightGradients", [])):
        names = tuple(entry.get(key) if isinstance(entry, Mapping) else None for key in ("instruction", "allToAll"))
        if not all(isinstance(name, str) for name in names):
            raise mismatch(f"{_PLACE}.weightGradients[{i}]", repr(entry), 'an object with "instruction" and "allToAll"')
        found.append(names)
    twice = [name for name, _ in found if sum(name == other for other, _ in found) > 1]
    if twice:
        raise mismatch(f"{_PLACE}.weightGradients", f"{twice[0]} twice", "each instruction once")
    # Those that the order has not stay where they are in the list.
    found.sort(key=lambda names: order.get(names[0], -1))
    return _Plan(found, [_partition(i, entry) for i, entry in enumerate(lancet.get("partitions", []))])


def _partition(number: int, entry: Any) -> Partition:
    place = f"{_PLACE}.partitions[{number}]"
    first, last, parts = (entry.get(key) if isinstance(entry, Mapping) else None for key in ("first", "last", "parts"))
    if not isinstance(first, str) or not isinstance(last, str) or not isinstance(parts, int) or parts < 1:
        raise mismatch(place, repr(entry), 'an object with "first", "last" and "parts" of at least 1')
    return Partition(first, last, parts, place)


def _inside(model: torch.nn.Module, partitions: Sequence[Partition]) -> tuple[torch.nn.Module, list[Partition]]:
    """What DistributedDataParallel wraps, whose own call prepares its reduction, and the names there."""
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return model, list(partitions)
    inside = [one._replace(first=_without_module(one.first), last=_without_module(one.last)) for one in partitions]
    return model.module, inside


def _without_module(name: str) -> str:
    return name[len("module.") :] if name.startswith("module.") else name


def _resolved(model: torch.nn.Module, plan: _Plan) -> list[_Pair]:
    """Raises InvalidInput that names what the model has not."""
    modules = _modules(model)
    pairs, unknown = [], []
    for instruction, exchange in plan.weight_gradients:
        layer, number = _exchange(modules, exchange)
        path, module, of_experts = _instruction(modules, instruction)
        unknown += [name for name, found in ((instruction, module), (exchange, layer)) if found is None]
        if layer is not None and module is not None:
            pairs.append(_Pair(path, module, of_experts, layer, number))
    if unknown:
        raise mismatch(
            f"{_PLACE}.weightGradients",
            ", ".join(dict.fromkeys(unknown)),
            "PATH.dw of a module with parameters, and PATH.all_to_all1.dx or PATH.all_to_all2.dx of an MoELayer",
        )
    for pair in pairs:
        if sum(pair.module is other.module for other in pairs) > 1 and not isinstance(pair.module, MoELayer):
            raise mismatch(f"{_PLACE}.weightGradients", f"{pair.path}, a module of two paths, twice", "each module once")
        if pair.of_experts and pair.module is pair.beside and pair.exchange == 0:
            raise mismatch(f"{_PLACE}.weightGradients", f"{pair.path}.dw beside what brings its rows", "an exchange behind that")
    return [pair for pair in pairs if not (pair.of_experts and pair.module is pair.beside)]


def _modules(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """By path. A replaced block is its layer; what DistributedDataParallel wraps has its own paths, too."""
    found = dict(model.named_modules(remove_duplicate=False))
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        found = {**dict(model.module.named_modules(remove_duplicate=False)), **found}
    return {path: one.layer if isinstance(one, ReplacedBlock) else one for path, one in found.items()}


def _exchange(modules: Mapping[str, torch.nn.Module], name: str) -> tuple[MoELayer | None, int]:
    for number, ending in enumerate(_EXCHANGES):
        path = name[: -len(ending)] if name.endswith(ending) else ""
        # The second call of a layer is P@2; a weight gradient waits for the call that its module's forward pass followed.
        layer = modules.get(path, modules.get(path.rpartition("@")[0]))
        if path and isinstance(layer, MoELayer):
            return layer, number
    return None, 0


def _instruction(modules: Mapping[str, torch.nn.Module], name: str) -> tuple[str, torch.nn.Module | None, bool]:
    """The path, the module, and whether its experts are meant. A gate's gradient is its layer's affair."""
    path = name[: -len(".dw")] if name.endswith(".dw") else ""
    parent, _, last = path.rpartition(".")
    layer = modules.get(parent)
    if isinstance(layer, MoELayer):
        return (path, layer, last == "experts") if last in ("gate", "experts") else (path, None, False)
    module = modules.get(path) if path else None
    if module is None or isinstance(module, MoELayer) or next(module.parameters(recurse=False), None) is None:
        return path, None, False
    return path, module, False


def _refuse_twice(model: torch.nn.Module) -> None:
    for path, module in model.named_modules():
        if isinstance(module, MoELayer) and module._passes.schedule is not None:
            raise mismatch("scheduled", f"{path}, which runs under a schedule already", "one schedule at a time")


def _enter(changes: contextlib.ExitStack, pairs: Sequence[_Pair], slots: Slots) -> None:
    """Changes what the plan names; ``changes`` takes all back."""
    lanes = _lanes(pairs)
    for layer in lanes:
        experts = next((pair.path for pair in pairs if pair.of_experts and pair.module is layer), "")
        hidden = [
            (pair.path, _parameters(pair), pair.exchange)
            for pair in pairs
            if pair.beside is layer and (pair.of_experts or not isinstance(pair.module, MoELayer))
        ]
        layer._passes.schedule = LayerSchedule(slots, lanes[layer], hidden, experts)
        changes.callback(setattr, layer._passes, "schedule", None)
    for pair in pairs:
        if not isinstance(pair.module, MoELayer):
            changes.callback(Leaving(pair.path, pair.module, slots).end)


def _parameters(pair: _Pair) -> list[torch.Tensor]:
    if isinstance(pair.module, MoELayer):
        return pair.module._expert_parameters()
    return list(pair.module.parameters(recurse=False))


def _lanes(pairs: Sequence[_Pair]) -> dict[MoELayer, int]:
    """The lanes of all layers that the plan names. Experts run on another lane than the layer whose exchange hides them."""
    hides = {pair.module: pair.beside for pair in pairs if pair.of_experts}
    lanes: dict[Any, int] = {}

    def lane_of(layer: Any, seen: frozenset[Any]) -> int:
        if layer in seen:
            raise mismatch(f"{_PLACE}.weightGradients", "experts that wait for each other's exchanges", "one backward order")
        if layer not in lanes:
            lanes[layer] = 3 - lane_of(hides[layer], seen | {layer}) if layer in hides else 1
        return lanes[layer]

    for pair in pairs:
        lane_of(pair.beside, frozenset())
        if pair.of_experts:
            lane_of(pair.module, frozenset())
    return lanes
