"""python/examples/train_moe_lm.py as docs/python.md runs it, shorter: what it learns, and whose links carry it."""

import os
import json
import re
import sys

import pytest
from conftest import SOURCE, Serve, run_moeplan
from torch_layer_test import run_ranks

pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")

EXAMPLE = SOURCE / "python" / "examples" / "train_moe_lm.py"
EMULATED = SOURCE / "deploy" / "examples" / "emulated.json"


def train(cluster, *options, check=True):
    return run_moeplan("launch", *cluster, "--", sys.executable, "-B", EXAMPLE, *options, check=check, timeout=240)


def printed(*options):
    return run_moeplan("launch", "--local", "1", "--", sys.executable, "-B", EXAMPLE, *options).stdout.replace("[0] ", "")


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """What a calibration of four local ranks left, for the layer of the example."""
    folder = tmp_path_factory.mktemp("database")
    grid = folder / "grid.json"
    grid.write_text(printed("--print", "grid"))
    run_moeplan("calibrate", "--local", 4, "--db", folder / "m.db", "--layouts", grid, "--budget", "4s")
    return folder


def test_a_planners_answers_run_as_their_timelines_say(database, tmp_path):
    workload = json.loads(printed("--print", "workload"))
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


@pytest.mark.parametrize("tp", [1, 2])
def test_plain_pytorch_and_every_schedule_are_one_model(tp):
    done = train(("--local", "4"), "--layer", "baseline", "--tp", tp, "--steps", 6, "--check", 5, "--log", 6)
    agree = [float(text) for text in re.findall(r"every schedule agree within (\S+)", done.stdout)]
    assert len(agree) == 2 and max(agree) <= 1e-5, done.stdout
    plain = train(("--local", "4"), "--layer", "plain", "--tp", tp, "--steps", 6, "--log", 6)
    losses = [re.search(r"step 6: loss (\S+),", run.stdout)[1] for run in (done, plain)]
    assert losses[0] == losses[1], losses


def test_a_planned_job_asks_reports_and_learns(database):
    server = Serve(database)
    try:
        options = ("--layer", "planned", "--planner", server.address, "--steps", 20, "--log", 10)
        done = train(("--local", "4"), *options)
        reported = server.call("ListRuns", {})["runs"]
    finally:
        server.stop()
    assert done.stderr == "", done.stderr
    first, last = re.findall(r"loss (\S+), .* MoE layer \S+ ms \(\S+ predicted\)", done.stdout)
    assert float(last) < float(first), done.stdout
    assert len(reported) >= 1, reported
    assert all(run["measuredTimeS"] > 0 for run in reported), reported


def test_the_shaped_links_carry_the_jobs_bytes(tmp_path):
    script = f'"$0" -B {EXAMPLE} --layer plain --steps 3 && tc -s qdisc show dev nic'
    done = run_moeplan("launch", "--emulated", EMULATED, "--", "sh", "-c", script, sys.executable, check=False, timeout=240)
    if "needs root" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    sent = {int(rank): int(count) for rank, count in re.findall(r"\[(\d)\]  Sent (\d+) bytes", done.stdout)}
    # In each of three steps four ranks on two nodes sum what the dense layers have.
    dense = 4 * (256 * 128 + 64 * 128 + 4 * 4 * 128 * 128 + 2 * 2 * 128 * 512)
    assert set(sent) == {0, 1, 2, 3} and min(sent.values()) > dense and sum(sent.values()) > 12 * dense


def test_wrong_options_are_named():
    done = train(("--local", "2"), "--layer", "planned", check=False)
    assert done.returncode != 0 and "found neither --plan nor --planner" in done.stderr, done.stderr
