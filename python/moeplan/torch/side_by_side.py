"""Two parts of a job's step at once: while the rows of one's MoE layers are on their way, the other computes."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Iterator, Sequence

import torch

from moeplan.errors import mismatch
from moeplan.torch.world import World


class _OtherFailed(Exception):
    """Ends a part whose other one has raised."""


class _Turns:
    """Which of two parts runs. One runs from the start of an MoE layer of its own, where the other goes on, until the other
    comes to one, so every rank of a job runs the same pieces in the same order.

    Each part has random draws of its own, which come back to it with its turn. Part ``drawing`` goes on with the job's, and
    the job with those of that part.
    """

    def __init__(self, world: World, drawing: int) -> None:
        self._world = world
        self._drawing = drawing
        self._go = [threading.Semaphore(1), threading.Semaphore(0)]
        self._over = [False, False]
        self._failed = False
        self._random: list[Any] = [None, None]
        if drawing == 1:
            self._random[1] = self._random_state()
        else:
            self._seed_of_second = int(torch.randint(2**62, ()))

    def begin(self, part: int) -> None:
        """Waits for the part's first turn."""
        self._go[part].acquire()
        self._check()

    def hand_over(self, part: int) -> None:
        """Lets the other part run until that hands over, or is over."""
        self._check()
        if self._over[1 - part]:
            return
        self._random[part] = self._random_state()
        self._switch_to(1 - part)
        self._go[part].acquire()
        self._check()

    def end(self, part: int, failed: bool) -> None:
        """The first call for a part counts."""
        if self._over[part]:
            return
        self._over[part] = True
        self._failed = self._failed or failed
        self._random[part] = self._random_state()
        if not self._over[1 - part]:
            self._switch_to(1 - part)
        elif self._random[self._drawing] is not None:
            self._set_random_state(self._random[self._drawing])

    def _switch_to(self, part: int) -> None:
        if self._random[part] is None:
            self._seed(self._seed_of_second)
        else:
            self._set_random_state(self._random[part])
        self._go[part].release()

    def _check(self) -> None:
        if self._failed:
            raise _OtherFailed

    def _random_state(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self._generators()]

    def _set_random_state(self, states: Sequence[torch.Tensor]) -> None:
        for generator, state in zip(self._generators(), states):
            generator.set_state(state)

    def _seed(self, seed: int) -> None:
        for generator in self._generators():
            generator.manual_seed(seed)

    def _generators(self) -> list[torch.Generator]:
        device = self._world.device
        return [torch.default_generator, *([torch.cuda.default_generators[device.index]] if self._world.on_card else [])]


class _Current(threading.local):
    """The part that the thread runs."""

    turns: _Turns | None = None  # None: nothing runs beside it.
    part = 0
    lane = 0


_current = _Current()


def lane() -> int:
    """That of the layers' forward passes in this thread: 0 outside of parts."""
    return _current.lane


def others_turn() -> None:
    """While what this thread's part waits for is on its way."""
    if _current.turns is not None:
        _current.turns.hand_over(_current.part)


def side_by_side(world: World, first: Callable[[], Any], second: Callable[[], Any] | None = None) -> tuple[Any, Any]:
    """Calls both, and gives what they return. Without a second part, ``first`` runs alone, and can go back beside another.

    They take turns, ``first`` on the calling thread and ``second`` on another: wherever one calls an ``MoELayer``, or goes
    back through it, the layer's exchanges and experts run on streams and communicators of their own while the other part goes
    on. Such parts are the forward passes of two micro-batches, their backward passes, or the backward pass of one and the
    forward pass of another (``micro_batches``). Whatever modules they call stay as they are, and compute the same.

    The parts share no tensor that one of them writes, but for gradients of parameters. What has gone forward in two parts goes
    back in two parts, or one after the other: in one backward pass through both, each rank would meet their layers in an order
    of its own. A backward pass inside of a part whose forward pass was outside of all parts waits for its layers. ``second``
    has random draws of its own, and the thread's grad mode, inference mode and autocast, but no hooks for saved tensors.

    Collective: every rank of a pipeline stage runs such parts in the same order. Raises what a part raises; the other one ends
    at its next layer. Raises InvalidInput inside of a part.
    """
    if second is None:
        return _alone(world, first), None
    return _both(world, first, second, drawing=0)


def micro_batches(world: World, forward: Callable[[int], torch.Tensor], count: int) -> list[torch.Tensor]:
    """``count`` micro-batches, forward and back, the backward pass of each beside the forward pass of the next: gives their
    losses, detached. ``forward(i)`` gives the loss of micro-batch i, with the random draws that it has without this. Two of
    them are under way at a time, and so are their activations. Collective, see ``side_by_side``.

    Under DistributedDataParallel every micro-batch runs in ``no_sync``, and the job sums the gradients: a forward pass would
    prepare its reduction while the backward pass before still runs.
    """
    if count < 1:
        return []
    losses: list[torch.Tensor] = []
    loss = _alone(world, lambda: forward(0))
    for i in range(1, count):
        _, following = _both(world, loss.backward, lambda i=i: forward(i), drawing=1)
        losses.append(loss.detach())
        loss = following
    _alone(world, loss.backward)
    return [*losses, loss.detach()]


def _both(world: World, first: Callable[[], Any], second: Callable[[], Any], drawing: int) -> tuple[Any, Any]:
    _refuse_inside()
    # The first part may be the way back of the second one before, so it has the same lane.
    lanes = world._last_lane, 3 - world._last_lane
    world._last_lane = lanes[1]
    turns, modes = _Turns(world, drawing), _Modes(world)

    def part(number: int, function: Callable[[], Any]) -> Any:
        failed = True
        try:
            turns.begin(number)
            with _inside(turns, number, lanes[number]), modes.entered(lanes[number]):
                result = function()
            failed = False
            return result
        finally:
            turns.end(number, failed)

    under_way: Future[Any] | None = None
    try:
        under_way = _helper().submit(part, 1, second)
        result = part(0, first)
    except _OtherFailed:
        if under_way is not None:
            under_way.result()  # Raises what has failed.
        raise
    except BaseException:
        turns.end(0, failed=True)
        if under_way is not None:
            under_way.exception()
        raise
    return result, under_way.result()


def _alone(world: World, function: Callable[[], Any]) -> Any:
    _refuse_inside()
    with _inside(None, 0, world._last_lane), _Modes(world).entered(world._last_lane):
        return function()


def _refuse_inside() -> None:
    if _current.lane != 0:
        raise mismatch("side_by_side", "a call inside of another", "two parts at a time")


@contextlib.contextmanager
def _inside(turns: _Turns | None, part: int, own_lane: int) -> Iterator[None]:
    _current.turns, _current.part, _current.lane = turns, part, own_lane
    try:
        yield
    finally:
        _current.turns, _current.lane = None, 0


_helpers: dict[int, ThreadPoolExecutor] = {}


def _helper() -> ThreadPoolExecutor:
    """One thread of the process for all second parts: PyTorch keeps threads of its own for each that computes."""
    process = os.getpid()  # A forked child has no thread of its parent's.
    if process not in _helpers:
        _helpers[process] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="moeplan second part")
    return _helpers[process]


class _Modes:
    """How a part runs: in the modes of the calling thread and, on a card, on a stream of its lane, which begins and ends with
    that of the calling thread."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._casts = (
            ("cpu", torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()),
            ("cuda", torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()),
        )
        self._start = torch.cuda.current_stream(world.device) if world.on_card else None

    @contextlib.contextmanager
    def entered(self, own_lane: int) -> Iterator[None]:
        with contextlib.ExitStack() as modes:
            if self._inference:
                modes.enter_context(torch.inference_mode())
            modes.enter_context(torch.set_grad_enabled(self._grad))
            for device, enabled, dtype in self._casts:
                if enabled:  # The cache is the process's, so a part could read what the other's stream has yet to write.
                    modes.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=False))
            if self._world.on_card:
                # Backward passes stay on the thread of their part, which takes turns.
                modes.enter_context(torch.autograd.set_multithreading_enabled(False))
                modes.enter_context(self._stream_of(own_lane))
            yield

    @contextlib.contextmanager
    def _stream_of(self, own_lane: int) -> Iterator[None]:
        streams = self._world._lane_streams
        if own_lane not in streams:
            streams[own_lane] = torch.cuda.Stream(self._world.device)
        stream = streams[own_lane]
        stream.wait_stream(self._start)
        try:
            with torch.cuda.stream(stream):
                yield
        finally:
            self._start.wait_stream(stream)
