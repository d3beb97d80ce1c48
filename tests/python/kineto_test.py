"""moeplan import kineto: a trace of a PyTorch job beside what moeplan.torch.capture makes of the same model."""

import gzip
import json

import pytest

torch = pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")

from conftest import run_moeplan  # noqa: E402
from ranks import run_ranks  # noqa: E402


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kineto")
    run_ranks(folder, 2, "traced", program="kineto_ranks", gpus_per_node=2, folder=str(folder))
    return folder


def imported(job, *options):
    return json.loads(run_moeplan("import", "kineto", job / "0.json", "--ranks-per-node", 2, "--json", *options).stdout)


def exchanges(graph):
    return sorted((one["phase"], one["bytes"]) for one in graph["instructions"] if one["op"] == "ALL_TO_ALL")


def test_the_exchanges_are_those_that_capture_finds(job):
    known = json.loads((job / "graph.json").read_text())
    found = exchanges(imported(job))
    assert len(found) == 8  # Two layers, there and back, in both passes.
    assert found == exchanges(known)


def test_the_weight_gradients_are_those_that_capture_finds(job):
    shapes = json.loads((job / "shapes.json").read_text())
    known = json.loads((job / "graph.json").read_text())["instructions"]
    weights = {one["id"]: [tensor[2:-1] for tensor in one["inputs"] if tensor.startswith("w(")] for one in known}
    expected = sorted(
        shapes[name]
        for one in known
        if one.get("weightGradient")
        for name in weights[one["id"][: -len(".dw")]]
        if len(shapes[name]) > 1 and name != "tokens.weight"  # An embedding's gradient is no product.
    )
    ids = [one["id"] for one in imported(job)["instructions"] if one["weightGradient"]]
    assert sorted([int(size) for size in one.rpartition(".")[2].split("x")] for one in ids) == expected


def test_the_given_order_takes_what_the_step_took(job):
    trace = json.loads((job / "0.json").read_text())
    step = [one for one in trace["traceEvents"] if one["name"] == "ProfilerStep#1"][0]
    graph = job / "imported.json"
    graph.write_text(json.dumps(imported(job)))
    plan = json.loads(run_moeplan("plan", "--graph", graph, "--json").stdout)["rules"]["lancet"]
    assert plan["unscheduledTimeS"] == pytest.approx(step["dur"] * 1e-6, rel=0.1)
    assert plan["timeS"] <= plan["unscheduledTimeS"] and plan["weightGradients"] and not plan["partitions"]


def test_a_packed_trace_and_another_step(job):
    packed = job / "0.json.gz"
    packed.write_bytes(gzip.compress((job / "0.json").read_bytes()))
    answer = run_moeplan("import", "kineto", packed, "--step", 0)
    assert answer.stderr.startswith("moeplan: ProfilerStep#0 (of 2 steps): ")
    assert "BACKWARD ALL_TO_ALL" in answer.stdout


def test_what_this_pytorch_exports_itself_is_refused(job, tmp_path):
    if torch.autograd.kineto_available():
        pytest.skip("this PyTorch has Kineto")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(2).sum()
    profile.export_chrome_trace(str(tmp_path / "own.json"))
    answer = run_moeplan("import", "kineto", tmp_path / "own.json", check=False)
    assert answer.returncode == 2 and "PyTorch without Kineto writes lists" in answer.stderr
