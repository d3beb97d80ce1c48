"""pip makes the same package as CMake, from the source tree, which it leaves as it was, and without a network."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import SOURCE

import moeplan


def files_of(package):
    return {
        str(path.relative_to(package)): path.read_bytes()
        for path in pathlib.Path(package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def source_files():
    return {path for path in (SOURCE / "python").rglob("*") if "__pycache__" not in path.parts}


def test_pip_installs_what_cmake_builds(tmp_path):
    pytest.importorskip("setuptools")
    before = source_files()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment.update(MOEPLAN_LIBRARY=str(pathlib.Path(moeplan.__file__).parent / "libmoeplan.so"))
    # Whoever asks the network, asks in vain.
    environment.update(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_CACHE_DIR="1")
    environment.update(http_proxy="http://127.0.0.1:1", https_proxy="http://127.0.0.1:1")

    def run(*command, check=True):
        return subprocess.run(command, check=check, capture_output=True, text=True, env=environment, cwd=SOURCE)

    try:
        run(sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv")
        run(tmp_path / "venv/bin/python", "-c", "import pip, wheel")
    except subprocess.CalledProcessError as missing:
        pytest.skip(f"{missing.stderr or missing.stdout} (Debian: python3-venv, python3-pip, python3-wheel)")
    done = run(tmp_path / "venv/bin/pip", "install", "--no-build-isolation", "--no-deps", "./python", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    where = "import moeplan, moeplan.v1.plan_pb2, pathlib; print(pathlib.Path(moeplan.__file__).parent)"
    installed = run(tmp_path / "venv/bin/python", "-P", "-B", "-c", where).stdout.strip()
    assert installed.startswith(str(tmp_path))
    assert files_of(installed) == files_of(pathlib.Path(moeplan.__file__).parent)
    assert source_files() == before, "pip leaves nothing behind"


def test_importing_starts_nothing_and_loads_no_torch():
    code = (
        "import sys, threading, moeplan; "
        "assert threading.active_count() == 1; "
        "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'numpy')])"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
