"""One MoE layer as a torch module."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import weakref
from typing import Any, Sequence

import torch

from moeplan import library, messages
from moeplan.errors import InvalidInput, UnavailableHere, mismatch
from moeplan.torch.deferred import Use
from moeplan.torch.layer_functions import BatchInParts, Begin, Call, Run, UnderWay
from moeplan.torch.passes import Pass, Passes, Reused
from moeplan.torch.placement import busiest_ratio, planned_shares
from moeplan.torch.plan import fields_of, read_plan
from moeplan.torch.sharded_weights import ShardedWeights
from moeplan.torch.side_by_side import lane, others_turn
from moeplan.torch.world import World


class MoELayer(ShardedWeights):
    """Runs one MoE layer under a plan. Input and output: [..., M] with at most B·L rows, alike on all ranks of an MP group,
    on ``world.device``, where the parameters are, too.

    ``plan``: an Answer, its ``response``, or {"workload": ..., "best": {...}}. Both passes run under it whatever phase it
    was made for. ``dtype``: of rows and parameters, torch.float32 or torch.bfloat16. ``seed``: of the weights, which do
    not depend on the layout. ``defer_weight_gradients``: a backward pass gives the gradients of input and gate, and those
    of the experts come with ``weight_gradients``.

    Parameters are this rank's shard: ``gate`` [E, M] and ``gate_bias`` [E], alike on all ranks, as is the buffer
    ``correction_bias`` [E] (``balance_experts``); of the E' own experts and H' own columns ``up``
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
        try:
            read = read_plan(plan)
            fields = fields_of(read, dtype, world.nodes, world.gpus_per_node)
        except InvalidInput:
            # The other ranks wait for this one's plan; one that is empty tells them that there is none.
            with contextlib.suppress(InvalidInput):
                library.create("layer_create", world._handle, library.Plan())
            raise
        handle = library.create("layer_create", world._handle, fields)
        free = weakref.finalize(self, library.load().moeplan_layer_free, handle)
        free.atexit = False
        shard = library.Shard()
        library.load().moeplan_layer_shard(handle, shard)
        super().__init__(read.workload, shard, world, dtype, seed)
        self.plan = read
        self.defer_weight_gradients = defer_weight_gradients
        self._handle = handle
        self._free = free
        self._model_dim = int(self._layer.model_dim)
        self._passes = Passes()
        self._router_names = tuple(name for name in self._names if name in library.ROUTER)
        # An expert whose rows come from several ranks, or in several pieces, has several products for its gradient, which
        # add up in float.
        best = self.plan.best
        pieces = max(best.chunks, best.partition_degree, len(best.chunk_shares), 1)
        in_one_product = self._degrees[:3] == (1, 1, 1) and pieces == 1
        self._gradients_are_elements = world.on_card and (dtype == torch.float32 or in_one_product)

    # ---- What the layer is.

    def extra_repr(self) -> str:
        best = messages.to_dict(self.plan.best)
        return f"{best['schedule']}, {self._layer.experts} experts, top {self._layer.top_k}, {self.dtype}"

    # ---- What the router's loads say of where experts are.

    def place_experts(self, physical_to_logical: Sequence[int], optimizer: torch.optim.Optimizer | None = None) -> None:
        """Moves experts between ranks, so that place i, of the E places in the order of the ranks' own ones, has the job's
        expert ``physical_to_logical[i]``: what an answer's ``routing.placement`` says.

        The layer computes the same. Weights, gradients and what ``optimizer`` keeps of them move along; the job's numbers
        stay those of ``full_weights``, ``load_full_weights``, statistics and loads, while the rows of ``gate`` and its
        biases are by place. ``placement`` [E] is a buffer once experts have moved, and part of ``state_dict``: load that
        with ``load_state_dict``. Results of the forward before are gone. Collective over the pipeline stage; between steps.

        Raises InvalidInput on every rank, and nothing has moved, for what is no permutation or another one on another rank,
        takes the experts of a router's group apart, or leaves weight gradients deferred; for a gate that draws experts; and
        for an optimizer that learns with copies of the parameters, or keeps what has another shape than they.
        """
        if self._passes.deferred:
            raise mismatch("layer", "weight gradients that are deferred", "none; call weight_gradients before experts move")
        self._move_experts(physical_to_logical, optimizer)
        self._passes.last = None

    def _load_from_state_dict(self, *arguments: Any) -> None:
        self._passes.last = None  # Its results are by the places that experts had.
        super()._load_from_state_dict(*arguments)

    def routing_drift(self, loads: torch.Tensor | None = None) -> dict[str, Any]:
        """How a router's loads differ from those that the plan was made for.

        ``loads``: [E], pairs by expert of this rank's batches, such as a step's sum of ``router_statistics()["pairs"]``;
        None: those of the last forward. ``routing``: the loads of all batches, by the job's numbers, as a workload has
        them; ``busiest_expert_ratio`` and ``busiest_rank_ratio``: the most over the mean, where experts are now, drops not
        counted; ``planned_busiest_rank_ratio``: what the plan took, where experts are in their own order. The busiest
        expert sets the time of padded schedules of a dropless layer, the busiest rank that of PARM_S1
        and ONCE_PER_NODE. Collective.
        """
        pairs = self._all_loads(loads)
        by_place, ranks = pairs.tolist(), self._degrees[1]
        planned = planned_shares(self.plan.workload)
        return {
            "routing": {"tokensPerExpert": self._by_expert("gate", pairs).tolist()},
            "busiest_expert_ratio": busiest_ratio(by_place, len(by_place)),
            "busiest_rank_ratio": busiest_ratio(by_place, ranks),
            "planned_busiest_rank_ratio": busiest_ratio(planned, ranks),
        }

    def _all_loads(self, loads: torch.Tensor | None) -> torch.Tensor:
        """Those of all source batches, by place."""
        own = self.router_statistics()["pairs"] if loads is None else loads
        if own.shape != (self._layer.experts,):
            raise mismatch("loads", f"a tensor of shape {tuple(own.shape)}", f"({self._layer.experts},)")
        pairs = self._by_place("gate", own.to(self.world.device, torch.float64, copy=True))
        self.world._sum(pairs, self._stage_groups if self._shard.gates_slices else self._dense_groups)
        return pairs

    # ---- Passes.

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., M] in, the same shape out."""
        return self._run(x, None)

    def in_parts(self, tokens: int) -> BatchInParts:
        """A source batch of ``tokens`` rows that come in parts: ``batch = layer.in_parts(n)``, then ``batch(x)`` for each."""
        return BatchInParts(self, tokens)

    def _run(self, x: torch.Tensor, batch: BatchInParts | None) -> torch.Tensor:
        schedule = self._passes.schedule
        if lane() != 0:
            if schedule is not None:
                raise mismatch("side_by_side", "a layer that runs under a schedule", "parts outside of moeplan.torch.scheduled")
            begun = self._begin(x, batch, lane())
            others_turn()
            return begun.end()
        output: torch.Tensor = Run.apply(*self._call(x, batch, 0 if schedule is None else schedule.lane))
        return output

    def _begin(self, x: torch.Tensor, batch: BatchInParts | None, on_lane: int) -> UnderWay:
        rows = Begin.apply(*self._call(x, batch, on_lane))
        under_way, self._passes.begun = self._passes.begun, None
        return UnderWay(self, under_way, rows)

    def _call(self, x: torch.Tensor, batch: BatchInParts | None, on_lane: int) -> tuple[Any, ...]:
        """The arguments of ``Run`` and ``Begin``."""
        if x.device != self.world.device:
            raise mismatch("input", f"a tensor on {x.device}", f"one on {self.world.device}, the device of moeplan.torch.init")
        if x.dtype != self.dtype:
            raise mismatch("input", f"a tensor of {x.dtype}", f"one of {self.dtype}, the layer's dtype")
        if x.dim() == 0 or x.shape[-1] != self._model_dim:
            raise mismatch("input", f"a tensor of shape {tuple(x.shape)}", f"[..., {self._model_dim}]")
        parameters = [getattr(self, name) for name in self._names]
        needed = torch.is_grad_enabled() and (x.requires_grad or any(one.requires_grad for one in parameters))
        call, token = self._scheduled(Call(self, batch, needed, on_lane))
        return (call, token, x.contiguous(), *parameters)

    def _scheduled(self, call: Call) -> tuple[Call, torch.Tensor | None]:
        """The call under the layer's schedule, and the tensor that stands for weights whose gradients it leaves."""
        schedule = self._passes.schedule
        if schedule is None:
            return call, None
        experts, batch = self._expert_parameters(), call.batch
        left_to = batch.left_to if batch is not None and batch.left_to is not None else schedule.own(experts)
        if batch is not None:
            batch.left_to = left_to
        deferred, token = left_to
        if deferred is not None:
            call = call._replace(waits=Use(deferred, *experts))
        return call._replace(beside=schedule.begin()), token

    def _expert_parameters(self) -> list[torch.Tensor]:
        return [getattr(self, name) for name in self._names if name not in library.ROUTER]

    def _weights(self, tensors: list[torch.Tensor]) -> library.Weights:
        """What the library takes: ``tensors`` are those of the layer's own, in their order, and then the correction bias."""
        weights = library.Weights()
        for name, tensor in zip(self._names, tensors):
            setattr(weights, name, tensor.data_ptr())
        if self.correction_bias is not None:
            weights.correction_bias = tensors[-1].data_ptr()
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
        self, call: Call, x: torch.Tensor, output: torch.Tensor, parameters: tuple[torch.Tensor, ...]
    ) -> Pass:
        handle, passes, batch = self._open(), self._passes, call.batch
        if passes.last is not None and passes.last.over:
            passes.last = None  # Its buffers are the next one's.
        with self.world._behind_stream(call.lane):
            held = [self._memory(name, one.detach()) for name, one in zip(self._names, parameters)]
            if self.correction_bias is not None:
                held.append(self._memory("correction_bias", self.correction_bias))
            tokens = x.numel() // self._model_dim
            given = (tokens, x.data_ptr(), output.data_ptr(), self._weights(held))
            if batch is None:
                made = library.create("layer_forward", handle, *given)
            else:
                made = library.create("batch_forward", batch._handle, *given)
        passes.last = under_way = Pass(made, tokens, call.lane, held)
        under_way.waits = call.waits
        if under_way.lane != 0:
            under_way.moving = (x, output)
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

    def _room(self, under_way: Pass, names: tuple[str, ...]) -> list[torch.Tensor]:
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
                room.append(self.world._zeros(held.shape, name, under_way.lane))
        return room

    def _is_overwritten(self, name: str) -> bool:
        return self._gradients_are_elements and name in library.MATRICES

    def _reused(self, name: str, like: torch.Tensor) -> torch.Tensor:
        known = self._passes.gradients.setdefault((self.world._stream, name), [])
        return Reused.of(known, lambda: torch.empty_like(like))

    def _found(self, names: tuple[str, ...], room: list[torch.Tensor]) -> list[torch.Tensor]:
        """The gradients as autograd takes them."""
        found = []
        for name, one in zip(names, room):
            if self._is_overwritten(name):
                found.append(one.detach())  # Another tensor of that memory, which ``Reused`` sees.
            elif self.dtype != torch.float32:
                found.append(one.to(self.dtype))
            else:
                found.append(one.clone() if self.world.on_card else one)
        return found

    def _begin_backward(self, under_way: Pass, gradient: torch.Tensor) -> None:
        self._passes.reduced = False
        input_gradient = torch.empty_like(gradient)
        later = self._comes_later(under_way)
        names = self._router_names if later else self._names
        with self.world._behind_stream():
            room = self._room(under_way, names)
            under_way.moving = (gradient, input_gradient, names, room)
            given = (under_way.handle, gradient.data_ptr(), input_gradient.data_ptr())
            if later:
                bias = room[1].data_ptr() if len(room) > 1 else None
                library.call("pass_backward_of_input", *given, room[0].data_ptr(), bias)
            else:
                library.call("pass_backward", *given, self._gradients(room))

    def _await_experts(self, under_way: Pass) -> None:
        """Until the experts of the backward pass have computed what its last exchange brings back."""
        with self.world._behind_stream():
            library.call("pass_await_experts", under_way.handle)

    def _end_backward(self, under_way: Pass) -> list[torch.Tensor | None]:
        """The gradients of the input and of every parameter."""
        with self.world._behind_stream():
            _, input_gradient, names, room = under_way.finish()
            found: list[torch.Tensor | None] = [input_gradient, *self._found(names, room)]
        if under_way.waits is not None:
            under_way.waits.leave(lambda: [gradient for _, gradient in self._weight_gradients_of(under_way)])
        elif self.defer_weight_gradients:
            self._passes.deferred.append(under_way)
        else:
            under_way.over = True
        return found + [None] * (len(self._names) - len(names))

    def weight_gradients(self) -> None:
        """Adds the gradients that ``defer_weight_gradients`` has left to ``.grad``, in the order of the backward passes.

        Not collective: it exchanges nothing.
        """
        deferred, self._passes.deferred = self._passes.deferred, []
        for under_way in deferred:
            for parameter, gradient in self._weight_gradients_of(under_way):
                if not parameter.requires_grad:
                    continue
                if parameter.grad is None:
                    parameter.grad = gradient
                else:
                    parameter.grad += gradient

    def _comes_later(self, under_way: Pass) -> bool:
        """Whether the backward pass leaves the weight gradients."""
        return self.defer_weight_gradients or under_way.waits is not None

    def _weight_gradients_of(self, under_way: Pass) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What the backward pass has left: the parameters of the experts, each with its gradient."""
        self._passes.reduced = False
        with self.world._behind_stream():
            room = self._room(under_way, self._names)
            library.call("pass_add_weight_gradients", under_way.handle, self._gradients(room))
            under_way.finish()
            found = self._found(self._names, room)
        del room
        under_way.over = True
        of_experts = [gradient for name, gradient in zip(self._names, found) if name not in library.ROUTER]
        return list(zip(self._expert_parameters(), of_experts))

    def full_gradients(self) -> dict[str, torch.Tensor]:
        """Their gradients, summed over all source batches; zero where there is none. Collective; the same on all ranks.

        Before ``reduce_gradients`` and after it alike.
        """
        gradients = {}
        for name in library.TENSORS:
            parameter = getattr(self, name)
            if parameter is not None and parameter.grad is None:
                gradients[name] = torch.zeros_like(parameter)
            else:
                gradients[name] = None if parameter is None else parameter.grad
        return self._gathered(gradients, parts_of_sums=not self._passes.reduced)

    def close(self) -> None:
        """No forward pass after this; those under way, and weight gradients that are deferred, can still be finished."""
        self._passes.last = None
        self._passes.gradients.clear()
        self._free()

    # ---- What the last forward did.

    def _last_pass(self) -> Pass:
        if self._passes.last is None:
            raise mismatch("layer", "no forward pass yet", "one before its results are asked for")
        return self._passes.last

    def router_statistics(self) -> dict[str, Any]:
        """What the router did with the tokens that this rank answers for, in the last forward.

        ``tokens``; by expert ``pairs`` and ``kept`` (torch.int64: (token, choice) pairs before drops, and those that got a
        slot) and ``probability_sum`` (torch.float64); ``entropy``, the mean in nats; ``load_balance_loss`` and ``z_loss``
        of those tokens, without coefficients. Under PARM_S1 and ONCE_PER_NODE with TP a rank answers for its slice of the MP
        group's batch.
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
            "pairs": self._by_expert("gate", pairs),
            "kept": self._by_expert("gate", kept),
            "probability_sum": self._by_expert("gate", probability),
            "entropy": found.entropy_sum / max(1, found.tokens),
            "load_balance_loss": found.load_balance_loss,
            "z_loss": found.z_loss,
        }

    def balance_experts(self, rate: float, loads: torch.Tensor | None = None) -> None:
        """Moves ``correction_bias`` by ``rate`` towards even loads: up where an expert has fewer pairs than the mean, down
        where it has more (DeepSeek-V3, section 2.1.2).

        ``loads``: [E], pairs by expert of this rank's batches, such as a step's sum of ``router_statistics()["pairs"]``;
        None: those of the last forward. Collective; once after a step.
        """
        if self.correction_bias is None:
            raise mismatch("plan.workload.layer.router.correctionBias", "False", "True, as there is no bias to move")
        pairs = self._all_loads(loads)
        with torch.no_grad():
            self.correction_bias += rate * torch.sign(pairs.mean() - pairs).to(self.correction_bias.dtype)

    @property
    def aux_loss(self) -> torch.Tensor:
        """The router's losses of the own source batch in the last forward, times their coefficients: a scalar.

        Backward passes already have its gradient; add it to what is printed, not to what goes backward. Collective over
        the MP group under PARM_S1 and ONCE_PER_NODE with TP.
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
