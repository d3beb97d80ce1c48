"""moeplan.torch on ranks as processes, against plain PyTorch."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")

PROGRAM = pathlib.Path(__file__).resolve().parent / "torch_ranks.py"


def run_ranks(tmp_path, ranks, name, limit_s=240, **arguments):
    """Runs torch_ranks.py's ``name`` on every rank; fails with what the ranks said, unless all end well."""
    environment = {**os.environ, "WORLD_SIZE": str(ranks), "STORE": str(tmp_path / "store"), "OMP_NUM_THREADS": "1"}
    environment.pop("LOCAL_WORLD_SIZE", None)
    command = [sys.executable, "-B", str(PROGRAM), name, json.dumps(arguments)]
    logs = [tmp_path / f"rank-{rank}.log" for rank in range(ranks)]
    processes = []
    try:
        for rank, log in enumerate(logs):
            with log.open("w") as into:
                processes.append(subprocess.Popen(command, env={**environment, "RANK": str(rank)}, stderr=into))
        end = time.monotonic() + limit_s
        # One that fails leaves the others waiting for it.
        while time.monotonic() < end and not any(process.poll() for process in processes):
            if all(process.poll() == 0 for process in processes):
                return
            time.sleep(0.02)
        time.sleep(1)
    finally:
        ends = [process.poll() for process in processes]
        for process in processes:
            process.kill()
            process.wait()
    said = [f"rank {rank} ended with {ends[rank]}: {log.read_text()[-3000:]}" for rank, log in enumerate(logs)]
    pytest.fail(f"{name} after {limit_s} s at most\n" + "\n".join(said), pytrace=False)


@pytest.mark.parametrize("ranks, gpus_per_node, draws", [(1, 1, 30), (2, 1, 60), (4, 2, 80)])
def test_random_plans_equal_plain_pytorch(tmp_path, ranks, gpus_per_node, draws):
    seed = int(os.environ.get("MOEPLAN_TEST_SEED", "20261126"))
    run_ranks(tmp_path, ranks, "equality", gpus_per_node=gpus_per_node, draws=draws, seed=seed)


def test_what_jobs_do(tmp_path):
    run_ranks(tmp_path, 4, "what_jobs_do", gpus_per_node=2)


def test_bad_input_is_named_and_the_job_goes_on(tmp_path):
    run_ranks(tmp_path, 4, "bad_input", gpus_per_node=2)


def test_ranks_that_pass_other_tokens_are_told(tmp_path):
    run_ranks(tmp_path, 4, "other_tokens", gpus_per_node=2)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_lost_rank_is_named_within_the_deadline(tmp_path, phase):
    run_ranks(tmp_path, 4, "lost_rank", gpus_per_node=2, phase=phase, deadline_s=5)


def test_a_model_learns_beside_ddp_and_dataloaders(tmp_path):
    run_ranks(tmp_path, 4, "learns", gpus_per_node=2)


def test_pipeline_stages_need_not_keep_step(tmp_path):
    run_ranks(tmp_path, 4, "stages_apart", gpus_per_node=2, deadline_s=10)
