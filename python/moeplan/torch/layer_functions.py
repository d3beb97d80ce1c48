"""An MoELayer's passes as functions of autograd."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from moeplan import library
from moeplan.torch.deferred import Deferred, Use
from moeplan.torch.layer_schedule import Beside
from moeplan.torch.passes import Pass
from moeplan.torch.side_by_side import others_turn

if TYPE_CHECKING:
    from moeplan.torch.layer import MoELayer


class Call(NamedTuple):
    """A forward pass that autograd is to know. ``beside``: what runs while its backward pass is under way; ``waits``: where
    its weight gradients are left."""

    layer: MoELayer
    batch: BatchInParts | None
    needed: bool
    lane: int
    beside: Beside | None = None
    waits: Use | None = None


def _go_forward(ctx: Any, call: Call, x: torch.Tensor, parameters: tuple[torch.Tensor, ...]) -> torch.Tensor:
    output = torch.empty_like(x)
    ctx.layer, ctx.beside = call.layer, call.beside
    ctx.under_way = call.layer._forward(call, x, output, parameters)
    ctx.under_way.over = not call.needed
    ctx.save_for_backward(*parameters)  # So that autograd tells who changes them before the backward pass.
    return output


def _go_back_to_end(ctx: Any) -> list[torch.Tensor | None]:
    """Ends a backward pass that has begun, behind what runs beside it."""
    if ctx.beside is not None:
        ctx.beside.run(lambda: ctx.layer._await_experts(ctx.under_way))
    gradients: list[torch.Tensor | None] = ctx.layer._end_backward(ctx.under_way)
    return gradients


class Run(torch.autograd.Function):
    """The layer as a function of its input and its parameters. ``token``: stands for those of the experts where their
    gradients are left (``Deferred.open``)."""

    @staticmethod
    def forward(
        ctx: Any, call: Call, token: torch.Tensor | None, x: torch.Tensor, *parameters: torch.Tensor
    ) -> torch.Tensor:
        output = _go_forward(ctx, call, x, parameters)
        if call.lane != 0:
            with call.layer.world._behind_stream():
                ctx.under_way.finish()
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _ = ctx.saved_tensors  # Raises where they have changed, or have been gone back through.
        ctx.layer._begin_backward(ctx.under_way, gradient.contiguous())
        return (None, None, *_go_back_to_end(ctx))


class Begin(torch.autograd.Function):
    """The layer's forward pass, whose rows are there once `End` has taken them. Going back it finishes what that began."""

    @staticmethod
    def forward(
        ctx: Any, call: Call, token: torch.Tensor | None, x: torch.Tensor, *parameters: torch.Tensor
    ) -> torch.Tensor:
        output = _go_forward(ctx, call, x, parameters)
        call.layer._passes.begun = ctx.under_way
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _ = ctx.saved_tensors  # Raises where they have changed.
        others_turn()
        return (None, None, *_go_back_to_end(ctx))


class End(torch.autograd.Function):
    """Its input once that is there."""

    @staticmethod
    def forward(ctx: Any, layer: MoELayer, under_way: Pass, rows: torch.Tensor) -> torch.Tensor:
        ctx.layer = layer
        ctx.under_way = under_way
        ctx.save_for_backward(rows.new_empty(0))  # So that autograd tells who goes back twice.
        with layer.world._behind_stream():
            under_way.finish()
        layer._passes.last = under_way  # Another pass may have begun meanwhile.
        ctx.mark_dirty(rows)
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _ = ctx.saved_tensors
        ctx.layer._begin_backward(ctx.under_way, gradient.contiguous())
        return None, None, gradient  # Nobody reads it: that of the layer's input is still being written.


class UnderWay(NamedTuple):
    """A forward pass that has begun on a lane."""

    layer: MoELayer
    under_way: Pass
    rows: torch.Tensor  # Nobody else's until the end.

    def end(self) -> torch.Tensor:
        """The rows once they are there."""
        rows: torch.Tensor = End.apply(self.layer, self.under_way, self.rows)
        return rows


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
        # Under a schedule the parts leave the weight gradients of experts here; None before the first part.
        self.left_to: tuple[Deferred | None, torch.Tensor | None] | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[..., M] in, the same shape out."""
        return self.layer._run(x, self)

    def begin(self, x: torch.Tensor, lane: int) -> UnderWay:
        """The same on lane 1 or 2, where it goes on while the job computes."""
        return self.layer._begin(x, self, lane)
