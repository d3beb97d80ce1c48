"""MoE layers of a PyTorch job, run under moeplan's plans.

    dist.init_process_group("gloo")
    world = moeplan.torch.init()
    layer = moeplan.torch.MoELayer(answer.response, world)
    y = layer(x)

Letters of shapes are those of docs/design.md, section 3: M model, H hidden, E experts, L tokens of a rank.
docs/python.md tells how it is used.
"""

from moeplan.torch.capture import CapturedGraph, capture
from moeplan.torch.gradients import flush_weight_gradients, reduce_gradients
from moeplan.torch.layer import MoELayer
from moeplan.torch.replace import Replacement, replace
from moeplan.torch.scheduled import scheduled
from moeplan.torch.side_by_side import micro_batches, side_by_side
from moeplan.torch.world import World, init

__all__ = [
    "CapturedGraph",
    "MoELayer",
    "Replacement",
    "World",
    "capture",
    "flush_weight_gradients",
    "init",
    "micro_batches",
    "reduce_gradients",
    "replace",
    "scheduled",
    "side_by_side",
]
