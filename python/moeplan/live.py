"""Tells a training job that runs what it would gain by other settings.

Some the job can change while it runs; the others are for its next start.
"""

from __future__ import annotations

import bisect
import json
import logging
import math
import shlex
import statistics
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

from moeplan import messages
from moeplan.errors import Infeasible, PlannerError, mismatch
from moeplan.planner import Planner
from moeplan.v1 import planner_service_pb2

_LOG = logging.getLogger("moeplan")
_MOST_STEPS = 512
_OUTLIER = 3.0  # Times the median.


@dataclass(frozen=True)
class Change:
    """One answer of the planner about a job that runs. A value.

    ``live``: what to change now: field of the layout -> (value now, value then). Only fields that the training system
    can change in a running job; empty where there are none, where nothing is gained, or where the gain is not sure
    (``gain_low`` <= 1).
    ``settings``: of the arguments that say the changed layout in the training system's own form, those that the job
    does not have yet, one token each; ``remove``: arguments that it has and must lose. Both empty without ``live``.
    ``gain``, ``gain_low``, ``gain_high``: how many times as long a step takes without the live change, with the 90 %
    interval; None where the training system can change nothing.
    ``predicted_s``: the planner's step of the layout that runs now, in seconds, times the software factor. The factor
    is measured over predicted step of the layout that ran *before* this one, at the answer that led to the change; so
    after ``StepWatch.applied`` this is a prediction that no step of the present layout went into. The first layout of
    a job has none before it: its factor is that of its own first answer, where predicted_s is therefore measured_s.
    ``measured_s``: the median step of the present layout, in seconds, that the planner was asked with.
    ``next_start``: the whole Advice for a restart (docs/contract.md, `advise`: layout, gain, export, ...); None where
    nothing fits.
    """

    live: dict[str, tuple[Any, Any]]
    settings: list[str]
    remove: list[str]
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    predicted_s: float
    measured_s: float
    next_start: dict[str, Any] | None
    _live_advice: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    _factor: float = field(default=1.0, repr=False, compare=False)  # Measured over predicted of the present layout.


@dataclass(frozen=True)
class _Question:
    layout: int  # How many changes were applied before it.
    mine: str
    arguments: list[str] | None
    measured_s: float


class StepWatch:
    """The callback that a training job calls with each step's seconds.

        watch = moeplan.StepWatch(planner, job={"model_name": "qwen3-30b-a3b", "hardware": "h100-sxm:8x8",
                                                "global_batch": 512, "sequence_length": 4096}, mine=FLAGS)
        change = watch.step(seconds)

    ``job``: fields of AdviseRequest that say the question: the model, its costs, GPUs, batch and sequence. ``mine``:
    what runs: settings of the training system ``to`` as text, or a layout (a dict, or its JSON). After the first
    ``warmup`` steps of each layout, every ``every`` steps that count the planner is asked twice: what to change of what
    can be changed live, and what a restart would gain. It is asked with the median of the steps since the last change
    (of the last 512 at most). A step of more than 3 times the median does not count, nor does what is no time above 0.

    The training loop never waits: a daemon thread asks, within ``deadline_s`` each time. A planner that does not answer
    is asked again after ``every`` more steps, but not before ``retry_after_s``; ``error`` then says why, and the log
    ("moeplan") once. Nothing of that reaches the loop. Raises InvalidInput when it is made, where ``job`` is wrong.

    One rank of a job has one; it tells the others. Any thread may call any method. A context manager ends it.
    """

    def __init__(
        self,
        planner: Planner,
        *,
        job: Mapping[str, Any],
        mine: str | Mapping[str, Any],
        to: str = "megatron",
        every: int = 20,
        warmup: int = 5,
        deadline_s: float = 60.0,
        retry_after_s: float = 30.0,
    ) -> None:
        if every < 1:
            raise mismatch("every", str(every), "at least 1 step")
        self._planner = planner
        self._job = {**job, "to": to}
        self._to, self._every, self._warmup = to, every, warmup
        self._deadline_s, self._retry_after_s = deadline_s, retry_after_s
        text = mine if isinstance(mine, str) else json.dumps(mine)
        messages.read_fields(planner_service_pb2.AdviseRequest(), {**self._job, "mine": text})

        self._lock = threading.Lock()
        self._mine = text
        self._arguments = None if text.lstrip().startswith("{") else _tokens(text)
        self._steps = _Steps(warmup)
        self._layout = 0
        self._factor: float | None = None
        self._promised_s: float | None = None  # What was predicted of the present layout before it ran.
        self._history: list[tuple[float, float]] = []
        self._asked_at = 0  # Steps that counted when the planner was last asked.
        self._asking = self._closed = False
        self._not_before = 0.0
        self._ready: Change | None = None
        self._live_fields: Sequence[str] | None = None  # None until the planner has told.
        self._clock: Callable[[], float] = time.monotonic
        self.error: Exception | None = None

    def step(self, seconds: float) -> Change | None:
        """Counts a step; returns a Change, once for each answer of the planner, or None. Never waits, never raises."""
        with self._lock:
            self._steps.add(seconds)
            change, self._ready = self._ready, None
            if not self._is_due():
                return change
            self._asking, self._asked_at = True, self._steps.counted
            question = _Question(self._layout, self._mine, self._arguments, self._steps.median_s())
        try:
            threading.Thread(target=self._ask, args=(question,), name="moeplan-step-watch", daemon=True).start()
        except RuntimeError as error:  # No more threads.
            self._failed(error)
        return change

    def applied(self, change: Change) -> None:
        """Tells that the job has made the live change: steps from now on are of the new layout.

        What was predicted of it is kept for ``history``. Raises InvalidInput for a change without ``live``.
        """
        advice = change._live_advice
        if not change.live or advice is None:
            raise mismatch("change", "nothing live", "a change whose live is not empty")
        with self._lock:
            self._history = self._listed()
            self._promised_s = change._factor * advice["step"]["stepTimeS"]
            self._factor = change._factor
            self._mine = json.dumps(advice["layout"])
            self._arguments = advice["export"]["layoutArguments"]
            self._steps = _Steps(self._warmup)
            self._layout += 1
            self._asked_at, self._ready = 0, None

    @property
    def history(self) -> list[tuple[float, float]]:
        """(predicted_s, measured_s) of each layout that a live change led to, as soon as ``every`` of its steps count:
        what was predicted of it when the change was applied, and the median of its steps (so far, for the last)."""
        with self._lock:
            return self._listed()

    def close(self) -> None:
        """Asks no more; what is being asked is dropped when it comes."""
        with self._lock:
            self._closed, self._ready = True, None

    def __enter__(self) -> StepWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_due(self) -> bool:
        waits = self._asking or self._closed or self._clock() < self._not_before
        return not waits and self._steps.counted - self._asked_at >= self._every

    def _listed(self) -> list[tuple[float, float]]:
        if self._promised_s is None or self._steps.counted < self._every:
            return list(self._history)
        return [*self._history, (self._promised_s, self._steps.median_s())]

    # ---- The thread that asks.

    def _ask(self, question: _Question) -> None:
        try:
            live, next_start = self._answers(question)
        except Exception as error:  # Whatever it is, the job goes on.
            self._failed(error)
            return
        with self._lock:
            self._asking, self.error = False, None
            if question.layout == self._layout and not self._closed:
                self._ready = self._change(question, live, next_start)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            known = self._closed or str(self.error) == str(error)
            self._asking, self.error = False, error
            self._not_before = self._clock() + self._retry_after_s
        if not known:
            _LOG.warning("the step watch has no answer, and tries again: %s", error)

    def _answers(self, question: _Question) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The advice for what can be changed live, and for a restart; None where nothing fits."""
        if self._live_fields is None:
            targets = self._planner.named(deadline_s=self._deadline_s)["targets"]
            self._live_fields = next((target["live"] for target in targets if target["name"] == self._to), ())
        live = self._advice(question, live_only=True) if self._live_fields else None
        next_start = self._advice(question)
        if live is None and next_start is None:
            raise PlannerError("no layout fits that the training system takes", "FAILED_PRECONDITION")
        return live, next_start

    def _advice(self, question: _Question, **more: Any) -> dict[str, Any] | None:
        asked = {**self._job, "mine": question.mine, "measured_step_s": question.measured_s, **more}
        try:
            result: dict[str, Any] = self._planner.advise(deadline_s=self._deadline_s, **asked)["result"]
        except Infeasible:
            return None
        return result

    def _change(
        self, question: _Question, live: dict[str, Any] | None, next_start: dict[str, Any] | None
    ) -> Change:
        mine_s: float = (live or next_start or {})["mine"]["step"]["stepTimeS"]
        factor = question.measured_s / mine_s
        if self._factor is None:
            self._factor = factor
        fields = self._changed_fields(live)
        return Change(
            live=fields,
            settings=_missing(live["export"]["layoutArguments"], question.arguments) if live and fields else [],
            remove=list(live["removeArguments"]) if live and fields else [],
            gain=live["gain"] if live else None,
            gain_low=live["gainLow"] if live else None,
            gain_high=live["gainHigh"] if live else None,
            predicted_s=self._factor * mine_s,
            measured_s=question.measured_s,
            next_start=next_start,
            _live_advice=live,
            _factor=factor,
        )

    def _changed_fields(self, live: dict[str, Any] | None) -> dict[str, tuple[Any, Any]]:
        if live is None or live["gainLow"] <= 1:
            return {}
        now, then = live["mine"]["layout"], live["layout"]
        return {
            name: (now.get(name), then.get(name))
            for name in self._live_fields or ()
            if now.get(name) != then.get(name)
        }


class _Steps:
    """The steps of one layout, in order of time and of length. Not thread-safe."""

    def __init__(self, warmup: int) -> None:
        self.counted = 0  # Of all, not only of those that are still held.
        self._warmup = warmup
        self._by_time: deque[float] = deque()
        self._by_length: list[float] = []

    def add(self, seconds: float) -> None:
        if self._warmup > 0:
            self._warmup -= 1
            return
        try:
            seconds = float(seconds)
        except (TypeError, ValueError, OverflowError):
            return
        if not (math.isfinite(seconds) and seconds > 0):
            return
        if len(self._by_time) == _MOST_STEPS:
            self._by_length.pop(bisect.bisect_left(self._by_length, self._by_time.popleft()))
        self._by_time.append(seconds)
        bisect.insort(self._by_length, seconds)
        if seconds <= _OUTLIER * statistics.median(self._by_length):
            self.counted += 1

    def median_s(self) -> float:
        """The median of the steps that are no outliers. Outliers are held, so that a job that has become slow for good
        is seen to be. Requires a step that counted."""
        sound = bisect.bisect_right(self._by_length, _OUTLIER * statistics.median(self._by_length))
        return statistics.median(self._by_length[:sound])


def _tokens(text: str) -> list[str] | None:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return None  # The planner will say what is wrong with it, or knows better.


def _groups(tokens: Sequence[str]) -> list[tuple[str, ...]]:
    """Flags with their values: ["--a", "1", "--b=2", "c=3"] is [("--a", "1"), ("--b", "2", "c=3")]."""
    groups: list[list[str]] = []
    for token in tokens:
        if token.startswith("--"):
            groups.append(token.split("=", 1))
        elif groups and groups[-1][0].startswith("--"):
            groups[-1].append(token)
        else:
            groups.append([token])
    return [tuple(group) for group in groups]


def _missing(wanted: Sequence[str], had: Sequence[str] | None) -> list[str]:
    """The wanted tokens whose flag is not there with the same value. All, where it is not known what is there."""
    there = set(_groups(had or ()))
    return [token for group in _groups(wanted) if group not in there for token in group]
