"""A plan as a dict, read for the executor. Pure; any thread."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from moeplan import library, messages
from moeplan.errors import mismatch
from moeplan.v1 import plan_pb2

_BYTES = {torch.float32: 4, torch.bfloat16: 2}


def read_plan(plan: Any) -> plan_pb2.PlanResponse:
    """The plan of an Answer, of its ``response``, or of {"workload", "best"}. Raises InvalidInput."""
    response = plan_pb2.PlanResponse()
    given = getattr(plan, "response", plan)
    messages.read(response, given, "plan")
    for field in ("workload", "best"):
        if not response.HasField(field):
            raise mismatch(f"plan.{field}", "nothing", "an object; give a planner's answer")
    if response.best.schedule == plan_pb2.Schedule.UNSPECIFIED:
        raise mismatch("plan.best.schedule", "nothing", "the name of a schedule")
    return response


def element_bytes(dtype: torch.dtype) -> int:
    """What an element of rows takes."""
    if dtype not in _BYTES:
        raise mismatch("dtype", str(dtype), "torch.float32 or torch.bfloat16")
    return _BYTES[dtype]


def _name(message: Any, field: str) -> bytes:
    """The name of an enum's value, as the contract has it."""
    enum = message.DESCRIPTOR.fields_by_name[field].enum_type
    number = getattr(message, field)
    if number not in enum.values_by_number:
        raise mismatch(field, str(number), f"a name that this version has ({', '.join(enum.values_by_name)})")
    return str(enum.values_by_number[number].name).encode()


def fields_of(response: plan_pb2.PlanResponse, dtype: torch.dtype, nodes: int, gpus_per_node: int) -> library.Plan:
    """What moeplan_layer_create takes. Elements are those of ``dtype``, whatever the plan was made for."""
    workload, best = response.workload, response.best
    layer, layout, router = workload.layer, workload.layout, workload.layer.router
    shares = (ctypes.c_double * len(best.chunk_shares))(*best.chunk_shares)
    order = (ctypes.c_char_p * len(best.order))(*(task.encode() for task in best.order))
    return library.Plan(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        batch=layer.batch,
        sequence_length=layer.sequence_length,
        model_dim=layer.model_dim,
        hidden_dim=layer.hidden_dim,
        experts=layer.experts,
        top_k=layer.top_k,
        capacity_factor=layer.capacity_factor,
        bytes_per_element=element_bytes(dtype),
        expert_matrices=layer.expert_matrices,
        expert_bias=layer.expert_bias,
        shared_hidden_dim=layer.shared_hidden_dim,
        expert_kind=_name(layer, "expert_kind"),
        gate=_name(layer, "gate"),
        router_score_function=_name(router, "score_function"),
        router_raw_weights=router.raw_weights,
        router_correction_bias=router.correction_bias,
        router_bias=router.bias,
        router_weighs_input=router.weighs_input,
        router_expert_groups=router.expert_groups,
        router_groups_per_token=router.groups_per_token,
        router_weight_scale=router.weight_scale,
        swiglu_limit=layer.swiglu_limit,
        aux_loss_coefficient=layer.aux_loss_coefficient,
        z_loss_coefficient=layer.z_loss_coefficient,
        receive_factor=layer.receive_factor,
        tensor_parallel=layout.tensor_parallel,
        expert_parallel=layout.expert_parallel,
        expert_sharding_parallel=layout.expert_sharding_parallel,
        context_parallel=layout.context_parallel,
        pipeline_parallel=layout.pipeline_parallel,
        capacity_passing=_name(workload, "capacity_passing"),
        # A plan that has a lossy codec was made by a search that was allowed to.
        allow_lossy=1,
        schedule=_name(best, "schedule"),
        all_to_all=_name(best, "all_to_all"),
        dispatch_codec=_name(best, "dispatch_codec"),
        combine_codec=_name(best, "combine_codec"),
        chunks=best.chunks,
        partition_degree=best.partition_degree,
        overlapped_gather=best.overlapped_gather,
        communication_ctas=best.communication_ctas,
        chunk_share_count=len(shares),
        order_count=len(order),
        chunk_shares=shares,
        order=order,
    )
