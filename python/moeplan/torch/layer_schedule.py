"""What a schedule of a training step says of one MoE layer."""

from __future__ import annotations

from typing import Callable, Iterable, Sequence

import torch

from moeplan.torch.deferred import Deferred, Slots


class Beside:
    """What one backward pass of a layer hides, by its two exchanges."""

    def __init__(self) -> None:
        self.first: list[Deferred] = []  # That of the output's gradients, in front of the experts.
        self.second: list[Deferred] = []

    def run(self, await_experts: Callable[[], None]) -> None:
        """While the backward pass is under way. ``await_experts`` comes between the two: the experts run before the second
        exchange, and what that hides would only hold them up."""
        for deferred in self.first:
            deferred.run()
        if self.second:
            await_experts()
        for deferred in self.second:
            deferred.run()


class LayerSchedule:
    """``lane``: where the layer's passes run, so that a backward pass goes on while the job computes. ``hidden``: whose weight
    gradients run meanwhile, in that order: paths in ``slots``, each with its parameters and the exchange that hides it, 0 or
    1 in the order of a backward pass. ``experts``: the path of the layer's own experts in ``slots``, where another layer's
    exchange hides their weight gradients; else empty.
    """

    def __init__(
        self, slots: Slots, lane: int, hidden: Sequence[tuple[str, Sequence[torch.Tensor], int]], experts: str = ""
    ) -> None:
        self.lane = lane
        self._slots = slots
        self._hidden = hidden
        self._experts = experts

    def begin(self) -> Beside:
        """Makes room for what waits for this layer's next backward pass. To be called right before the layer's own function
        is, so that autograd comes to what has waited right behind it."""
        beside = Beside()
        for path, parameters, exchange in self._hidden:
            self._slots.pop(path, None)
            if torch.is_grad_enabled() and any(one.requires_grad for one in parameters):
                deferred = Deferred(parameters)
                self._slots[path] = deferred, deferred.open()
                (beside.second if exchange else beside.first).append(deferred)
        return beside

    def own(self, parameters: Iterable[torch.Tensor]) -> tuple[Deferred | None, torch.Tensor | None]:
        """Where the layer leaves its own weight gradients, and the tensor that stands for that; nothing where they come at
        once."""
        deferred, token = (self._slots.take(self._experts) if self._experts else None) or (None, None)
        if deferred is None or not torch.is_grad_enabled():
            return None, None
        wanted = {id(one) for one in parameters if one.requires_grad}
        known = {id(one) for one in deferred.parameters}
        return (deferred, token) if wanted == known else (None, None)
