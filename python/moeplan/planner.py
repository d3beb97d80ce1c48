"""Asks a planner (`moeplan serve`), and keeps a training job going when it does not answer."""

from __future__ import annotations

import math
import os
import random
import threading
import time
import uuid
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping

from moeplan import messages
from moeplan.baseline import baseline_of, check_cluster
from moeplan.connection import Connection, Stream
from moeplan.errors import Error, Infeasible, InvalidInput, PlannerError, mismatch
from moeplan.kept import KeptPlans, default_folder, now_text
from moeplan.v1 import cluster_pb2, plan_pb2, planner_service_pb2, workload_pb2

# What the deadline leaves for looking up a kept plan: at most so long, and at most this share.
_SPARE_S = 0.05
_SPARE_SHARE = 0.1
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True)
class Answer:
    """A plan and where it comes from. A value.

    ``best`` is the plan to run, one of docs/contract.md's; empty where no plan could be priced and only the papers'
    rules answered, which does not happen with ``cluster``.
    ``response`` is the whole PlanResponse. ``origin`` is "PLANNER" (answered just now), "KEPT" (what the planner last
    answered to the same question, at ``answered_at``) or "BASELINE" (by nobody: BASELINE_TP where ESP = MP, else
    BASELINE, without times). ``why`` says why the planner did not answer, or, of a watched plan, why it is better; else
    it is empty. ``answered_at`` is RFC 3339, empty for a baseline.
    """

    best: dict[str, Any]
    response: dict[str, Any]
    origin: str
    why: str = ""
    answered_at: str = ""
    _request: plan_pb2.PlanRequest | None = field(default=None, repr=False, compare=False)


class Planner:
    """One planner, by its address.

    ``address``: "HOST:PORT" of its gRPC. ``token``: what `moeplan token create` printed; None: MOEPLAN_TOKEN of the
    environment, where it is set. ``tls_ca``, ``tls_cert``, ``tls_key``: PEM files; without ``tls_ca`` there is no
    encryption, and a token travels to this machine alone. ``deadline_s``: seconds for connecting and the answer of each
    call together; every method takes another one as a keyword. ``cluster``: {"nodes", "gpusPerNode"} of the job.
    ``cache_dir``: the folder of kept plans; default with ``cluster``: $XDG_CACHE_HOME/moeplan or ~/.cache/moeplan.

    With ``cluster``, ``plan`` always has an answer within the deadline (see there). Without ``cluster`` and
    ``cache_dir`` nothing is kept, and trouble is raised.

    Requests are keyword arguments, named as the fields of the request in proto/moeplan/v1/planner_service.proto; what
    stands inside them, and every answer, is a dict in the JSON of docs/contract.md. Raises InvalidInput where the
    question is wrong, Infeasible where the answer is "no", PlannerError for anything else.

    Nothing is connected before the first call. Threads: any thread may call any method at the same time. Must not be
    used in a forked child once it has been asked. A context manager closes it.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:7070",
        token: str | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        deadline_s: float = 2.0,
        cluster: Mapping[str, Any] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        token = os.environ.get("MOEPLAN_TOKEN") if token is None else token
        self._connection = Connection(address, token, tls_ca, tls_cert, tls_key)
        self._deadline_s = _checked_deadline(deadline_s)
        self._cluster = None if cluster is None else _cluster_of(cluster)
        keeps = cluster is not None or cache_dir is not None
        self._kept = KeptPlans(Path(cache_dir) if cache_dir is not None else default_folder()) if keeps else None
        self._retry_after_s = 30.0
        self._clock: Callable[[], float] = time.monotonic
        self._lock = threading.Lock()
        self._failure: Error | None = None  # The last, while the planner is left alone.
        self._try_again = 0.0
        self._watches: weakref.WeakSet[PlanWatch] = weakref.WeakSet()

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends watches, calls in progress and the connection, which a later call opens again."""
        for watch in list(self._watches):
            watch.close()
        self._connection.close()

    def plan(
        self,
        workload: Mapping[str, Any],
        profile: str | Mapping[str, Any] | None = None,
        *,
        deadline_s: float | None = None,
        **fields: Any,
    ) -> Answer:
        """The plan of a workload. ``fields``: others of PlanRequest, such as ``extrapolate=True`` or ``view="BEST"``.

        ``workload``: the JSON of docs/contract.md. ``profile``: the name of a stored one (default: the newest of all),
        or a profile itself.

        Raises Infeasible where no plan fits the GPUs' memory. With ``cluster`` only that and InvalidInput are raised:
        the caller's own errors. Whatever else is wrong, a planner that could price no plan too, leads to the plan that
        was kept of the same question, or else to the baseline, never later than the deadline. A planner that failed is
        then left alone for half a minute, so that one that is away costs a job one deadline, not one for each layer.
        With ``cache_dir`` alone there is no baseline: where nothing was kept, what went wrong is raised.
        """
        request = _plan_request(workload, profile, fields)
        limit_s = self._limit(deadline_s)
        if self._kept is None:
            response = _unless_infeasible(self._connection.call("Plan", request, limit_s))
            return _answer(response, "PLANNER", "", now_text(), request)
        try:
            spare_s = min(_SPARE_S, _SPARE_SHARE * limit_s)
            response = _unless_infeasible(self._ask_unless_left_alone(request, limit_s - spare_s))
            if not response.HasField("best"):
                raise PlannerError(response.explanation or "the planner could price no plan", "NOT_FOUND")
        except PlannerError as failure:
            return self._without_planner(request, failure)
        answered_at = now_text()
        self._kept.keep(request, response, answered_at)
        return _answer(response, "PLANNER", "", answered_at, request)

    def step(self, *, deadline_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """One training step of a model in one layout: StepRequest's fields in, StepResponse out.

        For example ``step(model_name="mixtral-8x7b", hardware="h100-sxm", gpus=64, global_batch=256,
        sequence_length=4096, layout={"expertParallel": 8})``; the step is ``["result"]["stepTimeS"]``, in seconds.
        """
        return self._call("Step", planner_service_pb2.StepRequest(), fields, deadline_s)

    def layouts(self, *, deadline_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """The layouts of a model, best first: RankLayoutsRequest's fields in, RankLayoutsResponse out."""
        return self._call("RankLayouts", planner_service_pb2.RankLayoutsRequest(), fields, deadline_s)

    def what_if(self, *, deadline_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """The best plan at every point of a grid: SweepRequest's fields in, SweepResponse out.

        For example ``what_if(workload=workload, axes=["layer.sequenceLength=4096,8192"])``.
        """
        return self._call("Sweep", planner_service_pb2.SweepRequest(), fields, deadline_s)

    def advise(self, *, deadline_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """What to set for a training job: AdviseRequest's fields in, AdviseResponse out.

        ``mine`` is text: the settings of the launch script, or a layout as JSON. Takes seconds, so give it a
        ``deadline_s``.
        """
        return self._call("Advise", planner_service_pb2.AdviseRequest(), fields, deadline_s)

    def dispatchers(self, *, deadline_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """Which dispatcher is the fastest, along one axis: CompareDispatchersRequest's fields in, its Response out."""
        return self._call("CompareDispatchers", planner_service_pb2.CompareDispatchersRequest(), fields, deadline_s)

    def named(self, *, deadline_s: float | None = None) -> dict[str, Any]:
        """The models, the hardware and the training systems that requests may name: {"models", "hardware",
        "targets"}."""
        return self._call("ListNamed", planner_service_pb2.ListNamedRequest(), {}, deadline_s)

    def import_model(self, model: Mapping[str, Any], *, deadline_s: float | None = None) -> dict[str, Any]:
        """The MoE layer of a Hugging Face config.json: {"workload", "layers", "moeLayers", "routerNote"}; no workload of a
        dense model. ``routerNote``: what of the model's router the workload does not say; empty where it says all.

        The workload has the layer with its router, no capacity factor, a batch of 1 and no layout: change what is another
        in the job, and give it to ``plan``. A config of transformers is ``json.loads(config.to_json_string(use_diff=False))``.
        """
        return self._call("ImportModel", planner_service_pb2.ImportModelRequest(), {"model": model}, deadline_s)

    def report_run(self, report: Mapping[str, Any], *, deadline_s: float | None = None) -> dict[str, Any]:
        """Tells how a plan ran: {"plan": answer.response, "ranks": [{"rank", "timeline"}]} in, ReportRunResponse out.

        A ``requestId`` of its own makes a report safe to repeat in another process; without, it gets a new one.
        """
        request = planner_service_pb2.ReportRunRequest()
        messages.read(request, report)
        request.request_id = request.request_id or uuid.uuid4().hex
        return messages.to_dict(self._connection.call("ReportRun", request, self._limit(deadline_s)))

    def watch(self, answer: Answer, *, min_gain: float | None = None) -> PlanWatch:
        """Better plans than ``answer``, as they come: an iterator of Answers that waits for the next.

        ``min_gain``: how much less time another plan must take to be told, as a share; default 0.05.
        """
        watch = PlanWatch(self._connection, answer, min_gain)
        self._watches.add(watch)
        return watch

    def _call(self, method: str, request: Any, fields: Mapping[str, Any], deadline_s: float | None) -> dict[str, Any]:
        messages.read_fields(request, fields)
        return messages.to_dict(self._connection.call(method, request, self._limit(deadline_s)))

    def _limit(self, deadline_s: float | None) -> float:
        return self._deadline_s if deadline_s is None else _checked_deadline(deadline_s)

    def _ask_unless_left_alone(self, request: plan_pb2.PlanRequest, limit_s: float) -> plan_pb2.PlanResponse:
        """Raises PlannerError for whatever is not the question's fault."""
        began = self._clock()
        with self._lock:
            if self._failure is not None and began < self._try_again:
                raise PlannerError(str(self._failure), self._failure.code)
        try:
            response = self._ask(request, limit_s)
        except PlannerError as failure:
            with self._lock:
                self._failure, self._try_again = failure, began + self._retry_after_s
            raise
        with self._lock:
            self._failure = None
        return response

    def _ask(self, request: plan_pb2.PlanRequest, limit_s: float) -> plan_pb2.PlanResponse:
        try:
            self._connection.open()
        except Error as failure:
            # A wrong address or certificate is no fault of the question: the job goes on without its planner.
            raise PlannerError(str(failure), "UNAVAILABLE") from None
        return self._connection.call("Plan", request, limit_s)

    def _without_planner(self, request: plan_pb2.PlanRequest, failure: PlannerError) -> Answer:
        assert self._kept is not None
        kept = self._kept.find(request)
        if kept is not None:
            return _answer(kept.plan, "KEPT", str(failure), kept.answered_at, request)
        if self._cluster is None:
            raise failure
        return _answer(baseline_of(request.workload, self._cluster), "BASELINE", str(failure), "", request)


class PlanWatch:
    """Better plans than the one that is held: an iterator that waits for the next (PlannerService.WatchPlan).

    A connection that breaks is opened again, after a pause that doubles up to half a minute, with the plan that is
    held: what was decided meanwhile is told then, once. Iterating raises InvalidInput, Infeasible or PlannerError
    ("PERMISSION_DENIED", "UNAUTHENTICATED") where the planner refuses; it ends after ``close``, which any thread may
    call. A context manager closes it.
    """

    def __init__(self, connection: Connection, answer: Answer, min_gain: float | None) -> None:
        if answer._request is None:
            raise mismatch("answer", "one that no Planner gave", "what Planner.plan returned")
        self._connection = connection
        self._request = planner_service_pb2.WatchPlanRequest(request=answer._request)
        held = plan_pb2.PlanResponse()
        messages.read(held, answer.response)
        if answer.best:
            self._hold(held)
        if min_gain is not None:
            self._request.min_gain = min_gain
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._pause_s = 1.0

    def __iter__(self) -> PlanWatch:
        return self

    def __next__(self) -> Answer:
        while not self._closed.is_set():
            response = self._next()
            if response is not None:
                self._pause_s = 1.0
                self._hold(response.plan)
                return _answer(response.plan, "PLANNER", response.why, now_text(), self._request.request)
            # Not all jobs at once when a planner comes back.
            self._closed.wait(self._pause_s * random.uniform(0.5, 1))
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        raise StopIteration

    def __enter__(self) -> PlanWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch, also while another thread waits for the next plan."""
        self._closed.set()
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()

    def _next(self) -> Any | None:
        """The next answer; None where the connection is over. Raises what asking again does not mend."""
        stream = self._opened()
        try:
            response = stream.next()
        except Error as failure:
            refused = failure.code in ("PERMISSION_DENIED", "UNAUTHENTICATED")
            if not self._closed.is_set() and (refused or isinstance(failure, (InvalidInput, Infeasible))):
                self._stream = None
                raise
            response = None
        if response is None:
            self._stream = None
        return response

    def _opened(self) -> Stream:
        with self._lock:
            if self._stream is None:
                self._stream = self._connection.stream("WatchPlan", self._request)
                if self._closed.is_set():
                    self._stream.cancel()
            return self._stream

    def _hold(self, plan: plan_pb2.PlanResponse) -> None:
        """Remembers what counts of a plan that runs; a planner takes 256 KiB of it."""
        self._request.held.CopyFrom(
            plan_pb2.PlanResponse(
                workload=plan.workload,
                profile_name=plan.profile_name,
                profile_version=plan.profile_version,
                best=plan.best,
            )
        )
        self._request.held.best.ClearField("timeline")


def _unless_infeasible(response: plan_pb2.PlanResponse) -> plan_pb2.PlanResponse:
    """Raises Infeasible where plans were priced and none fits, as `moeplan plan` then exits with 1."""
    if not response.HasField("best") and response.search.evaluated > 0:
        raise Infeasible(response.explanation or "no plan fits the memory of a GPU")
    return response


def _answer(
    response: plan_pb2.PlanResponse, origin: str, why: str, answered_at: str, request: plan_pb2.PlanRequest
) -> Answer:
    whole = messages.to_dict(response)
    return Answer(whole.get("best", {}), whole, origin, why, answered_at, request)


def _plan_request(workload: Any, profile: Any, fields: Mapping[str, Any]) -> plan_pb2.PlanRequest:
    request = plan_pb2.PlanRequest()
    messages.read_fields(request, fields)
    # Errors have the path inside the workload, as the planner's.
    asked = workload_pb2.Workload()
    messages.read(asked, workload)
    request.workload.CopyFrom(asked)
    if isinstance(profile, str):
        request.profile_name = profile
    elif profile is not None:
        messages.read(request, {"profile": profile})
    return request


def _checked_deadline(deadline_s: float) -> float:
    if not (math.isfinite(deadline_s) and deadline_s > 0):
        raise mismatch("deadline_s", f"{deadline_s} s", "a finite time above 0")
    return deadline_s


def _cluster_of(cluster: Mapping[str, Any]) -> cluster_pb2.Cluster:
    message = cluster_pb2.Cluster()
    messages.read(message, cluster, "cluster")
    check_cluster(message, "cluster")
    return message
