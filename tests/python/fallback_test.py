"""What a job gets from a planner that is away, slow or broken: what the C++ client gives, and within the deadline."""

import copy
import json
import os
import subprocess
import threading
import time
from concurrent import futures

import grpc
import pytest
from conftest import CLUSTER, example

import moeplan
from moeplan.v1 import plan_pb2

NOBODY = "127.0.0.1:1"
TWO_BY_EIGHT = {"nodes": 2, "gpusPerNode": 8}
SMALL = {
    "batch": 1,
    "sequenceLength": 1024,
    "modelDim": 256,
    "hiddenDim": 512,
    "experts": 8,
    "topK": 2,
    "capacityFactor": 1.25,
}


def job(address, folder, cluster=CLUSTER, **options):
    return moeplan.Planner(address, cluster=cluster, cache_dir=folder / "kept", **options)


# ---- The baseline.


def of(layout=None, layer=None, **fields):
    return {"layer": {**SMALL, **(layer or {})}, "layout": layout or {}, **fields}


SOUND = [
    of(),
    of({"tensorParallel": 2, "expertParallel": 2, "expertShardingParallel": 2}, name="both", minChunkBytes=16384),
    of({"tensorParallel": 4, "expertParallel": 2}),
    of({"expertShardingParallel": 8, "expertParallel": 2}, {"gate": "EXPERT_CHOICE"}),
    of({"contextParallel": 2, "pipelineParallel": 2, "dataParallel": 4}, {"expertMatrices": 3, "bytesPerElement": 4}),
    of({"expertParallel": 8}, routing={"tokensPerExpert": [1, 2, 3, 4, 5, 6, 7, 0.5]}, phase="TRAINING", zeroStage=0),
    of({"expertParallel": 8}, routing={"skew": 0}, maxChunks=65536, recompute="FULL", sequenceParallel=True),
    of(gradientBytes=1048576, phase="BACKWARD", dispatchCodec="FP8", allowLossy=True, capacityPassing="PADDED"),
    of(gradientBytes=0),
    of({"expertParallel": 8}, {"capacityFactor": 0, "receiveFactor": 1.5}),
    of(layer={"sharedHiddenDim": 64, "auxLossCoefficient": 0.01, "zLossCoefficient": 1e-3, "expertBias": True}),
]
SOUND += [
    of({"expertParallel": 8}, {"topK": 1, "router": {"scoreFunction": "SIGMOID", "rawWeights": True, "weighsInput": True}}),
    of(layer={"router": {"scoreFunction": "SIGMOID", "correctionBias": True, "expertGroups": 4, "groupsPerToken": 2}}),
    of(layer={"router": {"weightScale": 2.5, "bias": True}, "expertMatrices": 3, "swigluLimit": 7}),
    of(layer={"router": {}}),
    of(layer={"router": {"weightScale": 1, "expertGroups": 2}}),
]
WRONG = [
    {},
    of(layer={"gate": "HASH", "router": {"bias": True}}),
    of(layer={"router": {"weightScale": 0}}),
    of(layer={"router": {"correctionBias": True}}),
    of(layer={"router": {"weighsInput": True}}),
    of(layer={"router": {"expertGroups": 3}}),
    of(layer={"router": {"expertGroups": 8, "groupsPerToken": 1}}),
    of(layer={"router": {"expertGroups": 8, "groupsPerToken": 4, "scoreFunction": "SIGMOID", "correctionBias": True}}),
    of(layer={"swigluLimit": 7}),
    of(layer={"swigluLimit": -1, "expertMatrices": 3}),
    of(layer={"topK": -1}),
    of(layer={"topK": 9}),
    of(layer={"topK": 2, "gate": "SWITCH"}),
    of(layer={"batch": 0}),
    of(layer={"capacityFactor": -0.5}),
    of(layer={"capacityFactor": 0, "gate": "EXPERT_CHOICE"}),
    of(layer={"capacityFactor": 0}, capacityPassing="PADDED"),
    of(layer={"receiveFactor": 2}),
    of(layer={"capacityFactor": 0, "receiveFactor": 0.5}),
    of(layer={"bytesPerElement": 3}),
    of(layer={"expertMatrices": 4}),
    of(layer={"sharedHiddenDim": -1}),
    of({"tensorParallel": 2}, {"sharedHiddenDim": 1}),
    of(layer={"auxLossCoefficient": -0.5}),
    of({"tensorParallel": 0}),
    of({"tensorParallel": 3}),
    of({"tensorParallel": 32}),
    of({"dataParallel": 0}),
    of({"dataParallel": 3}),
    of({"expertParallel": 3}),
    of({"expertParallel": 16}),
    of({"expertParallel": 16, "pipelineParallel": 2}),
    of({"contextParallel": 16}, {"sequenceLength": 1000}),
    of(minChunkBytes=0),
    of(minChunkBytes=-1.5e-9),
    of(maxChunks=0),
    of(maxPartitionDegree=65537),
    of(zeroStage=4),
    of(gradientBytes=8),
    of(gradientBytes=3, phase="TRAINING"),
    of(gradientBytes=2e15, phase="TRAINING"),
    of(gradientBytes=-1, phase="TRAINING"),
    of(routing={}),
    of(routing={"skew": 1, "tokensPerExpert": [1] * 8}),
    of(routing={"skew": -1}),
    of(routing={"tokensPerExpert": [1]}),
    of(routing={"tokensPerExpert": [0] * 8}),
    of(routing={"tokensPerExpert": [1] * 7 + [-1e-7]}),
    of(layer={"gate": "EXPERT_CHOICE"}, routing={"skew": 1}),
    of(layer={"experts": 65537}, routing={"skew": 1}),
    of(layer={"batch": 1 << 20, "sequenceLength": 1 << 20}),
]


def ask_cpp(address, cluster, folder, requests):
    program = os.environ.get("MOEPLAN_JOB_PLANNER")
    if not program:
        pytest.skip("MOEPLAN_JOB_PLANNER names no job_planner_program to compare with")
    command = [program, address, str(cluster["nodes"]), str(cluster["gpusPerNode"]), str(folder)]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_baseline_is_the_cpp_clients(tmp_path):
    # Odd node counts, and a single GPU, too.
    for cluster in (TWO_BY_EIGHT, {"nodes": 16, "gpusPerNode": 1}):
        asked = ask_cpp(NOBODY, cluster, tmp_path / "cpp", [{"workload": workload} for workload in SOUND])
        for workload, expected in zip(SOUND, asked):
            try:
                answer = job(NOBODY, tmp_path, cluster).plan(workload)
            except moeplan.InvalidInput as refused:
                assert str(refused) == expected["error"]
                continue
            assert (answer.origin, expected["origin"]) == ("BASELINE", "BASELINE"), workload
            assert answer.response == expected["response"]
            assert answer.best["schedule"] in ("BASELINE", "BASELINE_TP") and answer.answered_at == ""


def test_baselines_of_both_families(tmp_path):
    with job(NOBODY, tmp_path, TWO_BY_EIGHT) as planner:
        assert planner.plan(SOUND[1]).best["schedule"] == "BASELINE_TP"
        assert planner.plan(SOUND[2]).best["schedule"] == "BASELINE"
        resolved = planner.plan(SOUND[2]).response["workload"]
    assert resolved["layout"]["dataParallel"] == 4, "16 ranks over TP 4"
    assert (resolved["minChunkBytes"], resolved["maxChunks"], resolved["layer"]["bytesPerElement"]) == (1048576, 64, 2)


def test_a_wrong_question_is_the_same_error_with_cpp_and_without_a_planner(tmp_path):
    asked = ask_cpp(NOBODY, TWO_BY_EIGHT, tmp_path / "cpp", [{"workload": workload} for workload in WRONG])
    with job(NOBODY, tmp_path, TWO_BY_EIGHT) as planner:
        for workload, expected in zip(WRONG, asked):
            assert expected.get("code") == "INVALID_INPUT", (workload, expected)
            with pytest.raises(moeplan.InvalidInput) as refused:
                planner.plan(workload)
            assert str(refused.value) == expected["error"]


def test_a_wrong_question_is_the_same_error_with_a_planner(server, tmp_path):
    workload = example("mixtral-across-nodes.json")
    workload["layer"]["topK"] = -1
    with job(server.address, tmp_path) as planner, pytest.raises(moeplan.InvalidInput) as refused:
        planner.plan(workload)
    assert (refused.value.field, refused.value.found) == ("layer.topK", "-1")
    with job(NOBODY, tmp_path) as planner, pytest.raises(moeplan.InvalidInput) as without:
        planner.plan(workload)
    assert vars(without.value) == vars(refused.value)


def test_a_cluster_that_is_none_is_refused_at_once():
    for cluster, field in (({"nodes": 2}, "cluster.gpusPerNode"), ({"nodes": 2, "gpus": 8}, "cluster.gpus")):
        with pytest.raises(moeplan.InvalidInput) as refused:
            moeplan.Planner(cluster=cluster)
        assert refused.value.field == field


# ---- Kept plans.


def test_without_the_planner_the_kept_plan_is_used_and_without_that_the_baseline(serve, tmp_path, workload):
    server = serve()
    with job(server.address, tmp_path, deadline_s=10) as planner:
        asked = planner.plan(workload)
        assert asked.origin == "PLANNER"
        server.stop()
        kept = planner.plan(workload)
        assert (kept.origin, kept.response, kept.answered_at) == ("KEPT", asked.response, asked.answered_at)
        assert f"no planner answers at {server.address}" in kept.why
        other = copy.deepcopy(workload)
        other["layer"]["batch"] = 2
        assert planner.plan(other).origin == "BASELINE"
        # Another profile is another question, and so is another view.
        assert planner.plan(workload, "west").origin == "BASELINE"
        assert planner.plan(workload, view="BEST").origin == "BASELINE"
    with job(server.address, tmp_path) as another_job:
        assert another_job.plan(workload).origin == "KEPT"
    # Without a cluster what was kept still helps, and what was not does not.
    with moeplan.Planner(server.address, cache_dir=tmp_path / "kept") as planner:
        assert planner.plan(workload).origin == "KEPT"
        with pytest.raises(moeplan.PlannerError):
            planner.plan(other)
    with moeplan.Planner(server.address) as planner, pytest.raises(moeplan.PlannerError) as away:
        planner.plan(workload)
    assert away.value.code == "UNAVAILABLE"


def test_kept_plans_are_the_cpp_clients(serve, tmp_path, workload):
    server = serve()
    other = copy.deepcopy(workload)
    other["layer"].update(capacityFactor=1.0000001, batch=3)
    other["name"] = 'a "name", an ö and a\ttab'
    ask_cpp(server.address, CLUSTER, tmp_path / "kept", [{"workload": workload}])
    with job(server.address, tmp_path, deadline_s=10) as planner:
        answer = planner.plan(other, view="BEST", extrapolate=True, top=3)
    server.stop()
    assert len(list((tmp_path / "kept").iterdir())) == 2
    with job(server.address, tmp_path) as planner:
        assert planner.plan(workload).origin == "KEPT"
    asked = {"workload": other, "view": "BEST", "extrapolate": True, "top": 3}
    (kept,) = ask_cpp(server.address, CLUSTER, tmp_path / "kept", [asked])
    assert (kept["origin"], kept["response"], kept["answeredAt"]) == ("KEPT", answer.response, answer.answered_at)


def test_by_default_plans_are_kept_in_the_users_cache(server, tmp_path, workload, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with moeplan.Planner(server.address, cluster=CLUSTER, deadline_s=10) as planner:
        planner.plan(workload)
    assert len(list((tmp_path / "cache" / "moeplan").glob("*.json"))) == 1
    with moeplan.Planner(server.address, deadline_s=10) as planner:
        planner.plan({**workload, "name": "not kept"})
    assert len(list((tmp_path / "cache" / "moeplan").iterdir())) == 1


def test_a_damaged_file_is_no_plan_and_a_folder_that_cannot_be_is_no_trouble(server, tmp_path, workload):
    with job(server.address, tmp_path, deadline_s=10) as planner:
        planner.plan(workload)
    (file,) = (tmp_path / "kept").iterdir()
    for damaged in ('{"request": {', "[]", "[" * 100_000, '{"request": {"topp": 1}}', "\udcff", "{}"):
        file.write_text(damaged, errors="surrogateescape")
        with job(NOBODY, tmp_path) as planner:
            assert planner.plan(workload).origin == "BASELINE", damaged[:20]
    (tmp_path / "a file").write_text("")
    for folder in ("/proc/no/such", tmp_path / "a file"):
        with moeplan.Planner(server.address, cluster=CLUSTER, cache_dir=folder, deadline_s=10) as planner:
            assert planner.plan(workload).origin == "PLANNER"


def test_after_a_failure_the_planner_is_left_alone_for_a_while_and_then_asked(serve, tmp_path, workload):
    server = serve()
    server.stop()
    now = [1000.0]
    with job(server.address, tmp_path, deadline_s=10) as planner:
        planner._clock = lambda: now[0]
        assert planner.plan(workload).origin == "BASELINE"
        serve(profile=False, grpc=server.address)
        now[0] += 29.9
        left_alone = planner.plan(workload)
        assert left_alone.origin == "BASELINE" and "no planner answers" in left_alone.why
        now[0] += 0.1
        assert planner.plan(workload).origin == "PLANNER"


# ---- Planners that are no good.


def test_a_planner_that_accepts_and_never_answers_costs_one_deadline(mute, tmp_path, workload):
    address, accepted = mute
    with job(address, tmp_path, deadline_s=0.5) as planner:
        began = time.monotonic()
        answer = planner.plan(workload)
        took_s = time.monotonic() - began
        assert answer.origin == "BASELINE" and "did not answer within" in answer.why
        assert 0.3 < took_s < 0.5
        assert accepted
        began = time.monotonic()
        assert {planner.plan(workload).origin for _ in range(20)} == {"BASELINE"}
        assert time.monotonic() - began < 0.5, "twenty deadlines would be ten seconds"
    with moeplan.Planner(address, deadline_s=0.3) as planner, pytest.raises(moeplan.PlannerError) as late:
        planner.plan(workload)
    assert late.value.code == "DEADLINE_EXCEEDED"


def test_threads_that_ask_at_once_wait_one_deadline_each_and_not_in_turn(mute, tmp_path, workload):
    origins = []
    with job(mute[0], tmp_path, deadline_s=0.5) as planner:
        threads = [threading.Thread(target=lambda: origins.append(planner.plan(workload).origin)) for _ in range(8)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert origins == ["BASELINE"] * 8
    assert time.monotonic() - began < 1.5


class Fake(grpc.GenericRpcHandler):
    """Answers every method with what `answer(context)` gives, as bytes."""

    def __init__(self, answer):
        self._answer = answer

    def service(self, _):
        return grpc.unary_unary_rpc_method_handler(lambda _, context: self._answer(context))


@pytest.fixture
def fake():
    """Starts a server that speaks gRPC and is no planner; gives its address."""
    started = []

    def start(answer):
        server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Fake(answer)])
        started.append(server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return f"127.0.0.1:{port}"

    yield start
    for server in started:
        server.stop(None)


def test_a_planner_that_takes_the_call_and_never_answers(fake, tmp_path, workload):
    ended = threading.Event()
    address = fake(lambda _: ended.wait(5) and b"" or b"")
    with job(address, tmp_path, deadline_s=0.5) as planner:
        began = time.monotonic()
        assert planner.plan(workload).origin == "BASELINE"
        assert time.monotonic() - began < 0.5
    ended.set()


def abort(code, *trailer):
    def answer(context):
        context.set_trailing_metadata(trailer)
        context.abort(code, "no")

    return answer


@pytest.mark.parametrize(
    "answer, code",
    [
        (lambda _: b"\xff\xff\xff", "INTERNAL"),
        (abort(grpc.StatusCode.UNIMPLEMENTED), "UNIMPLEMENTED"),
        (abort(grpc.StatusCode.INTERNAL), "INTERNAL"),
        # Not a planner's words: another server, or a proxy, says so of a request that may be sound.
        (abort(grpc.StatusCode.INVALID_ARGUMENT), "INVALID_ARGUMENT"),
        (abort(grpc.StatusCode.FAILED_PRECONDITION), "FAILED_PRECONDITION"),
        (abort(grpc.StatusCode.RESOURCE_EXHAUSTED, ("moeplan-planner", "1")), "RESOURCE_EXHAUSTED"),
        (
            abort(grpc.StatusCode.ABORTED, ("moeplan-planner", "1"), ("grpc-status-details-bin", b"\xff\xff")),
            "ABORTED",
        ),
    ],
)
def test_a_broken_planner_leads_to_the_baseline(fake, tmp_path, workload, answer, code):
    address = fake(answer)
    with job(address, tmp_path) as planner:
        assert planner.plan(workload).origin == "BASELINE"
    with moeplan.Planner(address) as planner, pytest.raises(moeplan.PlannerError) as error:
        planner.plan(workload)
    assert error.value.code == code


def test_a_planner_that_could_price_no_plan_leads_to_the_baseline(fake, server, tmp_path, workload):
    rules_only = plan_pb2.PlanResponse(explanation="No candidate could be priced: BASELINE: the profile lacks ...")
    with job(fake(lambda _: rules_only.SerializeToString()), tmp_path) as planner:
        answer = planner.plan(workload)
        assert (answer.origin, answer.why) == ("BASELINE", rules_only.explanation)
    unfit = plan_pb2.PlanResponse(explanation="No candidate fits")
    unfit.search.evaluated = 3
    with job(fake(lambda _: unfit.SerializeToString()), tmp_path) as planner, pytest.raises(moeplan.Infeasible):
        planner.plan(workload)
    with job(server.address, tmp_path, deadline_s=10) as planner:
        answer = planner.plan(workload, "nobody")
        assert answer.origin == "BASELINE" and "no profile named 'nobody'" in answer.why


def test_a_server_that_speaks_something_else_leads_to_the_baseline(tmp_path, workload):
    import http.server

    web = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    web.RequestHandlerClass.log_message = lambda *_: None
    threading.Thread(target=web.serve_forever, daemon=True).start()
    began = time.monotonic()
    with job(f"127.0.0.1:{web.server_port}", tmp_path) as planner:
        assert planner.plan(workload).origin == "BASELINE"
    assert time.monotonic() - began < 2
    web.shutdown()
    web.server_close()


def test_options_that_are_wrong_stop_no_job(tmp_path, workload):
    (tmp_path / "bad.pem").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    cases = [
        ({"tls_ca": "/no/such/ca.pem"}, "tls_ca: found /no/such/ca.pem"),
        ({"tls_ca": tmp_path / "bad.pem"}, "no planner answers"),
        ({"tls_cert": tmp_path / "bad.pem"}, "tls_cert, tls_key"),
        ({"token": "two words"}, "token"),
        ({"address": "nonsense"}, "planner: found 'nonsense', expected HOST:PORT"),
        ({"address": "no.such.host.invalid:7070"}, "no planner answers"),
        ({"address": "192.0.2.1:7070", "token": "secret"}, "without TLS, where others can read it"),
    ]
    for options, why in cases:
        with moeplan.Planner(**{"address": NOBODY, **options}, cluster=CLUSTER, cache_dir=tmp_path / "kept") as planner:
            answer = planner.plan(workload)
            assert answer.origin == "BASELINE" and why in answer.why, (options, answer.why)
    for options, field in ({"tls_ca": "/none"}, "tls_ca"), ({"address": "x:y"}, "planner"), ({"token": " "}, "token"):
        planner = moeplan.Planner(**{"address": NOBODY, **options})
        with pytest.raises(moeplan.InvalidInput) as refused:
            planner.named()
        assert refused.value.field == field


def test_a_forked_child_goes_on_without_the_planner(server, tmp_path, workload):
    with job(server.address, tmp_path, deadline_s=10) as planner:
        assert planner.plan(workload).origin == "PLANNER"
        child = os.fork()
        if child == 0:
            try:
                answer = planner.plan(workload)
                fine = answer.origin == "KEPT" and "fork" in answer.why
            finally:
                os._exit(0 if fine else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert planner.plan(workload).origin == "PLANNER"
