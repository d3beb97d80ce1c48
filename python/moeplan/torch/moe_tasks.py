"""An MoELayer's instructions in a training graph, and their times from a run of the layer itself."""

from __future__ import annotations

import json
from typing import Any, Iterable, Mapping

from moeplan import messages
from moeplan.errors import mismatch
from moeplan.torch.layer import MoELayer

# Instructions of a pass, in the order of a graph.
FORWARD = ("gate", "dispatch", "all_to_all1", "shared", "experts", "all_to_all2", "combine")
BACKWARD = (
    *("combine.dx", "all_to_all2.dx", "experts.dx", "experts.dw", "shared.dx", "shared.dw"),
    *("all_to_all1.dx", "dispatch.dx", "gate.dx"),
)
OPS = {
    "gate": "GATE",
    "dispatch": "DISPATCH",
    "all_to_all1": "ALL_TO_ALL",
    "shared": "MATMUL",  # It computes what samples give, while those of experts are irregular.
    "experts": "EXPERT",
    "all_to_all2": "ALL_TO_ALL",
    "combine": "COMBINE",
}
# Whose time is a task's. Exchanges beside the all-to-alls, and sums of what they brought, belong to the instruction that
# waits for them.
_FORWARD_TASKS = {
    "gate": "gate",
    "dispatch": "dispatch",
    "dispatch_a2a": "all_to_all1",
    "shared_expert": "shared",
    "expert": "experts",
    "collect_a2a": "all_to_all2",
    "combine_a2a": "all_to_all2",
    "combine": "combine",
}
_BACKWARD_TASKS = {
    "grad_combine": "combine.dx",
    "grad_dispatch_a2a": "all_to_all2.dx",
    "grad_expert_input": "experts.dx",
    "grad_expert_weights": "experts.dw",
    "grad_collect_a2a": "all_to_all1.dx",
    "grad_shared_input": "shared.dx",
    "grad_shared_weights": "shared.dw",
    "grad_combine_a2a": "all_to_all1.dx",
    "grad_dispatch": "dispatch.dx",
    "grad_gate": "gate.dx",
}


def instructions_of(layer: MoELayer) -> list[str]:
    """The names of the layer's instructions in the forward pass."""
    has_shared = layer.plan.workload.layer.shared_hidden_dim > 0
    return [name for name in FORWARD if name != "shared" or has_shared]


def ends_of(one: Any) -> tuple[str, str]:
    """The ids of the first and the last instruction in a graph that a traced one is written as."""
    return (f"{one.id}.{FORWARD[0]}", f"{one.id}.{FORWARD[-1]}") if one.layer is not None else (one.id, one.id)


def sides_of(layer: MoELayer) -> list[str]:
    """The names of those in the backward pass that take time. The gate's gradients come with gate.dx."""
    has_shared = layer.plan.workload.layer.shared_hidden_dim > 0
    return [name for name in BACKWARD if has_shared or not name.startswith("shared")]


def described(layer: MoELayer, shape: tuple[int, ...], whole: tuple[int, ...], ranks: int, nodes: int) -> str:
    """The layer as the times of its operators are kept by, for rows of ``shape`` that are all of ``whole`` or a part."""
    plan = messages.to_dict(layer.plan)
    best = {key: plan["best"].get(key) for key in ("schedule", "chunks", "partitionDegree", "allToAll", "dispatchCodec")}
    about = {"layer": plan["workload"]["layer"], "layout": plan["workload"].get("layout"), "best": best}
    where = f"{ranks} ranks on {nodes} nodes"
    part = "" if shape == whole else f" of {list(whole)}"
    return f"MoELayer {list(shape)}{part} {layer.dtype} {where} {json.dumps(about, sort_keys=True)}"


def check_plan(path: str, layer: MoELayer) -> None:
    """Raises InvalidInput where the plan runs its layer in chunks, whose tasks are several of each kind."""
    best = layer.plan.best
    pieces = max(best.chunks, best.partition_degree, len(best.chunk_shares), 1)
    if pieces > 1:
        raise mismatch(path, f"a plan of {pieces} chunks", "a plan of one chunk; capture with such, the graph's plan cuts")


def why_whole(layer: MoELayer, axis: int | None = 0) -> str:
    """What of the layer's plan looks at a source batch as a whole, so that none may come in parts; empty: nothing does.
    ``axis``: the dimension of its rows that samples lie along. Slots are taken in the order of the rows, which parts of an
    inner dimension do not keep."""
    plan = messages.to_dict(layer.plan)
    gate = plan["workload"]["layer"].get("gate", "TOP_K")
    if gate in ("BATCH_PRIORITIZED", "EXPERT_CHOICE"):
        return f"gate {gate}"
    if axis and layer.plan.workload.layer.capacity_factor > 0:
        return "capacity with samples that are not outermost"
    is_padded = plan["workload"].get("capacityPassing", "EXACT") == "PADDED" and plan["best"]["schedule"] == "PARM_S1"
    return "capacityPassing PADDED" if is_padded else ""


def forward_times_s(timeline: Iterable[Mapping[str, Any]], took_s: float) -> dict[str, float]:
    """Seconds of each instruction of the forward pass, which took ``took_s`` from call to return."""
    return _times_s(list(timeline), _FORWARD_TASKS, took_s, "gate")


def backward_times_s(timeline: Iterable[Mapping[str, Any]], took_s: float) -> dict[str, float]:
    """Seconds of each instruction of the backward pass."""
    return _times_s(list(timeline), _BACKWARD_TASKS, took_s, "combine.dx")


def _times_s(timeline: list[Mapping[str, Any]], owners: Mapping[str, str], took_s: float, first: str) -> dict[str, float]:
    """What the layer does around its tasks counts with ``first``, and a task without a name of its own with the one that
    ran before it."""
    times = dict.fromkeys(owners.values(), 0.0)
    times[first] = max(0.0, took_s - max((task["endS"] for task in timeline), default=0.0))
    last, until = first, 0.0
    for task in sorted(timeline, key=lambda task: task["endS"]):
        last = owners.get(task["task"], last)
        begins = task["startS"] if task["task"] in owners else max(task["startS"], until)
        times[last] += max(0.0, task["endS"] - begins)
        until = max(until, task["endS"])
    return times


def exchange_fields(layer: MoELayer, rows: int) -> dict[str, Any]:
    """``bytes``, ``groupSize`` and ``ranksPerNode`` of an all-to-all of the layer, for a rank's ``rows`` tokens."""
    about, layout = layer.plan.workload.layer, layer.plan.workload.layout
    expert, tensor = max(1, layout.expert_parallel), max(1, layout.tensor_parallel)
    slots = about.top_k * (about.capacity_factor or 1.0) * rows
    size = 4 if str(layer.dtype) == "torch.float32" else 2
    schedule = messages.to_dict(layer.plan.best)["schedule"]
    fused = schedule.startswith("PARM") or schedule == "ONCE_PER_NODE"
    group = expert * max(1, layout.expert_sharding_parallel) if fused else expert
    stride = 1 if fused else tensor
    ranks_per_node = max(1, min(group, layer.world.gpus_per_node // stride))
    return {"bytes": slots * about.model_dim * size, "groupSize": group, "ranksPerNode": ranks_per_node}
