"""The ranks of a job, connected for the layers that they run together."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import fcntl
import os
import socket
import struct
import threading
import weakref
from collections import Counter
from typing import Any, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from moeplan import library
from moeplan.errors import PeerLost, UnavailableHere, mismatch
from moeplan.torch.passes import Reused

_SIOCGIFADDR = 0x8915


class World:
    """A connected rank; made by ``init``.

    ``rank`` and ``ranks`` are those of the process group; ``nodes`` · ``gpus_per_node`` is ``ranks``; layers run, and have
    their parameters, on ``device``. Every collective of a layer ends within ``deadline_s`` seconds, with PeerLost where a
    rank does not answer. Any thread may use it.
    """

    def __init__(
        self, group: Any, rank: int, ranks: int, gpus_per_node: int, deadline_s: float, device: torch.device
    ) -> None:
        self.device = device
        self.rank = rank
        self.ranks = ranks
        self.gpus_per_node = gpus_per_node
        self.nodes = ranks // gpus_per_node
        self.deadline_s = deadline_s
        self._group = group
        self._groups: dict[tuple[tuple[int, ...], ...], Any] = {}
        self._handle: ctypes.c_void_p | None = None
        self._stream = 0  # Behind which calls are queued.
        self._lane = 0
        self._last_lane = 1  # That of the second of the two parts that ran side by side last.
        self._calls = threading.RLock()
        self._sums: dict[tuple[int, str, int, torch.Size], list[Reused]] = {}
        self._lane_streams: dict[int, torch.cuda.Stream] = {}  # Those of parts that run side by side on a card.

    @property
    def on_card(self) -> bool:
        return self.device.type == "cuda"

    def _connect(self, host_address: str) -> None:
        backend = b"cuda" if self.on_card else b"host"
        library.use(backend.decode())
        place = library.Place(self.rank, self.ranks, self.gpus_per_node, host_address.encode(), self.deadline_s, backend)
        self._join(place)

    def _join(self, place: library.Place) -> None:
        join = library.create("join_create", place)
        try:
            address = library.load().moeplan_join_address(join).decode()
            addresses = [text.encode() for text in self._gather(address)]
            self._handle = library.create("world_create", join, (ctypes.c_char_p * self.ranks)(*addresses))
        finally:
            library.load().moeplan_join_free(join)
        self._free = weakref.finalize(self, library.load().moeplan_world_free, self._handle)
        self._free.atexit = False  # The process ends its connections.

    @contextlib.contextmanager
    def _behind_stream(self, lane: int | None = None) -> Iterator[None]:
        """On a card: the calls of layers inside are queued behind PyTorch's current stream. ``lane``: that of the forward
        passes that are begun inside."""
        with self._calls:
            if lane is not None and lane != self._lane:
                library.call("world_set_lane", self._handle, lane)
                self._lane = lane
            if not self.on_card:
                yield
                return
            stream = torch.cuda.current_stream(self.device).cuda_stream
            if stream != self._stream:
                library.call("world_set_stream", self._handle, stream)
                self._stream = stream
            yield

    def _on_device(self) -> Any:
        """The card as PyTorch's current device, which torch.distributed looks at."""
        return torch.cuda.device(self.device) if self.on_card else contextlib.nullcontext()

    def _zeros(self, shape: torch.Size, place: str, lane: int) -> torch.Tensor:
        """Zeros in float that a backward pass on a card adds to. The next one of the lane that asks for the same gets the same
        memory once this one has let go of it, so that what the library has recorded for it holds; ``place`` tells tensors of
        one shape apart."""
        known = self._sums.setdefault((self._stream, place, lane, shape), [])
        return Reused.of(known, lambda: torch.empty(shape, dtype=torch.float32, device=self.device)).zero_()

    def _gather(self, value: Any) -> list[Any]:
        """``value`` of every rank. Collective."""
        if self.ranks == 1:
            return [value]
        values: list[Any] = [None] * self.ranks
        with _peers_named(), self._on_device():
            dist.all_gather_object(values, value, group=self._group)
        return values

    def _gather_in(self, groups: Sequence[Sequence[int]], value: Any) -> dict[int, Any]:
        """``value`` of every rank of the own one of ``groups``, by rank. Collective over it."""
        own = next(group for group in groups if self.rank in group)
        if len(own) == 1:
            return {self.rank: value}
        values: list[Any] = [None] * len(own)
        with _peers_named(), self._on_device():
            dist.all_gather_object(values, value, group=self._group_of(groups, own))
        return dict(zip(own, values))

    def _sum(self, tensor: torch.Tensor, groups: Sequence[Sequence[int]]) -> None:
        """Sums ``tensor`` in place over the own one of ``groups``, which are disjoint lists of ranks. Collective."""
        own = next(group for group in groups if self.rank in group)
        if len(own) == 1:
            return
        # Gloo sums no BF16, and who adds many should not round in between.
        wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        with _peers_named(), self._on_device():
            dist.all_reduce(wide, group=self._group_of(groups, own))
        if wide is not tensor:
            tensor.copy_(wide)

    def _make_groups(self, groups: Sequence[Sequence[int]]) -> None:
        """Every rank of the job makes all groups, in the same order."""
        for group in groups:
            if len(group) > 1:
                self._group_of(groups, group)

    def _group_of(self, groups: Sequence[Sequence[int]], own: Sequence[int]) -> Any:
        key = tuple(tuple(group) for group in groups)
        if key not in self._groups:
            made = {}
            for group in key:
                ranks = [self._global(rank) for rank in group]
                if self.on_card:  # What the job has for cards, with its time limit: NCCL's ends the process.
                    made[group] = dist.new_group(ranks)
                else:
                    timeout = datetime.timedelta(seconds=self.deadline_s)
                    made[group] = dist.new_group(ranks, timeout, backend="gloo")
            self._groups[key] = made
        return self._groups[key][tuple(own)]

    def _global(self, rank: int) -> int:
        if self._group is None:
            return rank
        return dist.get_global_rank(self._group, rank) if hasattr(dist, "get_global_rank") else rank


@contextlib.contextmanager
def _peers_named() -> Iterator[None]:
    """What torch.distributed raises where a rank is gone, as what layers raise."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(f"a rank is lost, as torch.distributed says: {error}") from error


def init(
    group: Any = None,
    gpus_per_node: int | None = None,
    deadline_s: float = 30.0,
    device: torch.device | str | None = None,
) -> World:
    """Connects all ranks of torch.distributed (one rank where that is not initialised).

    ``group``: a group of all of them, in the order that the layers are to have; default: theirs.

    ``gpus_per_node``: ranks of a node; default LOCAL_WORLD_SIZE, or as many as share a host's name. ``deadline_s``: of
    each collective of a layer, in seconds. ``device``: "cpu"; "cuda", which is PyTorch's current device; or a card by its
    number. Default: a card where torch.distributed works over NCCL, else the CPU. On a card the work of layers is queued
    behind PyTorch's current stream, and calls come back once it is queued.

    Collective; blocks. Raises InvalidInput where nodes have different numbers of ranks, UnavailableHere without
    libmoeplan.so, or libmoeplan_gpu.so for "cuda". Other machines reach this one at the address of GLOO_SOCKET_IFNAME's interface, or else at the one
    from which MASTER_ADDR is reached.
    """
    if not deadline_s > 0:
        raise mismatch("deadline_s", str(deadline_s), "a number of seconds above 0")
    connected = dist.is_available() and dist.is_initialized()
    rank, ranks = (dist.get_rank(group), dist.get_world_size(group)) if connected else (0, 1)
    if connected and ranks != dist.get_world_size():
        found, expected = f"a group of {ranks} ranks", f"one of the job's {dist.get_world_size()}, or none"
        raise mismatch("group", found, expected)
    if device is None:
        device = "cuda" if connected and "nccl" in str(dist.get_backend(group)) else "cpu"
    world = World(group, rank, ranks, 1, deadline_s, _device(torch.device(device)))
    hosts = world._gather((socket.gethostname(), os.environ.get("LOCAL_WORLD_SIZE", "")))
    world.gpus_per_node = _ranks_per_node(gpus_per_node, hosts)
    world.nodes = ranks // world.gpus_per_node
    with world._on_device():
        world._connect(_host_address(hosts, os.environ))
    return world


def _device(asked: torch.device) -> torch.device:
    if asked.type == "cpu":
        return asked
    if asked.type != "cuda":
        raise mismatch("device", str(asked), "cpu or cuda")
    if not torch.cuda.is_available():
        raise mismatch("device", str(asked), "cpu, as PyTorch finds no card here")
    if not hasattr(torch._C, "_storage_Use_Count"):
        raise UnavailableHere(f"found PyTorch {torch.__version__}, expected 2.1 or later for layers on cards")
    return torch.device("cuda", torch.cuda.current_device() if asked.index is None else asked.index)


def _ranks_per_node(given: int | None, hosts: Sequence[tuple[str, str]]) -> int:
    ranks = len(hosts)
    said = {local for _, local in hosts}
    if given is not None:
        found, where = {given}, "gpus_per_node"
    elif len(said) == 1 and next(iter(said)).isdigit():
        found, where = {int(next(iter(said)))}, "LOCAL_WORLD_SIZE"
    else:
        found, where = set(Counter(name for name, _ in hosts).values()), "ranks by host"
    count = next(iter(found))
    if len(found) != 1 or count < 1 or ranks % count != 0:
        raise mismatch(where, ", ".join(map(str, sorted(found))), f"one number, a divisor of the job's {ranks} ranks")
    return count


def _host_address(hosts: Sequence[tuple[str, str]], environment: Mapping[str, str]) -> str:
    interface = environment.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface:
        return _address_of(interface)
    master = environment.get("MASTER_ADDR", "")
    if not master or len({name for name, _ in hosts}) == 1:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # Connecting sends nothing.
        probe.connect((master, 1))
        return str(probe.getsockname()[0])


def _address_of(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            found = f"{interface}, of which {error.strerror.lower() if error.strerror else error}"
            raise mismatch("GLOO_SOCKET_IFNAME", found, "an interface with an IPv4 address") from None
    return socket.inet_ntoa(answer[20:24])
