"""Cases of parts_ranks.py whose gradients lie where a layer on a card has them: in memory that is used again.

The host's library adds to memory that begins at zero, where a card's overwrites matrices. All else is as on a card: which
pass gets which memory, and when.
"""

import ctypes

import torch
from parts_ranks import random_plans, with_weight_gradients  # noqa: F401

from moeplan import library
from moeplan.torch.layer import MoELayer
from moeplan.torch.passes import Reused


def use_count(tensor):
    """How many tensors have the memory. PyTorch 1 has no name for the count, which lies behind its storage's class."""
    storage = tensor.storage().untyped()
    return ctypes.c_size_t.from_address(storage._cdata + ctypes.sizeof(ctypes.c_void_p)).value


def _room(layer, under_way, names):
    held = {name: one for name, one in zip(layer._names, under_way.held) if name in names}
    return [
        layer._reused(name, one).zero_() if name in library.MATRICES else layer.world._zeros(one.shape, name, under_way.lane)
        for name, one in held.items()
    ]


def _found(layer, names, room):
    return [one.detach() if name in library.MATRICES else one.clone() for name, one in zip(names, room)]


def run(program, name, arguments):
    """As rank_process.py's, with layers like those of a card."""
    import rank_process

    known = MoELayer._room, MoELayer._found, Reused._uses
    MoELayer._room, MoELayer._found = _room, _found
    if not hasattr(torch._C, "_storage_Use_Count"):
        Reused._uses = lambda self: use_count(self.tensor)
    try:
        rank_process.run(program, name, arguments)
    finally:
        MoELayer._room, MoELayer._found, Reused._uses = known
