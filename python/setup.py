"""Builds the package with the messages of ../proto, through protoc and gRPC's plugin, and with libmoeplan.so. No network.

The library that runs layers on cards, libmoeplan_gpu.so, comes along where it lies beside that one. The library is the one that MOEPLAN_LIBRARY names, or the newest that a build folder of this tree has, or built now.

Everything that is made on the way lies in a folder of its own, so that the source tree stays as it is.
"""

import atexit
import os
import pathlib
import shutil
import subprocess
import tempfile

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"


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


def build_library():
    """Compiles libmoeplan.so and what it needs of ../models and ../executor: a few minutes."""
    cmake = program("CMAKE", "cmake", "cmake")
    folder = pathlib.Path(scratch) / "library"
    bare = ["-D", "MOEPLAN_BARE=ON", "-D", "MOEPLAN_BUILD_TESTS=OFF", "-D", "CMAKE_BUILD_TYPE=Release"]
    subprocess.run([cmake, "-G", "Ninja", "-S", ROOT, "-B", folder, *bare], check=True)
    subprocess.run([cmake, "--build", folder, "--target", "moeplan_c"], check=True)
    stripped = folder / "libmoeplan.so"
    subprocess.run([shutil.which("strip") or "strip", "-o", stripped, folder / "lib" / "libmoeplan.so"], check=True)
    return stripped


def library():
    given = os.environ.get("MOEPLAN_LIBRARY")
    if given:
        return given
    built = ROOT.glob("build*/python/moeplan/libmoeplan.so")
    return max(built, key=lambda path: path.stat().st_mtime, default=None) or build_library()


class BuildWithMessages(build_py):
    def run(self):
        super().run()
        generate(self.build_lib)
        host, package = pathlib.Path(library()), pathlib.Path(self.build_lib) / "moeplan"
        shutil.copy(host, package / "libmoeplan.so")
        on_cards = host.with_name("libmoeplan_gpu.so")
        if on_cards.exists():
            shutil.copy(on_cards, package)


class WithLibrary(Distribution):
    """What is built is of this kind of machine alone."""

    def has_ext_modules(self):
        return True


scratch = tempfile.mkdtemp(prefix="moeplan-python-")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
setup(
    cmdclass={"build_py": BuildWithMessages},
    distclass=WithLibrary,
    options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
)
