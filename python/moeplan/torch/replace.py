"""A model's own MoE blocks, swapped for MoELayers with their weights, and back."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Union

import torch

from moeplan import library, messages
from moeplan.baseline import with_router_defaults
from moeplan.errors import mismatch
from moeplan.torch.by_batch import rounding
from moeplan.torch.layer import MoELayer
from moeplan.torch.plan import read_plan
from moeplan.torch.traced import flat_tensors, memory_of
from moeplan.torch.world import World
from moeplan.v1 import workload_pb2

# A tensor comes whole, or as one tensor for each expert. Both are views of the block's parameters.
Weights = Union[torch.Tensor, "list[torch.Tensor]"]
# ``returns(layer, x, y)``: what the block returned for the input x, where the layer's output is y.
Returns = Callable[[MoELayer, torch.Tensor, torch.Tensor], Any]
_ROWS = 128  # By which a block and its layer are compared.


class Block(NamedTuple):
    """What an adapter says of a block.

    ``weights``: by the names and shapes of ``MoELayer.load_full_weights``, alike on all ranks: views of the block's
    parameters and buffers (``weight.T``, a slice), so that ``restore`` can write to them. ``kind``: the gate, by its name
    in the contract; ``router`` and ``swiglu_limit``: the contract's ``layer.router``, as a dict, and ``layer.swigluLimit``.
    ``top_k``, and ``dropless`` where the block drops no pair. All are checked against the plan, the last two where they
    are given.
    ``returns``: None where the block returns its output alone.
    """

    weights: Mapping[str, Weights]
    kind: str = "TOP_K"
    top_k: Optional[int] = None
    dropless: bool = False
    returns: Optional[Returns] = None
    router: Mapping[str, Any] = {}
    swiglu_limit: float = 0


# Gives a Block; or a dict of its weights, with the Block's other fields beside them; or such a dict and the gate's kind.
Adapter = Callable[[torch.nn.Module], Union[Block, "dict[str, Any]", "tuple[dict[str, Any], str]"]]


class ReplacedBlock(torch.nn.Module):
    """Stands in the model where a block stood, and is called as it was. ``layer``: its MoELayer. ``rows``: the name of the
    first argument of the block's forward."""

    def __init__(self, layer: MoELayer, returns: Optional[Returns], rows: str = "x") -> None:
        super().__init__()
        self.layer = layer
        self._returns = returns
        self._rows = rows

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """[..., M] in; what the block returned out. Other arguments of the block's forward are not looked at."""
        x = args[0] if args else kwargs[self._rows]
        y = self.layer(x)
        return y if self._returns is None else self._returns(self.layer, x, y)


class _Swap(NamedTuple):
    parent: torch.nn.Module
    name: str
    path: str
    block: torch.nn.Module
    adapter: Adapter
    replaced: ReplacedBlock


class Replacement:
    """The blocks of a model that ``replace`` has swapped. ``layers``: their MoELayers, by the paths of the blocks.

    It keeps the blocks, whole, for ``restore``; who does not go back drops it to have their memory back.
    """

    def __init__(self, swaps: list[_Swap]) -> None:
        self._swaps = swaps
        self.layers = {swap.path: swap.replaced.layer for swap in swaps}

    def restore(self) -> None:
        """Puts the blocks back, with the weights that their layers have now, and closes the layers. Collective.

        Raises InvalidInput, and changes nothing, where an adapter gives copies rather than views of a block's parameters.
        """
        for swap in self._swaps:
            _write(swap, swap.replaced.layer.full_weights())
        for swap in self._swaps:
            setattr(swap.parent, swap.name, swap.block.train(swap.replaced.training))
            swap.replaced.layer.close()
        self._swaps = []
        self.layers = {}


def replace(
    model: torch.nn.Module,
    adapters: Mapping[type, Adapter],
    plan: Any,
    world: World,
    defer_weight_gradients: bool = False,
    compare: bool = True,
) -> Replacement:
    """Swaps every block of the classes of ``adapters`` inside ``model`` for a MoELayer of ``plan`` with its weights.

    Every rank has the same whole model, and afterwards its shard of the experts: make the optimizer, and wrap the model
    in DistributedDataParallel, after this. Training and evaluation mode stay. A block's dtype becomes its layer's.
    ``moeplan.torch.hugging_face.adapters()`` has adapters for the classes of transformers that are installed. ``compare``: a
    block that takes rows alone gets some random ones, and has to give what its layer gives for them; of a layer with a
    capacity, for most, as blocks drop pairs in their own ways. Collective.
    Raises InvalidInput, and changes nothing, where no such block is found, or one does not fit the plan: its shapes, its
    gate, its top-k or, compared, what it computes.
    """
    planned = read_plan(plan).workload
    swaps: list[_Swap] = []
    made: dict[int, ReplacedBlock] = {}  # By block: one that several parents hold stays one.
    for path, block in list(model.named_modules(remove_duplicate=False)):
        adapter = next((adapters[kind] for kind in type(block).__mro__ if kind in adapters), None)
        if adapter is None:
            continue
        if not path:
            raise mismatch("model", "a block itself", "a model that holds blocks")
        if id(block) not in made:
            described = _described(adapter, block)
            _check(path, described, block, planned, world, compare)
            dtype = described.weights["gate"].dtype  # type: ignore[union-attr]
            moe = MoELayer(plan, world, dtype=dtype, defer_weight_gradients=defer_weight_gradients)
            moe.load_full_weights(**{name: _whole(value) for name, value in described.weights.items()})
            moe.requires_grad_(all(parameter.requires_grad for parameter in _learning(described, block)))
            if compare and described.kind == "TOP_K":
                _compare(path, block, moe)
            made[id(block)] = ReplacedBlock(moe, described.returns, _first_argument(block)).train(block.training)
        parent, _, name = path.rpartition(".")
        swaps.append(_Swap(model.get_submodule(parent), name, path, block, adapter, made[id(block)]))
    if not swaps:
        names = ", ".join(kind.__name__ for kind in adapters) or "no class at all"
        raise mismatch("model", f"no block of {names}", "at least one; give the class of the model's MoE block")
    for swap in swaps:
        setattr(swap.parent, swap.name, swap.replaced)
    return Replacement(swaps)


def _described(adapter: Adapter, block: torch.nn.Module) -> Block:
    said = adapter(block)
    if isinstance(said, Block):
        return said
    weights, kind = said if isinstance(said, tuple) else (said, None)
    weights = dict(weights)
    fields = {name: weights.pop(name) for name in Block._fields[1:] if name in weights}
    if kind is not None:
        fields["kind"] = kind
    return Block(weights, **fields)


def _check(path: str, described: Block, block: torch.nn.Module, planned: Any, world: World, compare: bool) -> None:
    """Raises InvalidInput where the block is not what the plan is for, or no adapter can say what it is; compared, also for
    parameters that no adapter has said."""
    layer = planned.layer
    unknown = sorted(set(described.weights) - set(library.WEIGHTS))
    if unknown:
        raise mismatch(f"{path}: {unknown[0]}", "it among an adapter's weights", f"one of {', '.join(library.WEIGHTS)}")
    for name in ("gate", "up", "down"):
        if name not in described.weights:
            raise mismatch(f"{path}: {name}", "no tensor", "one from the adapter")
    gate = described.weights["gate"]
    if not isinstance(gate, torch.Tensor) or gate.device != world.device:
        found = str(gate.device) if isinstance(gate, torch.Tensor) else "several tensors"
        raise mismatch(f"{path}: gate", found, f"one tensor on {world.device}, the device of moeplan.torch.init")
    kind = messages.to_dict(planned)["layer"].get("gate", "TOP_K")
    if described.kind != kind:
        raise mismatch("plan.workload.layer.gate", kind, f"{described.kind}, the gate of {path}")
    if described.top_k is not None and described.top_k != layer.top_k:
        raise mismatch("plan.workload.layer.topK", str(layer.top_k), f"{described.top_k}, that of {path}")
    _check_router(path, described.router, layer)
    if compare:
        _check_parameters(path, described, block)
    if described.swiglu_limit != layer.swiglu_limit:
        raise mismatch("plan.workload.layer.swigluLimit", str(layer.swiglu_limit), f"{described.swiglu_limit}, that of {path}")
    # No expert can have more pairs than there are tokens, for which E / k is enough.
    if described.dropless and 0 < layer.capacity_factor * layer.top_k < layer.experts:
        raise mismatch("plan.workload.layer.capacityFactor", str(layer.capacity_factor), f"0, as {path} drops no pair")
    for name, module in block.named_modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0:
            raise mismatch(f"{path}.{name}.p", str(module.p), "0: the executor's experts drop nothing out")
    if len({parameter.requires_grad for parameter in _learning(described, block)}) > 1:
        raise mismatch(f"{path}: requires_grad", "some parameters that learn and some that do not", "all of them alike")


def _learning(described: Block, block: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The block's parameters, without a correction bias: it has no gradient, so models keep it as a frozen parameter, too."""
    bias = described.weights.get("correction_bias")
    places = {bias.data_ptr()} if isinstance(bias, torch.Tensor) else set()
    return [one for one in block.parameters() if one.data_ptr() not in places]


def _check_parameters(path: str, described: Block, block: torch.nn.Module) -> None:
    """Raises InvalidInput for a parameter that the adapter leaves out. An adapter of copies says nothing of what it has."""
    given = {memory_of(one) for value in described.weights.values() for one in ([value] if isinstance(value, torch.Tensor) else value)}
    held = {memory_of(one) for one in (*block.parameters(), *block.buffers())}
    left_out = [name for name, one in block.named_parameters() if memory_of(one) not in given]
    if left_out and given <= held:
        expected = f"every parameter of the block among the adapter's weights ({', '.join(library.WEIGHTS)})"
        raise mismatch(f"{path}: {left_out[0]}", "a parameter that the layer would not have", expected)


def _check_router(path: str, said: Mapping[str, Any], layer: Any) -> None:
    described = workload_pb2.Layer()
    messages.read(described, {"router": dict(said)}, path)
    found = messages.to_dict(with_router_defaults(layer.router))
    for field, expected in messages.to_dict(with_router_defaults(described.router)).items():
        if found[field] != expected:
            raise mismatch(f"plan.workload.layer.router.{field}", str(found[field]), f"{expected}, that of {path}")


def _first_argument(block: torch.nn.Module) -> str:
    return next(iter(inspect.signature(block.forward).parameters), "")


def _compare(path: str, block: torch.nn.Module, layer: MoELayer) -> None:
    """Raises InvalidInput, on all ranks, where the block computes something else than its layer. Collective."""
    about, layout = layer.plan.workload.layer, layer.plan.workload.layout
    rows = min(_ROWS, about.batch * about.sequence_length // max(1, layout.context_parallel))
    x = torch.randn(1, rows, about.model_dim, generator=torch.Generator().manual_seed(0)).to(layer.world.device, layer.dtype)
    with torch.no_grad():
        found = layer(x).view(rows, -1)
    layer._passes.last = None  # These rows are none of the job's.
    expected = _rows_of(block, x)
    off = max(layer.world._gather(0.0 if expected is None else _rows_off(found, expected)))
    # A row with one pair that only one of them drops differs, and blocks drop in their own ways; logits that are rounded
    # choose other experts now and then. What is computed otherwise differs everywhere.
    if off > (0.9 if about.capacity_factor > 0 else 0.5 if layer.dtype != torch.float32 else 0.1):
        raise mismatch(
            path,
            f"other values than those of its layer for {off:.0%} of some random rows",
            "a block that computes what the adapter and the plan say, with the same weights on all ranks: GELU between two "
            "matrices, SwiGLU with three, its biases, the router's rules, and neither dropout nor noise; or compare=False",
        )


def _rows_of(block: torch.nn.Module, x: torch.Tensor) -> Optional[torch.Tensor]:
    """[rows, M] that the block gives, as it is called in training; None where it does not take rows alone."""
    with torch.no_grad(), _left_alone(block, x.device), contextlib.suppress(Exception):  # It may want whatever else.
        block.train()
        given = flat_tensors(block.forward(x))
        if given and given[0].numel() == x.numel():
            return given[0].reshape(-1, x.shape[-1])
    return None


@contextlib.contextmanager
def _left_alone(block: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """The block's buffers, its modules' modes and the job's random numbers are afterwards what they were."""
    modes = [(one, one.training) for one in block.modules()]
    known = [(one, name, buffer, buffer.detach().clone()) for one in block.modules() for name, buffer in _buffers(one)]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
    with torch.no_grad():
        for module, name, buffer, value in known:
            module._buffers[name] = buffer.copy_(value)
    for module, training in modes:
        module.training = training


def _buffers(module: torch.nn.Module) -> "list[tuple[str, torch.Tensor]]":
    return [(name, one) for name, one in module._buffers.items() if one is not None]


def _rows_off(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The share of rows that differ by more than rounding."""
    allowed = rounding(found.dtype) * float(expected.abs().max())
    return float(((found.float() - expected.float()).abs().amax(-1) > allowed).float().mean())


def _whole(value: Weights) -> torch.Tensor:
    return value.detach() if isinstance(value, torch.Tensor) else torch.stack([one.detach() for one in value])


def _write(swap: _Swap, weights: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, into in _described(swap.adapter, swap.block).weights.items():
            parts = [(into, weights[name])] if isinstance(into, torch.Tensor) else list(zip(into, weights[name]))
            for part, value in parts:
                part.detach().copy_(value)
    again = _described(swap.adapter, swap.block).weights
    for name, value in weights.items():
        if not torch.equal(_whole(again[name]), value.to(_whole(again[name]).dtype)):
            raise mismatch(f"{swap.path}: {name}", "a copy from the adapter", "a view of the block's parameters")
