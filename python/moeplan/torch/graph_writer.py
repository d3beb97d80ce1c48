"""Writes a traced step down as the training graph of docs/contract.md. Pure; any thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import torch

from moeplan import messages
from moeplan.torch import moe_tasks
from moeplan.torch.layer import MoELayer
from moeplan.torch.traced import Given, Instruction, Read, Traced



def written(traced: Traced, times: Any) -> dict[str, Any]:
    """The graph: the forward pass and the loss, then the way back over them, which is cut where the forward pass is, as
    autograd has it (``forward``). ``times``: gives ``forward_s``, ``backward_s`` and ``parts_s`` of an instruction's sides,
    and ``most_parts``."""
    tape = _Tape()
    for one in traced.instructions:
        if one.layer is not None:
            _add_layer(tape, traced, one, times)
        else:
            tape.add(_step_of(traced, one, times))
    tape.go_back()
    return {"instructions": tape.instructions, "maxParts": times.most_parts, "groupS": 0, "maxRangeS": 0}


@dataclass
class _Step:
    """One instruction of the forward pass, and what its way back needs. ``learning``: those of ``reads`` with a gradient.
    ``weight_bytes``: of all ``weights`` together.
    ``backward_s`` gives the seconds of "dx" or "dw", ``backward_parts_s`` those of their parts. ``can_wait``: who runs the graph can
    run its weight gradient elsewhere. ``is_loss``: it goes back though nobody gives it a gradient. ``layer``: the MoELayer that it
    is of, which runs in parts as a whole."""

    id: str
    op: str
    reads: list[str]
    learning: list[str]
    weights: list[str]
    outputs: list[str]
    output_bytes: list[float]
    time_s: float
    parts_s: Optional[list[float]]
    backward_s: Callable[[str], float]
    backward_parts_s: Callable[[str], Optional[list[float]]]
    goes_back_in_parts: bool
    weight_bytes: float = 0
    learns: bool = False
    can_wait: bool = False
    is_loss: bool = False
    layer: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


class _Tape:
    """Writes steps down forward, then walks back over them."""

    def __init__(self) -> None:
        self.instructions: list[dict[str, Any]] = []
        self._steps: list[_Step] = []
        self._bytes: dict[str, float] = {}
        self._gradients: dict[str, list[str]] = {}

    def add(self, step: _Step) -> None:
        one = {
            "id": step.id,
            "op": step.op,
            "phase": "FORWARD",
            "timeS": step.time_s,
            "inputs": step.reads + step.weights,
            "outputs": step.outputs,
            "outputBytes": step.output_bytes,
            **step.fields,
        }
        if step.parts_s is not None:
            one["partTimesS"] = step.parts_s
        if step.layer:
            one["layer"] = step.layer
        self.instructions.append(one)
        self._steps.append(step)
        self._bytes.update(zip(step.outputs, step.output_bytes))

    def go_back(self) -> None:
        for step in reversed(self._steps):
            self._go_back_over(step)

    def _go_back_over(self, step: _Step) -> None:
        gradients = [name for output in step.outputs for name in self._gradients.get(output, [])]
        if not gradients and not step.is_loss:
            return
        # An exchange only sends back what it got; the others look at what they read.
        read = gradients + ([] if step.op == "ALL_TO_ALL" else step.reads)
        if step.learning:
            outputs = {}
            for tensor in step.learning:
                name = f"d({tensor}).{step.id}"
                outputs[name] = self._bytes.get(tensor, 0)
                self._gradients.setdefault(tensor, []).append(name)
            exchanged = {key: value for key, value in step.fields.items() if step.op == "ALL_TO_ALL"}
            self._append(step, ".dx", read, outputs, exchanged)
        if step.learns:
            waits = {"weightGradient": True} if step.can_wait else {}
            self._append(step, ".dw", read, {f"d({step.id}.w)": step.weight_bytes}, waits)

    def _append(
        self, step: _Step, suffix: str, read: list[str], outputs: dict[str, float], fields: dict[str, Any]
    ) -> None:
        """``outputs``: the bytes of each."""
        one = {
            "id": step.id + suffix,
            "op": step.op,
            "phase": "BACKWARD",
            "timeS": step.backward_s(suffix[1:]),
            "inputs": read,
            "outputs": list(outputs),
            "outputBytes": list(outputs.values()),
            **fields,
        }
        if step.goes_back_in_parts:
            one["forward"] = step.id
            parts_s = step.backward_parts_s(suffix[1:])
            if parts_s is not None:
                one["partTimesS"] = parts_s
        self.instructions.append(one)


def _tensor(traced: Traced, read: Read) -> str:
    producer = traced.producer[read.call]
    return f"{producer.id}.combine.y" if producer.layer is not None else traced.name_of(read)


def _bytes(traced: Traced, read: Read) -> float:
    kind = traced.type_of(read)
    return kind.shape_at(traced.batch).numel() * torch.empty((), dtype=kind.dtype).element_size()


def _weight_bytes(traced: Traced, names: list[str]) -> float:
    return sum(traced.parameters[name].numel() * traced.parameters[name].element_size() for name in names)


def _inputs(one: Instruction) -> list[str]:
    """The step's own inputs that the instruction reads."""
    given = dict.fromkeys(source.index for call in one.calls for source in call.sources if isinstance(source, Given))
    return [f"input({index})" for index in given]


def _step_of(traced: Traced, one: Instruction, times: Any) -> _Step:
    return _Step(
        id=one.id,
        op=one.op,
        reads=[_tensor(traced, read) for read in one.reads] + _inputs(one),
        learning=[_tensor(traced, read) for read in traced.goes_back(one)],
        weights=[f"w({name})" for name in one.weights],
        outputs=[traced.name_of(output) for output in one.outputs],
        output_bytes=[_bytes(traced, output) for output in one.outputs],
        goes_back_in_parts=times.parts_s(one, "forward") is not None,
        weight_bytes=_weight_bytes(traced, one.weights),
        time_s=times.forward_s(one, "forward"),
        parts_s=times.parts_s(one, "forward"),
        backward_s=lambda side: times.backward_s(one, side),
        backward_parts_s=lambda side: times.parts_s(one, side),
        learns=bool(traced.learns(one)),
        can_wait=traced.can_wait(one),
        is_loss=traced.loss in one.outputs,
    )


def _add_layer(tape: _Tape, traced: Traced, one: Instruction, times: Any) -> None:
    """An MoELayer's instructions, with the tensors between them."""
    layer, path = one.layer, one.id
    assert layer is not None
    x = [_tensor(traced, read) for read in one.reads]
    learning = {_tensor(traced, read) for read in traced.goes_back(one)}
    learns = bool(traced.learns(one))
    if learns:
        learning |= {f"{path}.{name}.y" for name in moe_tasks.OPS} | {f"{path}.dispatch.y2"}
    combined = [f"{path}.all_to_all2.y", f"{path}.dispatch.y2"]
    names = moe_tasks.instructions_of(layer)
    reads = {
        "gate": x,
        "dispatch": [*x, f"{path}.gate.y"],
        "all_to_all1": [f"{path}.dispatch.y"],
        "shared": x,
        "experts": [f"{path}.all_to_all1.y"],
        "all_to_all2": [f"{path}.experts.y"],
        "combine": combined + ([f"{path}.shared.y"] if "shared" in names else []),
    }
    whole = _bytes(traced, one.outputs[0])
    slots = layer.plan.workload.layer.top_k * (layer.plan.workload.layer.capacity_factor or 1.0)
    sizes = {name: whole * (slots if name not in ("shared", "combine") else 1) for name in names}
    sizes["gate"] = 0  # Some numbers for each token.
    for name in names:
        weighted = name in ("gate", "shared", "experts")
        own = [weight for weight in one.weights if weighted and _belongs(weight, name)]
        outputs = [f"{path}.{name}.y"] + ([f"{path}.dispatch.y2"] if name == "dispatch" else [])
        parts_s = times.parts_s(one, name)
        has_parts = parts_s is not None
        if not has_parts and moe_tasks.OPS[name] == "ALL_TO_ALL":
            parts_s = [times.forward_s(one, name)] * times.most_parts  # Nothing is gained by what cannot be done.
        tape.add(
            _Step(
                id=f"{path}.{name}",
                op=moe_tasks.OPS[name],
                reads=reads[name],
                learning=[tensor for tensor in reads[name] if tensor in learning or (learning and tensor not in x)],
                weights=[f"w({weight})" for weight in own],
                outputs=outputs,
                output_bytes=[sizes[name], 0][: len(outputs)],
                weight_bytes=_weight_bytes(traced, own),
                time_s=times.forward_s(one, name),
                parts_s=parts_s,
                goes_back_in_parts=has_parts,
                backward_s=lambda side, name=name: times.backward_s(one, f"{name}.{side}"),
                backward_parts_s=lambda side, name=name: times.parts_s(one, f"{name}.{side}"),
                learns=learns and weighted,
                can_wait=name != "shared" and traced.can_wait(one),
                layer=path,
                fields=_fields(traced, one, layer, name),
            )
        )


def _belongs(weight: str, name: str) -> bool:
    own = weight.rpartition(".")[2]
    if name == "gate":
        return own in ("gate", "gate_bias")
    return own.startswith("shared_") if name == "shared" else not own.startswith(("shared_", "gate_bias")) and own != "gate"


def _fields(traced: Traced, one: Instruction, layer: MoELayer, name: str) -> dict[str, Any]:
    if name == "gate":
        return {"gate": messages.to_dict(layer.plan.workload)["layer"].get("gate", "TOP_K")}
    if moe_tasks.OPS[name] != "ALL_TO_ALL":
        return {}
    rows = 1
    for size in traced.type_of(one.reads[0]).shape_at(traced.batch)[:-1]:
        rows *= size
    return moe_tasks.exchange_fields(layer, rows)
