#!/usr/bin/env python3
"""Runs tests of the Python package with pytest, as CTest starts them.

Usage: run.py PYTEST_ARGUMENTS...
Exits with 77, and says what is missing, where Debian's pytest, gRPC or Protobuf is not here. MOEPLAN_BIN is the program
to test against, MOEPLAN_JOB_PLANNER the C++ client to compare with, PYTHONPATH has the built package.
"""
import os
import pathlib
import sys

sys.dont_write_bytecode = True
# Debian's OpenBLAS takes processors that are newer than it for those of 2004, whose products take five times as long.
cpus = pathlib.Path("/proc/cpuinfo")
if cpus.exists() and {"avx2", "fma"} <= set(cpus.read_text().split()):
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
    import pytest
except ImportError as missing:
    print(f"python: SKIPPED: {missing} (Debian: python3-pytest, python3-grpcio, python3-protobuf)")
    sys.exit(77)

end = pytest.main(["-q", "--tb=short", "-rs", "-p", "no:cacheprovider", *sys.argv[1:]])
sys.exit(77 if end == pytest.ExitCode.NO_TESTS_COLLECTED else end)  # The whole file was skipped, and pytest says why.
