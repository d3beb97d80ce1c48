"""What a schedule of a training step says of one MoE layer."""

from __future__ import annotations

from typing import Iterable, Sequence

import torch

from moeplan.torch.deferred import Deferred, Slots


class LayerSchedule:
    """``lane``: where the layer's passes run, so that a backward pass goes on while the job computes. ``beside``: whose weight
    gradients run meanwhile, in that order: paths in ``slots``, each with its parameters. ``experts``: the path of the layer's
    own experts in ``slots``, where another layer's exchange hides their weight gradients; else empty.
    """

    def __init__(
        self, slots: Slots, lane: int, beside: Sequence[tuple[str, Sequence[torch.Tensor]]], experts: str = ""
    ) -> None:
        self.lane = lane
        self._slots = slots
        self._beside = beside
        self._experts = experts

    def begin(self) -> list[Deferred]:
        """Makes room for what waits for this layer's next backward pass. To be called right before the layer's own function
        is, so that autograd comes to what has waited right behind it."""
        opened = []
        for path, parameters in self._beside:
            self._slots.pop(path, None)
            if torch.is_grad_enabled() and any(one.requires_grad for one in parameters):
                deferred = Deferred(parameters)
                self._slots[path] = deferred, deferred.open()
                opened.append(deferred)
        return opened

    def own(self, parameters: Iterable[torch.Tensor]) -> tuple[Deferred | None, torch.Tensor | None]:
        """Where the layer leaves its own weight gradients, and the tensor that stands for that; nothing where they come at
        once."""
        deferred, token = self._slots.pop(self._experts, (None, None)) if self._experts else (None, None)
        if deferred is None or not torch.is_grad_enabled():
            return None, None
        wanted = {id(one) for one in parameters if one.requires_grad}
        known = {id(one) for one in deferred.parameters}
        return (deferred, token) if wanted == known else (None, None)
