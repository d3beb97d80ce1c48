"""python/examples/train_moe_lm.py as docs/python.md runs it, shorter: what it learns, and whose links carry it.

`moeplan launch` starts what is about a launched job; what the options compute is run by ranks that stay (ranks.py).
"""

import os
import json
import re
import sys

import pytest
from conftest import SOURCE, Serve, run_moeplan
from ranks import run_ranks

pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")

EXAMPLE = SOURCE / "python" / "examples" / "train_moe_lm.py"
SMALL = ("--batch", 4, "--length", 64)
EMULATED = SOURCE / "deploy" / "examples" / "emulated.json"


def launch(ranks, *options, check=True):
    command = ("launch", "--local", ranks, "--", sys.executable, "-B", EXAMPLE, *SMALL, *options)
    return run_moeplan(*command, check=check, timeout=600)


def train(tmp_path, ranks, *options):
    """What rank 0 prints."""
    return run_ranks(tmp_path, ranks, "train", program="example_ranks", options=[str(one) for one in (*SMALL, *options)])[0]


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """What a calibration of four local ranks left, for the layer of the example."""
    folder = tmp_path_factory.mktemp("database")
    grid = folder / "grid.json"
    grid.write_text(launch(1, "--print", "grid").stdout.replace("[0] ", ""))
    run_moeplan("calibrate", "--local", 4, "--db", folder / "m.db", "--layouts", grid, "--budget", "4s")
    return folder


def test_a_planners_answers_run_as_their_timelines_say(database, tmp_path):
    workload = json.loads(train(tmp_path, 1, "--print", "workload"))
    answers = []
    for change in ({}, {"phase": "FORWARD"}, {"gradientBytes": 65536}):
        asked = tmp_path / "workload.json"
        asked.write_text(json.dumps({**workload, **change}))
        done = run_moeplan("plan", "--db", database / "m.db", "--workload", asked, "--extrapolate", "--json")
        answers.append(json.loads(done.stdout))
    assert any(task["task"].startswith("dense_gradients.") for task in answers[-1]["best"]["timeline"])
    kept = tmp_path / "answers.json"
    kept.write_text(json.dumps(answers))
    run_ranks(tmp_path, 4, "planned", gpus_per_node=4, file=str(kept))


def losses(tmp_path, ranks, *options):
    file = tmp_path / "losses.json"
    told = train(tmp_path, ranks, *options, "--record", file)
    return json.loads(file.read_text())["losses"], told


def checked(tmp_path, limit, *options):
    """The losses of two steps, in each of which plain PyTorch and every schedule agreed."""
    found, told = losses(tmp_path, 4, *options, "--steps", 2, "--check", 1, "--log", 2)
    apart = [float(text) for text in re.findall(r"plain PyTorch and 8 schedules agree within (\S+)", told)]
    assert len(apart) == 2 and max(apart) <= limit, told
    return found


@pytest.mark.parametrize(
    "options",
    [
        ["--tp", 1, "--plain-chunks", 3, "--accumulate", 2],
        ["--tp", 2, "--plain-chunks", 2, "--plain-receives-first", "--capacity-factor", 0],
    ],
)
def test_plain_pytorch_and_every_schedule_are_one_model(tmp_path, options):
    checked(tmp_path, 1e-5, "--layer", "baseline", *options)


def test_so_they_are_with_contexts_either_way(tmp_path):
    vertical, horizontal = (checked(tmp_path, 1e-5, "--cp", 2, "--cp-order", order) for order in ("vertical", "horizontal"))
    assert abs(vertical[0] - horizontal[0]) <= 1e-6  # They see the same text.


def test_contexts_see_whole_sequences(tmp_path):
    # Where no pair is dropped it does not matter whose tokens a source has.
    whole, halves = (losses(tmp_path, cp, "--cp", cp, "--ep", 1, "--capacity-factor", 0, "--steps", 2)[0] for cp in (1, 2))
    assert abs(whole[0] - halves[0]) <= 2e-6 and abs(whole[1] - halves[1]) <= 1e-4, (whole, halves)


def test_so_they_are_in_bf16(tmp_path):
    checked(tmp_path, 1e-2, "--layer", "baseline", "--tp", 2, "--dtype", "bfloat16")


# 200 steps of the first are the longer form (docs/python.md).
@pytest.mark.parametrize(
    ("dtype", "limit", "steps"),
    [("float32", 1e-3, int(os.environ.get("MOEPLAN_TEST_STEPS", "8"))), ("bfloat16", 1e-2, 8)],
)
def test_runs_of_their_own_learn_alike(tmp_path, dtype, limit, steps):
    job = ("--tp", 2, "--dtype", dtype)
    plan = tmp_path / "plan.json"
    best = {"schedule": "PIPELINE", "chunks": 1, "partitionDegree": 2}
    plan.write_text(json.dumps({"workload": json.loads(train(tmp_path, 1, *job, "--print", "workload")), "best": best}))
    curves = [
        losses(tmp_path, 4, *job, "--layer", layer, "--plan", plan, "--steps", steps)[0] for layer in ("plain", "planned")
    ]
    assert len(curves[0]) == steps and curves[0][-1] < curves[0][0]
    apart = max(abs(a - b) for a, b in zip(*curves))
    assert apart <= limit, apart


def test_micro_batches_beside_each_other_learn_the_same(tmp_path):
    # Dropless, with tensor-parallel exchanges of the job's own in both.
    options = ("--tp", 2, "--layer", "baseline", "--capacity-factor", 0, "--accumulate", 3, "--steps", 3)
    in_line, beside = (losses(tmp_path, 4, *options, *more)[0] for more in ((), ("--overlap",)))
    assert len(in_line) == 3 and max(abs(a - b) for a, b in zip(in_line, beside)) <= 1e-6, (in_line, beside)


def test_a_step_under_the_plan_of_its_graph_learns_the_same(tmp_path):
    options = ("--layer", "baseline", "--ep", 2, "--accumulate", 2)
    graph_file, plan_file = tmp_path / "graph.json", tmp_path / "plan.json"
    told = train(tmp_path, 2, *options, "--capture-after", 1, "--capture", graph_file)
    assert "instructions" in told, told
    graph = json.loads(graph_file.read_text())
    del graph["measuredSteps"]
    for one in graph["instructions"]:
        if one["op"] == "ALL_TO_ALL":  # Slow enough for every plan to hide them.
            one["timeS"] = 0.1
            if one["phase"] == "FORWARD":
                one["partTimesS"] = [0.1 / parts for parts in range(1, graph["maxParts"] + 1)]
    graph_file.write_text(json.dumps(graph))
    plan_file.write_text(run_moeplan("plan", "--graph", graph_file, "--json").stdout)
    plan = json.loads(plan_file.read_text())["rules"]["lancet"]
    assert plan["partitions"] and plan["weightGradients"], plan
    steps = (*options, "--steps", 2)
    plain = losses(tmp_path, 2, *steps)[0]
    for left_out in ((), ("weight-gradients",), ("partition",)):
        without = [word for name in left_out for word in ("--without", name)]
        found, told = losses(tmp_path, 2, *steps, "--lancet", plan_file, *without, "--check", 1)
        assert max(abs(a - b) for a, b in zip(plain, found)) <= 1e-5, (plain, found)
        apart = [float(text) for text in re.findall(r"plain PyTorch and 8 schedules agree within (\S+)", told)]
        assert len(apart) == 2 and max(apart) <= 1e-5, told


def test_a_planned_job_asks_reports_and_learns(database):
    server = Serve(database)
    try:
        options = ("--layer", "planned", "--planner", server.address, "--steps", 20, "--log", 10)
        done = launch(4, *options)
        reported = server.call("ListRuns", {})["runs"]
    finally:
        server.stop()
    assert done.stderr == "", done.stderr
    first, last = re.findall(r"loss (\S+), .* MoE layer \S+ ms \(\S+ predicted\)", done.stdout)
    assert float(last) < float(first), done.stdout
    assert len(reported) >= 1, reported


def test_the_shaped_links_carry_the_jobs_bytes(tmp_path):
    script = f'"$0" -B {EXAMPLE} --batch 4 --length 64 --layer plain --steps 3 && tc -s qdisc show dev nic'
    done = run_moeplan("launch", "--emulated", EMULATED, "--", "sh", "-c", script, sys.executable, check=False, timeout=240)
    if "needs root" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    sent = {int(rank): int(count) for rank, count in re.findall(r"\[(\d)\]  Sent (\d+) bytes", done.stdout)}
    # In each of three steps four ranks on two nodes sum what the dense layers have.
    dense = 4 * (256 * 128 + 64 * 128 + 4 * 4 * 128 * 128 + 2 * 2 * 128 * 512)
    assert set(sent) == {0, 1, 2, 3} and min(sent.values()) > dense and sum(sent.values()) > 12 * dense


def test_wrong_options_are_named():
    done = launch(2, "--layer", "planned", check=False)
    assert done.returncode != 0 and "found neither --plan nor --planner" in done.stderr, done.stderr
    done = launch(2, "--layer", "baseline", "--overlap", check=False)
    assert done.returncode != 0 and "--overlap: found one micro-batch" in done.stderr, done.stderr
    done = launch(1, "--layer", "baseline", "--capture-after", 3, check=False)
    assert done.returncode != 0 and "--capture-after: found no --capture" in done.stderr, done.stderr
