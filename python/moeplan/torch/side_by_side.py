"""Two parts of a job's step at once: while the rows of one's MoE layers are on their way, the other computes."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator, Sequence

import torch

from moeplan.errors import mismatch
from moeplan.torch.world import World


class _OtherFailed(Exception):
    """Ends a part whose other one has raised."""


class Turns:
    """Which of two parts runs. They take turns: one runs from the start of an MoE layer of its own, where the other goes on,
    until the other comes to one, so every rank of a job runs the same pieces in the same order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._go = [threading.Semaphore(0), threading.Semaphore(0)]
        self._over = [False, False]
        self._failed = False
        self._random: list[Any] = [None, None]

    def begin(self, part: int) -> None:
        """The first turn of a part."""
        if part == 1:
            self._go[1].acquire()
            self._check()

    def hand_over(self, part: int) -> None:
        """Lets the other part run until that hands over, or is over."""
        if self._over[1 - part]:
            return
        self._random[part] = self._random_state()
        self._switch_to(1 - part)
        self._go[part].acquire()
        self._check()

    def end(self, part: int, failed: bool) -> None:
        self._over[part] = True
        self._failed = self._failed or failed
        self._random[part] = self._random_state()
        if not self._over[1 - part]:
            self._switch_to(1 - part)

    def keep_random_state_of_first(self) -> None:
        """Draws of the job go on behind those of the first part, once both are over."""
        self._set_random_state(self._random[0])

    def _switch_to(self, part: int) -> None:
        if self._random[part] is None:
            # Draws of its own, which do not depend on where the other part is.
            torch.manual_seed(int(torch.randint(2**62, ())))
        else:
            self._set_random_state(self._random[part])
        self._go[part].release()

    def _check(self) -> None:
        if self._failed:
            raise _OtherFailed

    def _random_state(self) -> tuple[torch.Tensor, ...]:
        states = [torch.get_rng_state()]
        if self._world.on_card:
            states.append(torch.cuda.get_rng_state(self._world.device))
        return tuple(states)

    def _set_random_state(self, states: tuple[torch.Tensor, ...]) -> None:
        torch.set_rng_state(states[0])
        if self._world.on_card:
            torch.cuda.set_rng_state(states[1], self._world.device)


class _Current(threading.local):
    """The part that the thread runs."""

    turns: Turns | None = None
    part = 0
    lane = 0


_current = _Current()


def lane() -> int:
    """That of the layers' forward passes in this thread: 0 where nothing runs beside them."""
    return _current.lane


def others_turn() -> None:
    """While what this thread's part waits for is on its way."""
    if _current.turns is not None:
        _current.turns.hand_over(_current.part)


def side_by_side(world: World, first: Callable[[], Any], second: Callable[[], Any] | None = None) -> tuple[Any, Any]:
    """Calls both, and gives what they return; without a second part, what will go back beside another one runs alone.

    They take turns, ``first`` on the calling thread and ``second`` on another: wherever one calls an ``MoELayer``, or goes
    back through it, the layer's exchanges and experts run on streams and communicators of their own while the other part goes
    on. Such parts are the forward passes of two micro-batches, their backward passes, or the backward pass of one and the
    forward pass of another (``micro_batches``). Whatever modules they call stay as they are, and compute the same.

    The parts share no tensor that one of them writes, but for gradients of parameters. A backward pass whose forward pass
    was outside of all parts waits for its layers. The second part has random draws of its own; seed at the start of each part
    where they have to be those of a run without this. Collective: every rank of a pipeline stage runs such parts in the same
    order. Raises what a part raises; the other one ends at its next layer.
    """
    if _current.turns is not None:
        raise mismatch("side_by_side", "a call inside of another", "two parts at a time")
    turns = Turns(world)
    # The first part may be the way back of the second one before, so it has the same lane.
    lanes = world._last_lane, 3 - world._last_lane
    if second is None:
        turns.end(1, failed=False)
        return _run(turns, 0, lanes[0], first), None
    world._last_lane = lanes[1]
    modes = _modes()
    start = torch.cuda.current_stream(world.device) if world.on_card else None

    def run_second() -> Any:
        turns.begin(1)
        with modes(), _own_stream(world, start):
            return _run(turns, 1, lanes[1], second)

    under_way = _helper().submit(run_second)
    try:
        result = _run(turns, 0, lanes[0], first)
    except _OtherFailed:
        under_way.result()  # Raises what has failed.
        raise
    except BaseException:
        with contextlib.suppress(BaseException):
            under_way.result()
        raise
    other = under_way.result()
    turns.keep_random_state_of_first()
    return result, other


def micro_batches(world: World, forward: Callable[[int], torch.Tensor], count: int) -> list[torch.Tensor]:
    """``count`` micro-batches, forward and back, the backward pass of each beside the forward pass of the next: gives their
    losses, detached. ``forward(i)`` gives the loss of micro-batch i. Two of them are under way at a time, and so are their
    activations. Collective, see ``side_by_side``.
    """
    losses: list[torch.Tensor] = []
    loss, _ = side_by_side(world, lambda: forward(0))
    for i in range(1, count):
        _, following = side_by_side(world, loss.backward, lambda i=i: forward(i))
        losses.append(loss.detach())
        loss = following
    side_by_side(world, loss.backward)
    return [*losses, loss.detach()]


def _run(turns: Turns, part: int, lane: int, function: Callable[[], Any]) -> Any:
    _current.turns, _current.part, _current.lane = turns, part, lane
    failed = True
    try:
        result = function()
        failed = False
        return result
    finally:
        _current.turns, _current.lane = None, 0
        turns.end(part, failed)


def _helper() -> ThreadPoolExecutor:
    """One thread for all second parts: PyTorch keeps threads of its own for each that computes."""
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="moeplan second part")
    return _threads


_threads: ThreadPoolExecutor | None = None


def _modes() -> Callable[[], Any]:
    """What PyTorch keeps by thread, as the calling one has it."""
    grad = torch.is_grad_enabled()
    casts: Sequence[tuple[str, bool, torch.dtype]] = (
        ("cpu", torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()),
        ("cuda", torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()),
    )

    @contextlib.contextmanager
    def modes() -> Iterator[None]:
        with contextlib.ExitStack() as entered:
            entered.enter_context(torch.set_grad_enabled(grad))
            for device, enabled, dtype in casts:
                if enabled:
                    entered.enter_context(torch.autocast(device, dtype=dtype))
            yield

    return modes


@contextlib.contextmanager
def _own_stream(world: World, start: Any) -> Iterator[None]:
    """On a card the second part has a stream of its own, which begins and ends with that of the first."""
    if not world.on_card:
        yield
        return
    stream = torch.cuda.Stream(world.device)
    stream.wait_stream(start)
    with torch.cuda.stream(stream):
        yield
    start.wait_stream(stream)
