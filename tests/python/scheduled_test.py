"""moeplan.torch.scheduled: gradients, order and refusals, on ranks as processes."""

import json
import os
import subprocess

import pytest
from ranks import run_ranks

pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")


@pytest.mark.parametrize("name", ["gradients", "special_models", "distributed_data_parallel"])
def test_gradients_are_those_without(tmp_path, name):
    run_ranks(tmp_path, 2, name, program="scheduled_ranks", gpus_per_node=1)


@pytest.mark.parametrize("name", ["order", "refusals"])
def test_what_runs_when_and_what_is_refused(tmp_path, name):
    run_ranks(tmp_path, 2, name, program="scheduled_order_ranks", gpus_per_node=1)


def test_random_plans(tmp_path):
    seed = int(os.environ.get("MOEPLAN_TEST_SEED", "20261128"))
    run_ranks(tmp_path, 2, "random_plans", program="scheduled_ranks", gpus_per_node=1, draws=12, seed=seed)


def test_a_lost_rank_is_named_within_the_deadline(tmp_path):
    run_ranks(tmp_path, 2, "lost_rank", program="scheduled_order_ranks", gpus_per_node=1, deadline_s=5)


def backward_graph():
    """The backward pass of scheduled_ranks.py's model from its head to its second block, at times made up."""
    chain, gradients = [], []

    def back(name, op, time_s=1e-3):
        before = [chain[-1]["outputs"][0]] if chain else []
        chain.append({"id": f"{name}.dx", "op": op, "phase": "BACKWARD", "timeS": time_s, "inputs": before, "outputs": [f"d {name}"]})
        if op == "ALL_TO_ALL" or name.endswith(("combine", "dispatch")):
            return
        of_weight = {"id": f"{name}.dw", "op": op, "phase": "BACKWARD", "timeS": time_s, "inputs": before, "weightGradient": True}
        gradients.append(of_weight)

    back("head", "MATMUL")
    back("norm", "LAYER_NORM")
    for block in (3, 2, 1):
        moe = f"blocks.{block}.mlp"
        if block == 2:
            back(moe, "MATMUL")
        else:
            back(f"{moe}.combine", "COMBINE")
            back(f"{moe}.all_to_all2", "ALL_TO_ALL", 3e-3)
            back(f"{moe}.experts", "EXPERT")
            back(f"{moe}.all_to_all1", "ALL_TO_ALL", 3e-3)
            back(f"{moe}.dispatch", "DISPATCH")
            back(f"{moe}.gate", "GATE")
        for name, op in (("norm2", "LAYER_NORM"), ("attention.out", "MATMUL"), ("attention.qkv", "MATMUL"), ("norm1", "LAYER_NORM")):
            back(f"blocks.{block}.{name}", op)
    return {"instructions": chain + gradients}


def test_an_answer_of_the_planner(tmp_path):
    if "MOEPLAN_BIN" not in os.environ:
        pytest.skip("MOEPLAN_BIN names no planner")
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(backward_graph()))
    command = [os.environ["MOEPLAN_BIN"], "plan", "--graph", str(graph), "--json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    lancet = answer["rules"]["lancet"]
    assert lancet["timeS"] < lancet["unscheduledTimeS"] - 5e-3, lancet
    run_ranks(tmp_path, 2, "planned", program="scheduled_ranks", gpus_per_node=1, answer=answer)
