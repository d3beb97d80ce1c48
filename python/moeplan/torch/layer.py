"""One MoE layer as a torch module."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import weakref
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from moeplan import library, messages
from moeplan.errors import InvalidInput, UnavailableHere, mismatch
from moeplan.torch.plan import fields_of, read_plan
from moeplan.torch.world import World


class _Pass:
    """A forward pass under way: keeps what its backward pass needs."""

    __slots__ = ("handle", "tokens", "held", "over", "free")

    def __init__(self, handle: ctypes.c_void_p, tokens: int, held: list[torch.Tensor]) -> None:
        self.handle = handle
        self.tokens = tokens
        self.held = held  # Whose memory the library reads.
        self.over = False  # Its gradients are there, or nobody wants them.
        self.free = library.function("pass_free")

    def __del__(self) -> None:
        # At the end of the program another thread may be inside the library, for as long as a deadline.
        if not sys.is_finalizing():
            self.free(self.handle)


class _Passes:
    """What a layer's passes left. Apart from the module, which takes ten times as long to set an attribute."""

    __slots__ = ("last", "deferred", "reduced", "floats", "gradients")

    def __init__(self) -> None:
        self.last: _Pass | None = None
        self.deferred: list[_Pass] = []
        self.reduced = False  # Gradients are sums over replicas.
        # On a card: what the library takes as float and the layer has as BF16, and, by stream and name, the memory of
        # gradients of matrices.
        self.floats: dict[str, torch.Tensor] = {}
        self.gradients: dict[tuple[int, str], list[_Reused]] = {}


class _Reused:
    """Memory for a gradient on a card, which is that of the next one where nobody else has it any more.

    What the library has recorded for a place holds for as long as gradients come to the same place. Work of another stream
    that is only queued is nobody: who reads a gradient there holds it until that is done.
    """

    __slots__ = ("tensor", "_alone")

    def __init__(self, like: torch.Tensor) -> None:
        self.tensor = torch.empty_like(like)
        self._uses()
        self._alone = self._uses()

    def _uses(self) -> int:
        return int(torch._C._storage_Use_Count(self.tensor.untyped_storage()._cdata))

    def is_free(self) -> bool:
        return self._uses() == self._alone


class _Run(torch.autograd.Function):
    """The layer as a function of its input and its parameters."""

    @staticmethod
    def forward(
        ctx: Any, layer: MoELayer, batch: BatchInParts | None, needed: bool, x: torch.Tensor, *parameters: torch.Tensor
    ) -> torch.Tensor:
        output = torch.empty_like(x)
        ctx.layer = layer
        ctx.under_way = layer._forward(batch, x, output, parameters)
        ctx.under_way.over = not needed
        ctx.save_for_backward(*parameters)  # So that autograd tells who changes them before the backward pass.
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _ = ctx.saved_tensors  # Raises where they have changed, or have been gone back through.
        return (None, None, None, *ctx.layer._backward(ctx.under_way, gradient.contiguous()))


class BatchInParts:
    """One source batch whose tokens come in parts: called with the next of them, it gives their rows of the output.

    Outputs, dropped pairs and gradients (summed over the parts; those of the router's losses, too) are those of all tokens
    in one call: capacity is that of all, and how many pairs have chosen each expert goes from a part to the next. Where the
    layer's aux-loss coefficient is not 0, no part goes back before the last was forward. ``router_statistics``, ``aux_loss``
    and ``last_timeline`` of the layer are those of the last part. Under activation checkpointing keep the whole batch inside:
    each call is the next part, so the second forward of a single part would be taken for another. Collective: every rank
    cuts its batch alike. Raises InvalidInput where the gate looks at the whole batch, and for tokens too many.
    """

    def __init__(self, layer: MoELayer, tokens: int) -> None:
        self.layer = layer
        self._handle = library.create("batch_create", layer._open(), tokens)
        self._free = weakref.finalize(self, library.function("batch_free"), self._handle)
        self._free.atexit = False

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[..., M] in, the same shape out."""
        return self.layer._run(x, self)


class MoELayer(torch.nn.Module):
    """Runs one MoE layer under a plan. Input and output: [..., M] with at most B·L rows, alike on all ranks of an MP group,
    on ``world.device``, where the parameters are, too.

    ``plan``: an Answer, its ``response``, or {"workload": ..., "best": {...}}. Both passes run under it whatever phase it
    was made for. ``dtype``: of rows and parameters, torch.float32 or torch.bfloat16. ``seed``: of the weights, which do
    not depend on the layout. ``defer_weight_gradients``: a backward pass gives the gradients of input and gate, and those
    of the experts come with ``weight_gradients``.

    Parameters are this rank's shard: ``gate`` [E, M], alike on all ranks; of the E' own experts and H' own columns ``up``
    and, of SwiGLU, ``gate_up`` [E', M, H'], ``down`` [E', H', M], with biases ``up_bias``, ``gate_up_bias`` [E', H'] and,
    on one rank of those that share an expert, ``down_bias`` [E', M]; of a shared expert, cut over MP, ``shared_up``
    [M, S'] and so on. A gradient is this rank's part until ``reduce_gradients``. Parameters of experts have ``allreduce``
    False and a ``group_name``, as DeepSpeed and Megatron mark them; keep DistributedDataParallel from them.

    Several forwards may be under way before their backwards, in any order. A rank may pass fewer rows in one call than
    in another; all ranks pass as many.

    The router's losses, times the plan's coefficients, are part of every backward pass, whatever the job multiplies its own
    loss with.

    Collective: every rank of the job makes the same layers; every rank of a pipeline stage calls them in the same order.
    Raises InvalidInput, naming the field, for what does not fit; PeerLost, naming rank and task, within
    ``world.deadline_s``.
    """

    def __init__(
        self,
        plan: Any,
        world: World,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        defer_weight_gradients: bool = False,
    ) -> None:
        super().__init__()
        self.world = world
        self.dtype = dtype
        self.defer_weight_gradients = defer_weight_gradients
        try:
            self.plan = read_plan(plan)
            fields = fields_of(self.plan, dtype, world.nodes, world.gpus_per_node)
        except InvalidInput:
            # The other ranks wait for this one's plan; one that is empty tells them that there is none.
            with contextlib.suppress(InvalidInput):
                library.create("layer_create", world._handle, library.Plan())
            raise
        self._handle = library.create("layer_create", world._handle, fields)
        self._free = weakref.finalize(self, library.load().moeplan_layer_free, self._handle)
        self._free.atexit = False
        self._shard = library.Shard()
        library.load().moeplan_layer_shard(self._handle, self._shard)
        self._model_dim = int(self._layer.model_dim)
        self._passes = _Passes()
        self._make_groups()
        self._make_parameters(seed)
        self._names = tuple(name for name in library.TENSORS if getattr(self, name) is not None)
        # An expert whose rows come from several ranks, or in several pieces, has several products for its gradient, which
        # add up in float.
        best = self.plan.best
        pieces = max(best.chunks, best.partition_degree, len(best.chunk_shares), 1)
        in_one_product = self._degrees[:3] == (1, 1, 1) and pieces == 1
        self._gradients_are_elements = world.on_card and (dtype == torch.float32 or in_one_product)

    # ---- What the layer is.

    @property
    def _layer(self) -> Any:
        return self.plan.workload.layer

    @property
    def _degrees(self) -> tuple[int, int, int, int]:
        """TP, EP, ESP and the ranks of a pipeline stage."""
        layout = self.plan.workload.layout
        stages = max(1, layout.pipeline_parallel)
        return (
            max(1, layout.tensor_parallel),
            max(1, layout.expert_parallel),
            max(1, layout.expert_sharding_parallel),
            self.world.ranks // stages,
        )

    def extra_repr(self) -> str:
        best = messages.to_dict(self.plan.best)
        return f"{best['schedule']}, {self._layer.experts} experts, top {self._layer.top_k}, {self.dtype}"

    def _make_groups(self) -> None:
        tensor, expert, sharding, stage = self._degrees
        firsts = range(0, self.world.ranks, stage)
        holders = expert * sharding
        # Ranks with the same experts, with the same place in their MP group, of one MP group, of one stage.
        self._expert_groups = [[*range(f + i, f + stage, holders)] for f in firsts for i in range(holders)]
        self._dense_groups = [[*range(f + i, f + stage, tensor)] for f in firsts for i in range(tensor)]
        self._tensor_groups = [[*range(i, i + tensor)] for i in range(0, self.world.ranks, tensor)]
        self._stage_groups = [[*range(f, f + stage)] for f in firsts]
        for groups in (self._expert_groups, self._dense_groups, self._tensor_groups, self._stage_groups):
            self.world._make_groups(groups)

    # ---- Parameters.

    def _full_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the whole tensors that this layer has, by the names of ``load_full_weights``."""
        layer = self._layer
        gated, biased = layer.expert_matrices == 3, layer.expert_bias
        shapes: dict[str, tuple[int, ...]] = {"gate": (layer.experts, layer.model_dim)}
        for prefix, experts, hidden in (
            ("", (layer.experts,), layer.hidden_dim),
            ("shared_", (), layer.shared_hidden_dim),
        ):
            if hidden == 0:
                continue
            for name, shape, there in (
                ("up", (layer.model_dim, hidden), True),
                ("gate_up", (layer.model_dim, hidden), gated),
                ("down", (hidden, layer.model_dim), True),
                ("up_bias", (hidden,), biased),
                ("gate_up_bias", (hidden,), gated and biased),
                ("down_bias", (layer.model_dim,), biased),
            ):
                if there:
                    shapes[prefix + name] = (*experts, *shape)
        return shapes

    def _own_part(self, name: str) -> tuple[slice, ...] | None:
        """Where this rank's part of a whole tensor lies; None where it has no part."""
        shard = self._shard
        if name == "gate":
            return (slice(None),)
        if name.startswith("shared_"):
            experts: tuple[slice, ...] = ()
            hidden = slice(shard.shared_first_hidden, shard.shared_first_hidden + shard.shared_hidden)
            last = shard.shared_adds_last_bias
        else:
            experts = (slice(shard.first_expert, shard.first_expert + shard.experts),)
            hidden = slice(shard.first_hidden, shard.first_hidden + shard.hidden)
            last = shard.adds_last_bias
        kind = name.replace("shared_", "")
        if kind == "down_bias":
            return experts if last else None
        return (*experts, hidden) if kind in ("down", "up_bias", "gate_up_bias") else (*experts, slice(None), hidden)

    def _make_parameters(self, seed: int) -> None:
        shapes = self._full_shapes()
        for name in library.TENSORS:
            part = self._own_part(name) if name in shapes else None
            if part is None:
                self.register_parameter(name, None)
                continue
            parameter = torch.nn.Parameter(self._initial(name, shapes[name], part, seed).to(self.world.device))
            if name != "gate" and not name.startswith("shared_"):
                parameter.allreduce = False
                parameter.group_name = f"ep_size_{self._degrees[1]}"
            self.register_parameter(name, parameter)

    def _initial(self, name: str, shape: tuple[int, ...], part: tuple[slice, ...], seed: int) -> torch.Tensor:
        """As torch.nn.Linear begins; one expert at a time, whole, so that every layout has the same."""
        layer = self._layer
        hidden = layer.shared_hidden_dim if name.startswith("shared_") else layer.hidden_dim
        bound = 1 / math.sqrt(hidden if "down" in name else layer.model_dim)
        generator = torch.Generator()

        def drawn(number: int, shape: tuple[int, ...]) -> torch.Tensor:
            generator.manual_seed((seed * len(library.TENSORS) + library.TENSORS.index(name)) * 65536 + number)
            return torch.empty(shape).uniform_(-bound, bound, generator=generator)

        if name == "gate" or name.startswith("shared_"):
            return drawn(0, shape)[part].to(self.dtype).contiguous()
        experts, inside = range(shape[0])[part[0]], part[1:]
        if len(experts) == 0:
            return torch.empty(0, *shape[1:], dtype=self.dtype)
        return torch.stack([drawn(expert, shape[1:])[inside] for expert in experts]).to(self.dtype).contiguous()

    def load_full_weights(
        self,
        *,
        gate: torch.Tensor,
        up: torch.Tensor,
        down: torch.Tensor,
        gate_up: torch.Tensor | None = None,
        up_bias: torch.Tensor | None = None,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        shared_up: torch.Tensor | None = None,
        shared_gate_up: torch.Tensor | None = None,
        shared_down: torch.Tensor | None = None,
        shared_up_bias: torch.Tensor | None = None,
        shared_gate_up_bias: torch.Tensor | None = None,
        shared_down_bias: torch.Tensor | None = None,
    ) -> None:
        """Takes this rank's part of whole tensors, alike on all ranks.

        gate [E, M]; up, gate_up [E, M, H]; down [E, H, M]; up_bias, gate_up_bias [E, H]; down_bias [E, M]; shared_up,
        shared_gate_up [M, S]; shared_down [S, M]; shared_up_bias, shared_gate_up_bias [S]; shared_down_bias [M]. Exactly
        those that the layer has. Not collective.
        """
        given = {name: value for name, value in locals().items() if name in library.TENSORS and value is not None}
        shapes = self._full_shapes()
        for name in library.TENSORS:
            found = tuple(given[name].shape) if name in given else None
            if found != shapes.get(name):
                expected = f"a tensor of shape {shapes[name]}" if name in shapes else "none, as the layer has none"
                raise mismatch(name, "none" if found is None else f"a tensor of shape {found}", expected)
        with torch.no_grad():
            for name, value in given.items():
                part = self._own_part(name)
                if part is not None:
                    getattr(self, name).copy_(value[part])

    def full_weights(self) -> dict[str, torch.Tensor]:
        """The whole tensors, by the names and shapes of ``load_full_weights``. Collective; the same on all ranks."""
        return self._gathered({name: getattr(self, name) for name in library.TENSORS}, parts_of_sums=False)

    def full_gradients(self) -> dict[str, torch.Tensor]:
        """Their gradients, summed over all source batches; zero where there is none. Collective; the same on all ranks.

        Before ``reduce_gradients`` and after it alike.
        """
        gradients = {}
        for name in library.TENSORS:
            parameter = getattr(self, name)
            if parameter is not None:
                gradients[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        return self._gathered(gradients, parts_of_sums=not self._passes.reduced)

    def _gathered(self, own: dict[str, torch.Tensor | None], parts_of_sums: bool) -> dict[str, torch.Tensor]:
        tensor, expert, sharding, stage = self._degrees
        place = self.world.rank % stage
        first_holder = place < expert * sharding, place < tensor
        whole = {}
        for name, shape in self._full_shapes().items():
            full = torch.zeros(shape, dtype=self.dtype, device=self.world.device)
            part = self._own_part(name)
            if name == "gate":
                counts = place % tensor == 0 if parts_of_sums else place == 0
            else:
                counts = parts_of_sums or first_holder[name.startswith("shared_")]
            value = own.get(name)
            if counts and part is not None and value is not None:
                full[part] = value.detach().to(self.dtype)
            self.world._sum(full, self._stage_groups)
            whole[name] = full
        return whole

    # ---- Passes.

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., M] in, the same shape out."""
        return self._run(x, None)

    def in_parts(self, tokens: int) -> BatchInParts:
        """A source batch of ``tokens`` rows that come in parts: ``batch = layer.in_parts(n)``, then ``batch(x)`` for each."""
        return BatchInParts(self, tokens)

    def _run(self, x: torch.Tensor, batch: BatchInParts | None) -> torch.Tensor:
        if x.device != self.world.device:
            raise mismatch("input", f"a tensor on {x.device}", f"one on {self.world.device}, the device of moeplan.torch.init")
        if x.dtype != self.dtype:
            raise mismatch("input", f"a tensor of {x.dtype}", f"one of {self.dtype}, the layer's dtype")
        if x.dim() == 0 or x.shape[-1] != self._model_dim:
            raise mismatch("input", f"a tensor of shape {tuple(x.shape)}", f"[..., {self._model_dim}]")
        parameters = [getattr(self, name) for name in self._names]
        needed = torch.is_grad_enabled() and (x.requires_grad or any(one.requires_grad for one in parameters))
        return _Run.apply(self, batch, needed, x.contiguous(), *parameters)

    def _weights(self, tensors: list[torch.Tensor]) -> library.Weights:
        """What the library takes: ``tensors`` are one for each of the layer's own, in their order."""
        weights = library.Weights()
        for name, tensor in zip(self._names, tensors):
            setattr(weights, name, tensor.data_ptr())
        return weights

    def _gradients(self, tensors: list[torch.Tensor]) -> library.Gradients:
        gradients = library.Gradients(matrices_are_elements=self._gradients_are_elements)
        for name, tensor in zip(self._names, tensors):
            setattr(gradients, name, tensor.data_ptr())
        return gradients

    def _open(self) -> ctypes.c_void_p:
        if not self._free.alive:
            raise UnavailableHere("found a layer that was closed, expected one that is in use")
        return self._handle

    def _forward(
        self, batch: BatchInParts | None, x: torch.Tensor, output: torch.Tensor, parameters: tuple[torch.Tensor, ...]
    ) -> _Pass:
        handle, passes = self._open(), self._passes
        if passes.last is not None and passes.last.over:
            passes.last = None  # Its buffers are the next one's.
        with self.world._behind_stream():
            held = [self._memory(name, one.detach()) for name, one in zip(self._names, parameters)]
            tokens = x.numel() // self._model_dim
            given = (tokens, x.data_ptr(), output.data_ptr(), self._weights(held))
            if batch is None:
                made = library.create("layer_forward", handle, *given)
            else:
                made = library.create("batch_forward", batch._handle, *given)
        passes.last = under_way = _Pass(made, tokens, held)
        return under_way

    def _memory(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The parameter as the library takes it. On a card matrices are taken where they lie, and the rest as float."""
        if not self.world.on_card:
            return _as_float(tensor)
        if tensor.device != self.world.device:
            raise mismatch(name, f"a parameter on {tensor.device}", f"one on {self.world.device}")
        if name in library.MATRICES:
            if tensor.dtype != self.dtype:
                raise mismatch(name, f"a parameter of {tensor.dtype}", f"one of {self.dtype}, the layer's dtype")
            return tensor.contiguous()
        if tensor.dtype == torch.float32:
            return tensor.contiguous()
        # The library records where it lies, so it stays where it is unless a pass under way still reads it.
        floats = self._passes.floats
        if name not in floats or sys.getrefcount(floats[name]) > 2:
            floats[name] = torch.empty_like(tensor, dtype=torch.float32)
        return floats[name].copy_(tensor)

    def _room(self, under_way: _Pass, names: tuple[str, ...]) -> list[torch.Tensor]:
        """Where the library puts the gradients of these parameters: sums begin at zero, what is overwritten as it is."""
        room = []
        for name, held in zip(self._names, under_way.held):
            if name not in names:
                continue
            if not self.world.on_card:
                room.append(torch.zeros_like(held))
            elif self._is_overwritten(name):
                room.append(self._reused(name, held))
            else:
                room.append(self.world._zeros(held.shape, name))
        return room

    def _is_overwritten(self, name: str) -> bool:
        return self._gradients_are_elements and name in library.MATRICES

    def _reused(self, name: str, like: torch.Tensor) -> torch.Tensor:
        known = self._passes.gradients.setdefault((self.world._stream, name), [])
        found = next((one for one in known if one.is_free()), None)
        if found is None:
            found = _Reused(like)
            known.append(found)
        return found.tensor

    def _found(self, names: tuple[str, ...], room: list[torch.Tensor]) -> list[torch.Tensor]:
        """The gradients as autograd takes them."""
        found = []
        for name, one in zip(names, room):
            if self._is_overwritten(name):
                found.append(one.detach())  # Another tensor of that memory, which ``_Reused`` sees.
            elif self.dtype != torch.float32:
                found.append(one.to(self.dtype))
            else:
                found.append(one.clone() if self.world.on_card else one)
        return found

    def _backward(self, under_way: _Pass, gradient: torch.Tensor) -> list[torch.Tensor | None]:
        """The gradients of the input and of every parameter."""
        with self.world._behind_stream():
            return self._backward_behind_stream(under_way, gradient)

    def _backward_behind_stream(self, under_way: _Pass, gradient: torch.Tensor) -> list[torch.Tensor | None]:
        self._passes.reduced = False
        input_gradient = torch.empty_like(gradient)
        if self.defer_weight_gradients:
            (gate,) = self._room(under_way, ("gate",))
            library.call(
                "pass_backward_of_input",
                under_way.handle,
                gradient.data_ptr(),
                input_gradient.data_ptr(),
                gate.data_ptr(),
            )
            self._passes.deferred.append(under_way)
            return [input_gradient, *self._found(("gate",), [gate]), *[None for _ in under_way.held[1:]]]
        room = self._room(under_way, self._names)
        library.call(
            "pass_backward", under_way.handle, gradient.data_ptr(), input_gradient.data_ptr(), self._gradients(room)
        )
        under_way.over = True
        return [input_gradient, *self._found(self._names, room)]

    def weight_gradients(self) -> None:
        """Adds the gradients that ``defer_weight_gradients`` has left to ``.grad``, in the order of the backward passes.

        Not collective: it exchanges nothing.
        """
        deferred, self._passes.deferred = self._passes.deferred, []
        parameters = [getattr(self, name) for name in self._names]
        for under_way in deferred:
            self._passes.reduced = False
            with self.world._behind_stream():
                room = self._room(under_way, self._names)
                library.call("pass_add_weight_gradients", under_way.handle, self._gradients(room))
                found = self._found(self._names, room)
            del room
            under_way.over = True
            for parameter, gradient in zip(parameters[1:], found[1:]):
                if not parameter.requires_grad:
                    continue
                if parameter.grad is None:
                    parameter.grad = gradient
                else:
                    parameter.grad += gradient

    def close(self) -> None:
        """No forward pass after this; those under way, and weight gradients that are deferred, can still be finished."""
        self._passes.last = None
        self._passes.gradients.clear()
        self._free()

    # ---- What the last forward did.

    def _last_pass(self) -> _Pass:
        if self._passes.last is None:
            raise mismatch("layer", "no forward pass yet", "one before its results are asked for")
        return self._passes.last

    def router_statistics(self) -> dict[str, Any]:
        """What the router did with the tokens that this rank answers for, in the last forward.

        ``tokens``; by expert ``pairs`` and ``kept`` (torch.int64: (token, choice) pairs before drops, and those that got a
        slot) and ``probability_sum`` (torch.float64); ``entropy``, the mean in nats; ``load_balance_loss`` and ``z_loss``
        of those tokens, without coefficients. Under PARM_S1 with TP a rank answers for its slice of the MP group's batch.
        """
        experts = self._layer.experts
        pairs, kept = torch.empty(experts, dtype=torch.int64), torch.empty(experts, dtype=torch.int64)
        probability = torch.empty(experts, dtype=torch.float64)
        found = library.Statistics(
            pairs=pairs.data_ptr(), kept=kept.data_ptr(), probability_sum=probability.data_ptr()
        )
        library.call("pass_statistics", self._last_pass().handle, found)
        return {
            "tokens": found.tokens,
            "pairs": pairs,
            "kept": kept,
            "probability_sum": probability,
            "entropy": found.entropy_sum / max(1, found.tokens),
            "load_balance_loss": found.load_balance_loss,
            "z_loss": found.z_loss,
        }

    @property
    def aux_loss(self) -> torch.Tensor:
        """The router's losses of the own source batch in the last forward, times their coefficients: a scalar.

        Backward passes already have its gradient; add it to what is printed, not to what goes backward. Collective over
        the MP group under PARM_S1 with TP.
        """
        found = self.router_statistics()
        balance, squared = found["load_balance_loss"], found["z_loss"]
        if self._shard.gates_slices:
            sums = torch.cat(
                [
                    torch.tensor([found["tokens"], squared * found["tokens"]], dtype=torch.float64),
                    found["pairs"].double(),
                    found["probability_sum"],
                ]
            ).to(self.world.device)
            self.world._sum(sums, self._tensor_groups)
            sums = sums.cpu()
            tokens, pairs = sums[0], sums[2 : 2 + self._layer.experts]
            squared = float(sums[1] / tokens)
            shares = pairs / pairs.sum()
            balance = float(self._layer.experts * (shares * sums[2 + self._layer.experts :] / tokens).sum())
        return torch.tensor(self._layer.aux_loss_coefficient * balance + self._layer.z_loss_coefficient * squared)

    def last_timeline(self, phase: str = "TRAINING") -> list[dict[str, Any]]:
        """The tasks of the last "FORWARD", of its "BACKWARD", or of both ("TRAINING"), as they ran on this rank.

        [{task, kind, stream, chunk, startS, endS}] in the order of the plan's graph, in seconds since the first began. Slices
        of dense gradients are left to the job, and are not among them.
        """
        tasks, count = ctypes.POINTER(library.Task)(), ctypes.c_int32()
        library.call("pass_timeline", self._last_pass().handle, phase.encode(), ctypes.byref(tasks), ctypes.byref(count))
        found = [tasks[i] for i in range(count.value)]
        first = min((task.start_s for task in found), default=0.0)
        return [
            {
                "task": task.task.decode(),
                "kind": task.kind.decode(),
                "stream": task.stream.decode(),
                "chunk": task.chunk,
                "startS": task.start_s - first,
                "endS": task.end_s - first,
            }
            for task in found
        ]

    def run_report(self) -> dict[str, Any]:
        """How the plan ran on every rank, as ``Planner.report_run`` takes it. Collective.

        The tasks are those of the phase that the plan was made for; that has to have run. Of both passes, the backward one
        follows the forward one at once, as in a plan: what the job ran between them is left out.
        """
        phase = messages.to_dict(self.plan.workload)["phase"]
        own = self.last_timeline(phase)
        if phase == "TRAINING" and own:
            forward = {task["task"] for task in self.last_timeline("FORWARD")}
            between = min(task["startS"] for task in own if task["task"] not in forward) - max(
                task["endS"] for task in own if task["task"] in forward
            )
            for task in own:
                if task["task"] not in forward:
                    task["startS"] -= between
                    task["endS"] -= between
        if not own:
            raise mismatch("layer", f"no {phase} after the last forward", "both passes of the phase before their report")
        timelines = self.world._gather(own)
        return {
            "plan": messages.to_dict(self.plan),
            "ranks": [{"rank": rank, "timeline": timeline} for rank, timeline in enumerate(timelines)],
        }



def _as_float(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor if tensor.dtype == torch.float32 else tensor.float()).contiguous()
