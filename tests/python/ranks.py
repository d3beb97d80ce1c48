"""Runs programs as the ranks of a job."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent


def run_ranks(tmp_path, ranks, name, limit_s=240, program="torch_ranks.py", **arguments):
    """Runs the program's ``name`` on every rank; fails with what the ranks said, unless all end well."""
    environment = {**os.environ, "WORLD_SIZE": str(ranks), "STORE": str(tmp_path / "store"), "OMP_NUM_THREADS": "1"}
    environment.pop("LOCAL_WORLD_SIZE", None)
    command = [sys.executable, "-B", str(HERE / program), name, json.dumps(arguments)]
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
