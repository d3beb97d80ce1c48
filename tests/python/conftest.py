"""What the tests share: a real planner with a stored profile, and servers that are no good."""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import subprocess
import threading

import pytest
from ranks import end_ranks

import moeplan

SOURCE = pathlib.Path(os.environ.get("MOEPLAN_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
PROGRAM = os.environ.get("MOEPLAN_BIN", str(SOURCE / "build-dev" / "bin" / "moeplan"))
EXAMPLES = SOURCE / "deploy" / "examples"
# The example profile is of 8 nodes with 8 GPUs.
CLUSTER = {"nodes": 8, "gpusPerNode": 8}


def example(name):
    return json.loads((EXAMPLES / name).read_text())


def run_moeplan(*arguments, check=True, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=check, **options)


def first(watch, limit_s=10.0):
    """What it tells next; StopIteration where it tells nothing in time."""
    timer = threading.Timer(limit_s, watch.close)
    timer.start()
    try:
        return next(watch)
    finally:
        timer.cancel()


class Serve:
    """A `moeplan serve` on free ports; killed by stop()."""

    def __init__(self, folder, *arguments, grpc="127.0.0.1:0"):
        command = [PROGRAM, "serve", "--db", folder / "m.db", "--grpc", grpc, "--http", "127.0.0.1:0", *arguments]
        self._log = open(folder / "serve.log", "a", encoding="utf-8")
        self._process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=self._log, stdin=subprocess.DEVNULL, text=True
        )
        line = self._process.stdout.readline()
        said = re.search(r"gRPC on (\S+), HTTP on", line)
        if not said:
            self.stop()
            pytest.fail(f"moeplan serve: {line!r}, {(folder / 'serve.log').read_text()}")
        self.address = said[1]

    def call(self, method, request, *arguments, **options):
        text = json.dumps(request)
        return json.loads(
            run_moeplan("call", method, "-", "--planner", self.address, *arguments, input=text, **options).stdout
        )

    def put_profile(self, profile):
        return self.call("PutProfile", {"requestId": os.urandom(8).hex(), "profile": profile})

    def stop(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()


@pytest.fixture(scope="session", autouse=True)
def ranks_end_well():
    """Ranks that tests have left running end with 0 once no test follows."""
    yield
    wrong = end_ranks()
    assert not wrong, f"ranks that ended with other than 0: {wrong}"


@pytest.fixture
def serve(tmp_path):
    """Starts planners on one database, and stops them with the test."""
    started = []

    def start(*arguments, profile=True, **options):
        started.append(Serve(tmp_path, *arguments, **options))
        if profile:
            started[-1].put_profile(example("profile-8x8.json"))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One planner with the example profile, for tests that change nothing."""
    server = Serve(tmp_path_factory.mktemp("server"))
    server.put_profile(example("profile-8x8.json"))
    yield server
    server.stop()


@pytest.fixture
def planner(server):
    with moeplan.Planner(server.address, deadline_s=30) as planner:
        yield planner


@pytest.fixture
def mute():
    """The address of a server that accepts connections and never says a word; how many, too."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held = []

        def accept():
            try:
                while True:
                    held.append(listener.accept()[0])
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", held
        listener.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


@pytest.fixture
def workload():
    return example("mixtral-across-nodes.json")
