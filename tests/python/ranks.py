"""Runs programs as the ranks of a job, in processes that stay for the next case."""

import contextlib
import itertools
import json
import os
import pathlib
import select
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
# How long the others of a failed rank have to say what they found.
LAST_WORDS_S = 1


class Processes:
    """Rank r of every case is the r-th process (rank_process.py). A case that fails ends all of them."""

    def __init__(self):
        self._processes = []

    def run(self, cases, limit_s, may_end):
        """True where every rank passed its case in time; one that ``may_end`` may also end with 0."""
        processes = self._at_least(len(cases))[: len(cases)]
        for process, case in zip(processes, cases):
            with contextlib.suppress(BrokenPipeError):  # Of one that has ended, nothing comes back.
                process.stdin.write(json.dumps(case) + "\n")
                process.stdin.flush()
        passed = self._await(processes, limit_s, may_end)
        if not passed:
            self._await(processes, LAST_WORDS_S, may_end, stops=False)
        return passed

    def ends(self):
        """What each process has ended with, None of one that runs; those that still run are killed."""
        ends = [process.poll() for process in self._processes]
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []
        return ends

    def end(self):
        """Lets every process end as programs do; what the ones that did not end with 0 ended with, by rank."""
        for process in self._processes:
            process.stdin.close()
        end = time.monotonic() + 30
        for process in self._processes:
            try:
                process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        return {rank: status for rank, status in enumerate(self.ends()) if status != 0}

    def _at_least(self, count):
        self._processes = [one if one.poll() is None else self._started() for one in self._processes]
        while len(self._processes) < count:
            self._processes.append(self._started())
        return self._processes

    @staticmethod
    def _started():
        command = [sys.executable, "-B", str(HERE / "rank_process.py")]
        # Memory that a step frees is kept for the next, as on a card: given back, its pages are faults, which on a virtual
        # machine take longer than what computes.
        keeps = {"MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_MMAP_MAX_": "0"}
        environment = {**os.environ, **keeps, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)

    @staticmethod
    def _await(processes, limit_s, may_end, stops=True):
        """Whether all answer or, where they may, end with 0; by default it waits for none where one has failed."""
        end, passed = time.monotonic() + limit_s, True
        waiting = {process.stdout: process for process in processes}
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], max(0, end - time.monotonic()))
            if not ready:
                return False
            for answers in ready:
                process = waiting.pop(answers)
                passed &= answers.readline() == "done\n" or (process.wait() == 0 and may_end)
            if stops and not passed:
                return False
        return passed


_processes = Processes()
_numbers = itertools.count()  # Cases, none of which finds the store of another.


def end_ranks():
    """To be called when the last case has run: what processes that did not end with 0 ended with, by rank."""
    return _processes.end()


def run_ranks(tmp_path, ranks, name, limit_s=240, program="torch_ranks", **arguments):
    """Runs the program's function ``name`` on every rank; what each rank printed. Fails with that, unless all pass."""
    shared = {**os.environ, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1", "STORE": str(tmp_path / f"store-{next(_numbers)}")}
    shared.pop("LOCAL_WORLD_SIZE", None)
    logs = [tmp_path / f"rank-{rank}.log" for rank in range(ranks)]
    cases = []
    for rank, log in enumerate(logs):
        log.write_text("")
        environment = {**shared, "RANK": str(rank)}
        cases.append({"program": program, "name": name, "arguments": arguments, "log": str(log), "environment": environment})
    if _processes.run(cases, limit_s, may_end=name == "lost_rank"):
        return [log.read_text() for log in logs]
    ends = _processes.ends()
    said = [f"rank {rank} ended with {ends[rank]}: {log.read_text()[-3000:]}" for rank, log in enumerate(logs)]
    pytest.fail(f"{name} after {limit_s} s at most\n" + "\n".join(said), pytrace=False)
