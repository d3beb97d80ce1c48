"""Times of operators that were measured once and are looked up ever after: Lancet's caching operator profiler (section 6).

A file of SQLite holds them, by operator, sizes, dtype, device, threads and the version of PyTorch. Several processes may
use it at a time: each reads and writes in short transactions of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sqlite3
from pathlib import Path
from typing import Iterable, Iterator, Mapping, NamedTuple, Optional, Union

import torch

from moeplan.errors import mismatch
from moeplan.kept import default_folder

_BUSY_S = 60.0
_SCHEMA = """CREATE TABLE IF NOT EXISTS operator_times (
  key TEXT PRIMARY KEY, operator TEXT NOT NULL, side TEXT NOT NULL, environment TEXT NOT NULL, seconds REAL NOT NULL
) WITHOUT ROWID"""
_FIND = "SELECT seconds FROM operator_times WHERE key = ?"
_KEEP = "INSERT OR REPLACE INTO operator_times VALUES (?, ?, ?, ?, ?)"


class Operator(NamedTuple):
    """What was timed. ``text``: the operator with its sizes, dtypes and settings; ``side``: which of its passes, such as
    "forward", "dx 1" (with one gradient of its output) and "dw", or the task of a layer."""

    text: str
    side: str


class OperatorTimes:
    """The file ``path``, made where it is not there; None: operators.db in the user's cache folder ($XDG_CACHE_HOME/moeplan,
    else ~/.cache/moeplan). ``device``: the one that operators run on. Raises InvalidInput where the file cannot be used."""

    def __init__(self, path: Union[str, os.PathLike, None], device: torch.device, ranks_of_node: int) -> None:
        self.path = Path(path) if path is not None else default_folder() / "operators.db"
        self._environment = environment_of(device, ranks_of_node)
        with self._opened() as database:
            database.execute(_SCHEMA)

    def find(self, operators: Iterable[Operator]) -> dict[Operator, float]:
        """Seconds of those that are known."""
        found = {}
        with self._opened() as database:
            for operator in operators:
                row = database.execute(_FIND, (self._key(operator),)).fetchone()
                if row is not None:
                    found[operator] = float(row[0])
        return found

    def keep(self, seconds: Mapping[Operator, float]) -> None:
        rows = [(self._key(one), one.text, one.side, self._environment, value) for one, value in seconds.items()]
        with self._opened() as database:
            database.executemany(_KEEP, rows)

    def _key(self, operator: Operator) -> str:
        return hashlib.sha256("\0".join((operator.text, operator.side, self._environment)).encode()).hexdigest()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self.path, timeout=_BUSY_S)
            try:
                with database:
                    yield database
            finally:
                database.close()
        except (OSError, sqlite3.Error) as error:
            raise mismatch("cache", f"{self.path}: {error}", "a file of operator times that can be written") from None


def environment_of(device: torch.device, ranks_of_node: int) -> str:
    """What times depend on beside the operator."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = f"{_processor() or platform.machine()}, {os.cpu_count()} processors"
    return f"{name}; {ranks_of_node} ranks a node; {torch.get_num_threads()} threads; PyTorch {torch.__version__}"


def _processor() -> Optional[str]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return None
