"""libmoeplan.so, or libmoeplan_gpu.so where ranks run on cards, through ctypes: structs, functions, errors as exceptions.

What the functions do stands in executor/c/moeplan.h. A process opens one of the libraries, on first use.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

from moeplan.errors import Error, Infeasible, InvalidInput, PeerLost, UnavailableHere

_C_VERSION = 4
_SO_VERSION = 0  # The number in the library's own name.

_TENSORS = ("up", "gate_up", "down", "up_bias", "gate_up_bias", "down_bias")
MATRICES = frozenset(["up", "gate_up", "down", "shared_up", "shared_gate_up", "shared_down"])
_EXPERTS = (*_TENSORS, *(f"shared_{name}" for name in _TENSORS))
# What a router has, on all ranks alike.
ROUTER = ("gate", "gate_bias", "correction_bias")
# The fields of moeplan_weights, in their order; and those of them that have gradients, of moeplan_gradients.
WEIGHTS = (*ROUTER, *_EXPERTS)
TENSORS = ("gate", "gate_bias", *_EXPERTS)


class Place(Structure):
    _fields_ = [
        ("rank", c_int32),
        ("ranks", c_int32),
        ("ranks_per_node", c_int32),
        ("host_address", c_char_p),
        ("deadline_s", c_double),
        ("backend", c_char_p),
    ]


class Plan(Structure):
    _fields_ = [
        ("nodes", c_int32),
        ("gpus_per_node", c_int32),
        ("batch", c_int32),
        ("sequence_length", c_int32),
        ("model_dim", c_int32),
        ("hidden_dim", c_int32),
        ("experts", c_int32),
        ("top_k", c_int32),
        ("capacity_factor", c_double),
        ("bytes_per_element", c_int32),
        ("expert_matrices", c_int32),
        ("expert_bias", c_int32),
        ("shared_hidden_dim", c_int32),
        ("expert_kind", c_char_p),
        ("gate", c_char_p),
        ("router_score_function", c_char_p),
        ("router_raw_weights", c_int32),
        ("router_correction_bias", c_int32),
        ("router_bias", c_int32),
        ("router_weighs_input", c_int32),
        ("router_expert_groups", c_int32),
        ("router_groups_per_token", c_int32),
        ("router_weight_scale", c_double),
        ("swiglu_limit", c_double),
        ("aux_loss_coefficient", c_double),
        ("z_loss_coefficient", c_double),
        ("receive_factor", c_double),
        ("tensor_parallel", c_int32),
        ("expert_parallel", c_int32),
        ("expert_sharding_parallel", c_int32),
        ("context_parallel", c_int32),
        ("pipeline_parallel", c_int32),
        ("capacity_passing", c_char_p),
        ("allow_lossy", c_int32),
        ("schedule", c_char_p),
        ("all_to_all", c_char_p),
        ("dispatch_codec", c_char_p),
        ("combine_codec", c_char_p),
        ("chunks", c_int32),
        ("partition_degree", c_int32),
        ("overlapped_gather", c_int32),
        ("communication_ctas", c_int32),
        ("chunk_share_count", c_int32),
        ("order_count", c_int32),
        ("chunk_shares", POINTER(c_double)),
        ("order", POINTER(c_char_p)),
    ]


class Shard(Structure):
    _fields_ = [
        ("first_expert", c_int32),
        ("experts", c_int32),
        ("first_hidden", c_int32),
        ("hidden", c_int32),
        ("adds_last_bias", c_int32),
        ("shared_first_hidden", c_int32),
        ("shared_hidden", c_int32),
        ("shared_adds_last_bias", c_int32),
        ("tokens", c_int32),
        ("gates_slices", c_int32),
    ]


class Weights(Structure):
    _fields_ = [(name, c_void_p) for name in WEIGHTS]


class Gradients(Structure):
    _fields_ = [*((name, c_void_p) for name in TENSORS), ("matrices_are_elements", c_int32)]


class Statistics(Structure):
    _fields_ = [
        ("tokens", c_int64),
        ("pairs", c_void_p),
        ("kept", c_void_p),
        ("probability_sum", c_void_p),
        ("squared_log_sum_exp_sum", c_double),
        ("entropy_sum", c_double),
        ("load_balance_loss", c_double),
        ("z_loss", c_double),
    ]


class Task(Structure):
    _fields_ = [
        ("task", c_char_p),
        ("kind", c_char_p),
        ("stream", c_char_p),
        ("chunk", c_int32),
        ("start_s", c_double),
        ("end_s", c_double),
    ]


_FUNCTIONS = {
    "join_create": [POINTER(Place), POINTER(c_void_p)],
    "world_create": [c_void_p, POINTER(c_char_p), POINTER(c_void_p)],
    "world_set_stream": [c_void_p, c_void_p],
    "world_set_lane": [c_void_p, c_int32],
    "layer_create": [c_void_p, POINTER(Plan), POINTER(c_void_p)],
    "layer_forward": [c_void_p, c_int32, c_void_p, c_void_p, POINTER(Weights), POINTER(c_void_p)],
    "batch_create": [c_void_p, c_int32, POINTER(c_void_p)],
    "batch_forward": [c_void_p, c_int32, c_void_p, c_void_p, POINTER(Weights), POINTER(c_void_p)],
    "pass_backward": [c_void_p, c_void_p, c_void_p, POINTER(Gradients)],
    "pass_backward_of_input": [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p],
    "pass_add_weight_gradients": [c_void_p, POINTER(Gradients)],
    "pass_finish": [c_void_p],
    "pass_await_experts": [c_void_p],
    "pass_statistics": [c_void_p, POINTER(Statistics)],
    "pass_timeline": [c_void_p, c_char_p, POINTER(POINTER(Task)), POINTER(c_int32)],
}
_PROCEDURES = {
    "join_free": [c_void_p],
    "world_free": [c_void_p],
    "layer_free": [c_void_p],
    "batch_free": [c_void_p],
    "layer_shard": [c_void_p, POINTER(Shard)],
    "pass_free": [c_void_p],
}


_on_cards = False  # Whether the process opens, or has opened, the library that has cards.


def use(backend: str) -> None:
    """Says, before the library is opened, whether "cuda" is wanted of it, or "host".

    Raises UnavailableHere where the process has opened the one that has the host alone.
    """
    global _on_cards
    if load.cache_info().currsize == 0:
        _on_cards = backend == "cuda"
    elif backend == "cuda" and not _on_cards:
        raise UnavailableHere(
            "found a process that runs layers on the host already, expected its first world on a card: make that one first"
        )


def _path() -> str:
    given = os.environ.get("MOEPLAN_LIBRARY")
    if given:
        return given
    name = "libmoeplan_gpu.so" if _on_cards else "libmoeplan.so"
    beside = Path(__file__).resolve().parent / name
    # Debian's package has no copy: the loader finds the system's.
    return str(beside) if beside.exists() else f"{name}.{_SO_VERSION}"


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library. Raises UnavailableHere where it is missing, lacks what it needs, or is of another version."""
    path = _path()
    # The library's own OpenBLAS starts as many threads as this says when it is opened; ranks multiply on one.
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise UnavailableHere(
            f"found no library to run layers with ({error}), expected {path}; build the target moeplan_python"
            f"{', where nvcc is' if _on_cards else ''}, or name the library in MOEPLAN_LIBRARY"
        ) from None
    finally:
        if threads is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = threads
    version = library.moeplan_c_version()
    if version != _C_VERSION:
        raise UnavailableHere(f"{path}: found version {version} of the C interface, expected {_C_VERSION}; build it again")
    library.moeplan_last_error.restype = c_char_p
    library.moeplan_join_address.restype = c_char_p
    library.moeplan_join_address.argtypes = [c_void_p]
    try:
        for name, arguments in _FUNCTIONS.items():
            getattr(library, f"moeplan_{name}").argtypes = arguments
        for name, arguments in _PROCEDURES.items():
            function = getattr(library, f"moeplan_{name}")
            function.argtypes, function.restype = arguments, None
    except AttributeError as error:
        raise UnavailableHere(f"{path}: found a library that is older than this package ({error}); build it again") from None
    return library


@functools.lru_cache(maxsize=None)
def function(name: str) -> Any:
    """moeplan_NAME as it is."""
    return getattr(load(), f"moeplan_{name}")


def call(name: str, *arguments: object) -> None:
    """Calls moeplan_NAME, and raises what it answers: InvalidInput, Infeasible, PeerLost or another Error."""
    status = function(name)(*arguments)
    if status != 0:
        raise _exception(status, load().moeplan_last_error().decode(errors="replace"))


def create(name: str, *arguments: object) -> c_void_p:
    """The object that moeplan_NAME, whose last parameter it is, makes."""
    made = c_void_p()
    call(name, *arguments, byref(made))
    return made


_CODES = (
    "OK INVALID_ARGUMENT NOT_FOUND FAILED_PRECONDITION UNAVAILABLE DEADLINE_EXCEEDED PEER_LOST PERMISSION_DENIED DATA_LOSS "
    "UNIMPLEMENTED CANCELLED INTERNAL"
).split()


def _exception(status: int, message: str) -> Error:
    code = _CODES[status] if status < len(_CODES) else "UNKNOWN"
    if code == "INVALID_ARGUMENT":
        said = re.fullmatch(r"(?:[^:]*: )*?(?P<field>[\w.\[\]·]+): found (?P<found>.*?), expected (?P<expected>.*)", message, re.DOTALL)
        return InvalidInput(message, **said.groupdict()) if said else InvalidInput(message)
    if code == "FAILED_PRECONDITION":
        return Infeasible(message)
    if code in ("PEER_LOST", "DEADLINE_EXCEEDED"):
        # Who hears of it from another rank is told that rank first.
        rank = re.search(r"\brank (\d+) (?:is lost|did not answer)", message) or re.search(r"\brank (\d+)", message)
        return PeerLost(message, code, int(rank[1]) if rank else None)
    return UnavailableHere(message, code)
