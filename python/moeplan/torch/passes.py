"""Forward passes of a layer that are under way, and what they leave for the next."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable

import torch

from moeplan import library


class Pass:
    """A forward pass under way: keeps what its backward pass needs."""

    __slots__ = ("handle", "tokens", "lane", "held", "moving", "over", "waits", "free")

    def __init__(self, handle: ctypes.c_void_p, tokens: int, lane: int, held: list[torch.Tensor]) -> None:
        self.handle = handle
        self.tokens = tokens
        self.lane = lane
        self.held = held  # Whose memory the library reads.
        self.moving: Any = None  # What a call that runs beside others reads and writes until it is finished.
        self.over = False  # Its gradients are there, or nobody wants them.
        self.waits: Any = None  # The Use of a schedule that its weight gradients are left to.
        self.free = library.function("pass_free")

    def finish(self) -> Any:
        """Gives ``moving``, which the job may use now."""
        if self.lane != 0:
            library.call("pass_finish", self.handle)
        moving, self.moving = self.moving, None
        return moving

    def __del__(self) -> None:
        # At the end of the program another thread may be inside the library, for as long as a deadline.
        if not sys.is_finalizing():
            self.free(self.handle)


class Passes:
    """What a layer's passes left. Apart from the module, which takes ten times as long to set an attribute."""

    __slots__ = ("last", "begun", "deferred", "reduced", "floats", "gradients", "schedule")

    def __init__(self) -> None:
        self.last: Pass | None = None
        self.begun: Pass | None = None  # Until `End` has it.
        self.deferred: list[Pass] = []
        self.reduced = False  # Gradients are sums over replicas.
        self.schedule: Any = None  # The LayerSchedule that the layer runs under.
        # On a card: what the library takes as float and the layer has as BF16, and, by stream and name, the memory of
        # gradients of matrices.
        self.floats: dict[str, torch.Tensor] = {}
        self.gradients: dict[tuple[int, str], list[Reused]] = {}


class Reused:
    """Memory for a gradient on a card, which is that of the next one once nobody else has it any more.

    What the library has recorded for a place holds for as long as gradients come to the same place. Work of another stream
    that is only queued is nobody: who reads a gradient there holds it until that is done.
    """

    __slots__ = ("tensor", "_alone")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._uses()
        self._alone = self._uses()

    @classmethod
    def of(cls, known: list[Reused], make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The tensor of the first of ``known`` that is free; a new one that joins them where none is."""
        found = next((one for one in known if one.is_free()), None)
        if found is None:
            found = cls(make())
            known.append(found)
        return found.tensor.detach()  # Another tensor of that memory, without which it would seem free.

    def _uses(self) -> int:
        return int(torch._C._storage_Use_Count(self.tensor.untyped_storage()._cdata))

    def is_free(self) -> bool:
        return self._uses() == self._alone
