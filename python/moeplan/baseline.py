"""The plan that needs no measurement: BASELINE_TP where ESP = MP, else BASELINE, without times.

Mirrors ResolveWorkload (models/workload/workload.cc) and the baseline of planner/client/job_planner.cc check by check
and word by word: a job gets the same plan, and the same error, from either client. Pure; any thread.
"""

from __future__ import annotations

import math

from moeplan.errors import InvalidInput, mismatch
from moeplan.messages import number_text
from moeplan.v1 import cluster_pb2, plan_pb2, workload_pb2

_MOST_RANKS = 1 << 24
_MOST_PIECES = 1 << 16
_MOST_ROUTED_EXPERTS = 1 << 16
_MOST_ROWS = 2**31 - 1
_MOST_GRADIENT_BYTES = 1e15
_MOST_ZERO_STAGE = 3


def baseline_of(workload: workload_pb2.Workload, cluster: cluster_pb2.Cluster) -> plan_pb2.PlanResponse:
    """The baseline of a workload on a valid cluster. Raises InvalidInput where the workload is wrong."""
    resolved = resolve(workload, cluster)
    layout = resolved.layout
    family = "BASELINE_TP" if layout.tensor_parallel == layout.expert_sharding_parallel else "BASELINE"
    answer = plan_pb2.PlanResponse(workload=resolved)
    answer.best.schedule = plan_pb2.Schedule.Family.Value(family)
    answer.best.chunks = 1
    answer.best.partition_degree = 1
    return answer


def check_cluster(cluster: cluster_pb2.Cluster, path: str) -> None:
    """Checks nodes, GPUs and the capacities."""
    _at_least_one(f"{path}.nodes", cluster.nodes)
    _at_least_one(f"{path}.gpusPerNode", cluster.gpus_per_node)
    if cluster.nodes * cluster.gpus_per_node > _MOST_RANKS:
        raise mismatch(f"{path}.nodes", str(cluster.nodes), f"at most {_MOST_RANKS} ranks in all")
    _finite_at_least(f"{path}.peakFlopsPerS", cluster.peak_flops_per_s, 0)
    _finite_at_least(f"{path}.deviceMemoryBytes", cluster.device_memory_bytes, 0)
    _finite_at_least(f"{path}.nodeLinkBytesPerS", cluster.node_link_bytes_per_s, 0)
    _finite_at_least(f"{path}.networkBytesPerS", cluster.network_bytes_per_s, 0)


def resolve(asked: workload_pb2.Workload, cluster: cluster_pb2.Cluster) -> workload_pb2.Workload:
    """The workload with its defaults filled in. Raises InvalidInput for what does not fit the cluster."""
    if not asked.HasField("layer"):
        raise mismatch("layer", "nothing", "an object")
    if asked.layout.HasField("data_parallel") and asked.layout.data_parallel < 1:
        found = str(asked.layout.data_parallel)
        raise mismatch("layout.dataParallel", found, "a whole number of at least 1, or absent")
    workload = _with_defaults(asked)
    _check_layer(workload.layer)
    if workload.layer.capacity_factor == 0 and workload.capacity_passing == workload_pb2.CapacityPassing.PADDED:
        raise mismatch(
            "capacityPassing",
            "PADDED",
            "EXACT, because a layer without layer.capacityFactor drops nothing, and fixed shares would",
        )
    _check_degrees(workload.layout)
    _positive("minChunkBytes", workload.min_chunk_bytes)
    _check_pieces("maxChunks", workload.max_chunks)
    _check_pieces("maxPartitionDegree", workload.max_partition_degree)
    if workload.HasField("zero_stage") and not 0 <= workload.zero_stage <= _MOST_ZERO_STAGE:
        raise mismatch("zeroStage", str(workload.zero_stage), f"0 to {_MOST_ZERO_STAGE}, or absent")
    _check_gradients(workload)
    if workload.HasField("routing"):
        _check_routing(workload.layer, workload.routing)
    ranks = cluster.nodes * cluster.gpus_per_node
    workload.layout.data_parallel = _data_parallel_that_fills(workload.layout, ranks)
    _check_layout(workload.layer, workload.layout, ranks, cluster.gpus_per_node)
    _check_rows(workload.layer, workload.layout)
    return workload


def _with_defaults(asked: workload_pb2.Workload) -> workload_pb2.Workload:
    workload = workload_pb2.Workload()
    workload.CopyFrom(asked)
    for message, defaults in (
        (workload.layer, {"bytes_per_element": 2, "expert_matrices": 2}),
        (
            workload.layout,
            {
                "tensor_parallel": 1,
                "expert_parallel": 1,
                "expert_sharding_parallel": 1,
                "context_parallel": 1,
                "pipeline_parallel": 1,
            },
        ),
        (workload, {"min_chunk_bytes": 1048576.0, "max_chunks": 64, "max_partition_degree": 8}),
    ):
        for field, value in defaults.items():
            if not message.HasField(field):
                setattr(message, field, value)
    _fill_router(workload.layer)
    if workload.gradient_bytes == 0:
        workload.ClearField("gradient_bytes")
    return workload


def with_router_defaults(router: workload_pb2.Router) -> workload_pb2.Router:
    """A copy that says every field."""
    filled = workload_pb2.Router()
    filled.CopyFrom(router)
    if not filled.HasField("weight_scale"):
        filled.weight_scale = 1
    if not filled.HasField("expert_groups"):
        filled.expert_groups = 1
    if not filled.HasField("groups_per_token"):
        filled.groups_per_token = filled.expert_groups
    return filled


def _fill_router(layer: workload_pb2.Layer) -> None:
    if not layer.HasField("router"):
        return
    layer.router.CopyFrom(with_router_defaults(layer.router))
    if layer.router == with_router_defaults(workload_pb2.Router()):
        layer.ClearField("router")


def _at_least_one(path: str, value: int) -> None:
    if value < 1:
        raise mismatch(path, str(value), "a whole number of at least 1")


def _check_pieces(path: str, value: int) -> None:
    _at_least_one(path, value)
    if value > _MOST_PIECES:
        raise mismatch(path, str(value), f"at most {_MOST_PIECES}")


def _finite_at_least(path: str, value: float, least: int) -> None:
    if not (math.isfinite(value) and value >= least):
        raise mismatch(path, _number(value), f"a finite number of at least {least}")


def _positive(path: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise mismatch(path, _number(value), "a finite number above 0")


def _number(value: float) -> str:
    return number_text(value) if math.isfinite(value) else str(value)


def _check_capacity(layer: workload_pb2.Layer) -> None:
    _finite_at_least("layer.capacityFactor", layer.capacity_factor, 0)
    if layer.capacity_factor == 0 and layer.gate == workload_pb2.Gate.EXPERT_CHOICE:
        raise mismatch(
            "layer.capacityFactor",
            _number(layer.capacity_factor),
            "above 0, because with EXPERT_CHOICE experts take as many tokens as they have slots",
        )
    if layer.receive_factor == 0:
        return
    if layer.capacity_factor != 0:
        raise mismatch(
            "layer.receiveFactor",
            _number(layer.receive_factor),
            "0, because layer.capacityFactor says how many slots an expert has",
        )
    _finite_at_least("layer.receiveFactor", layer.receive_factor, 1)


def _check_swiglu_limit(layer: workload_pb2.Layer) -> None:
    _finite_at_least("layer.swigluLimit", layer.swiglu_limit, 0)
    if layer.swiglu_limit != 0 and not (layer.expert_matrices == 3 and layer.expert_kind == workload_pb2.Expert.FFN):
        raise mismatch("layer.swigluLimit", _number(layer.swiglu_limit), "0 unless experts are FFN of 3 matrices")


def _check_router(layer: workload_pb2.Layer) -> None:
    if not layer.HasField("router"):
        return
    router = layer.router
    _positive("layer.router.weightScale", router.weight_scale)
    if layer.gate != workload_pb2.Gate.TOP_K:
        gate = workload_pb2.Gate.Kind.Name(layer.gate)
        raise mismatch("layer.router", "an object", f"none with gate {gate}, but with TOP_K")
    if router.correction_bias and router.score_function != workload_pb2.Score.SIGMOID:
        raise mismatch("layer.router.correctionBias", "true", "false unless layer.router.scoreFunction is SIGMOID")
    if router.weighs_input and layer.top_k != 1:
        raise mismatch("layer.router.weighsInput", "true", f"false unless layer.topK is 1, and it is {layer.top_k}")
    groups, chosen = router.expert_groups, router.groups_per_token
    if groups < 1 or layer.experts % groups != 0:
        raise mismatch("layer.router.expertGroups", str(groups), f"a divisor of layer.experts, which is {layer.experts}")
    of_group = layer.experts // groups
    needed = -(-layer.top_k // of_group)
    if not needed <= chosen <= groups:
        expected = f"{needed} to {groups}, so that there are layer.topK experts to choose among"
        raise mismatch("layer.router.groupsPerToken", str(chosen), expected)
    if chosen < groups and router.correction_bias and of_group < 2:
        expected = "groups of at least 2 experts, as with correctionBias the two best of a group count"
        raise mismatch("layer.router.expertGroups", str(groups), expected)


def _check_layer(layer: workload_pb2.Layer) -> None:
    _at_least_one("layer.batch", layer.batch)
    _at_least_one("layer.sequenceLength", layer.sequence_length)
    _at_least_one("layer.modelDim", layer.model_dim)
    _at_least_one("layer.hiddenDim", layer.hidden_dim)
    _at_least_one("layer.experts", layer.experts)
    _at_least_one("layer.topK", layer.top_k)
    _check_capacity(layer)
    if layer.bytes_per_element not in (2, 4):
        raise mismatch("layer.bytesPerElement", str(layer.bytes_per_element), "2 (BF16) or 4 (FP32)")
    if layer.expert_matrices not in (2, 3):
        raise mismatch("layer.expertMatrices", str(layer.expert_matrices), "2 (GELU) or 3 (SwiGLU)")
    if layer.shared_hidden_dim < 0:
        raise mismatch("layer.sharedHiddenDim", str(layer.shared_hidden_dim), "a whole number of at least 0")
    _finite_at_least("layer.auxLossCoefficient", layer.aux_loss_coefficient, 0)
    _finite_at_least("layer.zLossCoefficient", layer.z_loss_coefficient, 0)
    if layer.top_k > layer.experts:
        raise mismatch("layer.topK", str(layer.top_k), f"at most layer.experts, which is {layer.experts}")
    if layer.gate == workload_pb2.Gate.SWITCH and layer.top_k != 1:
        raise mismatch("layer.topK", str(layer.top_k), "1, because layer.gate is SWITCH")
    _check_swiglu_limit(layer)
    _check_router(layer)


def _check_degrees(layout: workload_pb2.Layout) -> None:
    _at_least_one("layout.tensorParallel", layout.tensor_parallel)
    _at_least_one("layout.expertParallel", layout.expert_parallel)
    _at_least_one("layout.expertShardingParallel", layout.expert_sharding_parallel)
    _at_least_one("layout.contextParallel", layout.context_parallel)
    _at_least_one("layout.pipelineParallel", layout.pipeline_parallel)


def _check_gradients(workload: workload_pb2.Workload) -> None:
    found = workload.gradient_bytes
    _finite_at_least("gradientBytes", found, 0)
    if found > _MOST_GRADIENT_BYTES:
        raise mismatch("gradientBytes", _number(found), f"at most {number_text(_MOST_GRADIENT_BYTES)}")
    if math.fmod(found, workload.layer.bytes_per_element) != 0:
        raise mismatch(
            "gradientBytes",
            _number(found),
            f"whole elements of layer.bytesPerElement, which is {workload.layer.bytes_per_element}",
        )
    if found > 0 and workload.phase == workload_pb2.Phase.FORWARD:
        raise mismatch(
            "gradientBytes",
            _number(found),
            "0 in a forward pass, which has no gradients to exchange; set phase to BACKWARD or TRAINING",
        )


def _check_routing(layer: workload_pb2.Layer, routing: workload_pb2.Routing) -> None:
    counts, skewed = routing.tokens_per_expert, routing.HasField("skew")
    if bool(counts) == skewed:
        both = "tokensPerExpert and skew" if skewed else "neither tokensPerExpert nor skew"
        raise mismatch("routing", both, "exactly one of them")
    if layer.gate == workload_pb2.Gate.EXPERT_CHOICE:
        raise mismatch("routing", "an object", "none with gate EXPERT_CHOICE: each expert takes as many tokens")
    if layer.experts > _MOST_ROUTED_EXPERTS:
        raise mismatch("layer.experts", str(layer.experts), f"at most {_MOST_ROUTED_EXPERTS} with routing")
    if skewed:
        _finite_at_least("routing.skew", routing.skew, 0)
        return
    if len(counts) != layer.experts:
        raise mismatch(
            "routing.tokensPerExpert",
            f"{len(counts)} counts",
            f"one for each of layer.experts, which is {layer.experts}",
        )
    for expert, count in enumerate(counts):
        _finite_at_least(f"routing.tokensPerExpert[{expert}]", count, 0)
    if not max(counts) > 0:
        raise mismatch("routing.tokensPerExpert", "only zeros", "at least one count above 0")


def _data_parallel_that_fills(layout: workload_pb2.Layout, ranks: int) -> int:
    others = layout.tensor_parallel * layout.context_parallel * layout.pipeline_parallel
    if others > ranks or ranks % others != 0:
        raise _no_divisor("tensorParallel·contextParallel·pipelineParallel", others, f"the cluster's {ranks} ranks")
    fills = ranks // others
    if layout.data_parallel not in (0, fills):
        raise mismatch(
            "layout.dataParallel",
            str(layout.data_parallel),
            f"{fills}, so that TP·CP·DP·PP is the cluster's {ranks} ranks",
        )
    return fills


def _no_divisor(product: str, value: int, whole: str) -> InvalidInput:
    return InvalidInput(f"layout: {product} is {number_text(value)}, expected a divisor of {whole}")


def _fits_nodes(path: str, degree: int, gpus_per_node: int) -> None:
    if gpus_per_node % degree != 0 and degree % gpus_per_node != 0:
        expected = f"a divisor or a multiple of the cluster's {gpus_per_node} GPUs per node"
        raise mismatch(path, number_text(degree), expected)


def _check_layout(layer: workload_pb2.Layer, layout: workload_pb2.Layout, ranks: int, gpus_per_node: int) -> None:
    stage_ranks = ranks // layout.pipeline_parallel
    expert_ranks = layout.expert_parallel * layout.expert_sharding_parallel
    if expert_ranks > stage_ranks or stage_ranks % expert_ranks != 0:
        whole = f"the {stage_ranks} ranks of a pipeline stage"
        raise _no_divisor("expertParallel·expertShardingParallel", expert_ranks, whole)
    _fits_nodes("layout.tensorParallel", layout.tensor_parallel, gpus_per_node)
    _fits_nodes("layout.expertShardingParallel", layout.expert_sharding_parallel, gpus_per_node)
    _fits_nodes("layout.expertParallel·expertShardingParallel", expert_ranks, gpus_per_node)
    if layer.experts % layout.expert_parallel != 0:
        raise mismatch(
            "layout.expertParallel",
            str(layout.expert_parallel),
            f"a divisor of layer.experts, which is {layer.experts}",
        )
    if 0 < layer.shared_hidden_dim < layout.tensor_parallel:
        raise mismatch(
            "layer.sharedHiddenDim",
            str(layer.shared_hidden_dim),
            f"0 or at least layout.tensorParallel, which is {layout.tensor_parallel}",
        )
    if layer.sequence_length % layout.context_parallel != 0:
        raise mismatch(
            "layout.contextParallel",
            str(layout.context_parallel),
            f"a divisor of layer.sequenceLength, which is {layer.sequence_length}",
        )


def _check_rows(layer: workload_pb2.Layer, layout: workload_pb2.Layout) -> None:
    tokens = float(layer.batch) * (layer.sequence_length // layout.context_parallel)
    pairs = tokens * layer.top_k * max(1.0, layer.capacity_factor)
    rows = max(pairs, float(layer.experts)) * layout.expert_sharding_parallel
    if rows > _MOST_ROWS:
        raise mismatch(
            "layer.batch·layer.sequenceLength",
            f"{number_text(tokens)} tokens a rank, {_number(rows)} rows",
            "at most 2147483647 rows: tokens · topK · capacityFactor · expertShardingParallel",
        )
