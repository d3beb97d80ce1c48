"""Builds the package with the messages of ../proto, through protoc and gRPC's plugin. Needs no network.

Everything that is made on the way lies in a folder of its own, so that the source tree stays as it is.
"""

import atexit
import os
import pathlib
import shutil
import subprocess
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

PROTO = pathlib.Path(__file__).resolve().parent.parent / "proto"


def program(variable, name, package):
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        raise SystemExit(f"moeplan: found no {name}, expected it in PATH or {variable} (Debian: {package})")
    return found


def generate(into):
    """Writes moeplan/v1/*_pb2.py, moeplan/rpc/error_details_pb2.py, their type hints and the services' stubs."""
    protoc = [program("PROTOC", "protoc", "protobuf-compiler"), "-I", PROTO]
    plugin = program("GRPC_PYTHON_PLUGIN", "grpc_python_plugin", "protobuf-compiler-grpc")
    messages = sorted(PROTO.glob("moeplan/v1/*.proto"))
    errors = PROTO / "moeplan" / "rpc" / "error_details.proto"
    subprocess.run([*protoc, f"--python_out={into}", f"--pyi_out={into}", *messages, errors], check=True)
    services = [file for file in messages if file.name.endswith("_service.proto")]
    grpc = [f"--grpc_python_out={into}", f"--plugin=protoc-gen-grpc_python={plugin}"]
    subprocess.run([*protoc, *grpc, *services], check=True)


class BuildWithMessages(build_py):
    def run(self):
        super().run()
        generate(self.build_lib)


scratch = tempfile.mkdtemp(prefix="moeplan-python-")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
setup(
    cmdclass={"build_py": BuildWithMessages},
    options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
)
