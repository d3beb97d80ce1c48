"""The plans that a job keeps for the day its planner is away, a file each.

The C++ client (planner/client/job_planner.cc) keeps and reads the same files.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
import time
from pathlib import Path

from moeplan import messages
from moeplan.errors import InvalidInput
from moeplan.v1 import plan_pb2, planner_service_pb2


def default_folder() -> Path:
    """$XDG_CACHE_HOME/moeplan, else ~/.cache/moeplan."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path(os.environ.get("HOME") or tempfile.gettempdir()) / ".cache") / "moeplan"


class KeptPlans:
    """Any thread, and any process, may use a folder at the same time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, request: plan_pb2.PlanRequest, answer: plan_pb2.PlanResponse, answered_at: str) -> None:
        """Writes the file whole or not at all. That it fails costs a kept plan, no more."""
        kept = planner_service_pb2.KeptPlan(request=request, plan=answer, answered_at=answered_at)
        path = self._path_of(request)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(8)}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(json.dumps(messages.to_dict(kept), ensure_ascii=False, indent=2) + "\n", "utf-8")
            os.replace(unfinished, path)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()

    def find(self, request: plan_pb2.PlanRequest) -> planner_service_pb2.KeptPlan | None:
        """What was answered to the same question; None where nothing was, or the file is damaged."""
        kept = planner_service_pb2.KeptPlan()
        try:
            messages.read(kept, json.loads(self._path_of(request).read_text("utf-8")))
        except (OSError, ValueError, RecursionError, InvalidInput):
            return None
        # Two questions may have one digest.
        same = messages.compact_json(kept.request) == messages.compact_json(request)
        return kept if same else None

    def _path_of(self, request: plan_pb2.PlanRequest) -> Path:
        return self._folder / f"{_digest(messages.compact_json(request)):016x}.json"


def now_text() -> str:
    """This moment as RFC 3339 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _digest(text: str) -> int:
    state = 0xCBF29CE484222325  # FNV-1a, as models/fnv1a.h.
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return state
