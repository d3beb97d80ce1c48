#!/usr/bin/env python3
"""What one MoE layer on one rank costs from Python: beside the C interface, and beside plain PyTorch, one thread each.

Usage: PYTHONPATH=BUILD/python python_layer_bench.py BUILD/bin/c_layer_bench

Prints medians, in microseconds, of forward and backward for layers of several sizes; runs alternate. A step of any of them
starts without gradients, and rows are random. `allowed` is 50 microseconds and 3 % of C's time: what Python may cost more.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time

SIZES = [(16, 16, 4, 8, 3000), (64, 128, 8, 128, 600), (128, 256, 8, 1024, 60)]  # M, H, experts, tokens, times.
ROUNDS = 5


def run_here(what: str, model: int, hidden: int, experts: int, tokens: int, times: int) -> float:
    import torch
    import torch.distributed as dist

    import moeplan.torch

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"))
    from moe_lm import Job, PlainMoELayer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    sizes = {"modelDim": model, "hiddenDim": hidden, "experts": experts, "sequenceLength": tokens}
    workload = {"name": "bench", "layer": {"batch": 1, "topK": 2, "capacityFactor": 1.25, "bytesPerElement": 4, **sizes}}
    plan = {"workload": {**workload, "layout": {}}, "best": {"schedule": "BASELINE", "chunks": 1, "partitionDegree": 1}}
    layer = moeplan.torch.MoELayer(plan, moeplan.torch.init())
    if what == "plain":
        layer = PlainMoELayer(Job(1, 1, 1), workload["layer"], dict(layer.named_parameters()), 1, False)
    x, gradient = torch.randn(tokens, model, requires_grad=True), torch.randn(tokens, model)
    took = []
    for i in range(-(times // 5 + 1), times):
        x.grad = None
        for parameter in layer.parameters():
            parameter.grad = None
        start = time.perf_counter()
        layer(x).backward(gradient)
        if i >= 0:
            took.append(time.perf_counter() - start)
    return 1e6 * statistics.median(took)


def main() -> None:
    if sys.argv[1] in ("moeplan", "plain"):
        print(run_here(sys.argv[1], *(int(text) for text in sys.argv[2:])))
        return
    commands = {"C": [sys.argv[1]], **{what: [sys.executable, "-B", __file__, what] for what in ("moeplan", "plain")}}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    print(f"{'M, H, experts, tokens':>22} {'C':>10} {'Python':>10} {'over C':>9} {'allowed':>9} {'PyTorch':>10} {'of it':>7}")
    for size in SIZES:
        took = {what: [] for what in commands}
        for _ in range(ROUNDS):
            for what, command in commands.items():
                done = subprocess.run([*command, *map(str, size)], env=environment, check=True, capture_output=True, text=True)
                took[what].append(float(done.stdout))
        c, python, plain = (statistics.median(took[what]) for what in commands)
        name = ", ".join(map(str, size[:4]))
        print(f"{name:>22} {c:10.0f} {python:10.0f} {python - c:9.0f} {50 + 0.03 * c:9.0f} {plain:10.0f} {python / plain:7.2f}")


if __name__ == "__main__":
    main()
