"""The ranks of kineto_test.py run this (rank_process.py says how)."""

import json
import pathlib
import sys

import torch
from kineto_events import write_trace
from torch import nn

import moeplan.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"))

import moe_lm  # noqa: E402

# No weight has as many rows as there are tokens, so that every weight gradient has a shape of its own.
BATCH, LENGTH, WIDTH, HIDDEN, EXPERTS = 3, 80, 128, 384, 4
LAYER = {
    "batch": BATCH,
    "sequenceLength": LENGTH,
    "modelDim": WIDTH,
    "hiddenDim": HIDDEN,
    "experts": EXPERTS,
    "topK": 2,
    "capacityFactor": 1.25,
    "bytesPerElement": 4,
}


def model_of(world, job, plain):
    """Four blocks, two of them with experts: moeplan's layers, or the same in plain PyTorch."""
    plan = {
        "workload": {"layer": LAYER, "layout": {"expertParallel": world.ranks}, "phase": "TRAINING"},
        "best": {"schedule": "BASELINE", "chunks": 1, "partitionDegree": 1},
    }

    def make_moe(number):
        layer = moeplan.torch.MoELayer(plan, world, seed=number)
        if not plain:
            return layer
        copy = moe_lm.PlainMoELayer(job, LAYER, dict(layer.named_parameters()), 1, False)
        layer.close()
        return copy

    model = moe_lm.LanguageModel(job, 4, WIDTH, 4, LENGTH, make_moe)
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())  # Tied weights have gradients of two products.
    return model


def traced(world, folder):
    """The trace of two steps, the graph that capture makes of the same model, and the shapes of its weights."""
    folder = pathlib.Path(folder)
    job = moe_lm.Job(1, 1, world.ranks)
    rows = torch.randint(0, 256, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(world.rank))
    model = model_of(world, job, plain=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(rows).backward()
        moe_lm.reduce_gradients(model, job)
        optimizer.step()

    step()
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities,
        record_shapes=True,
        schedule=schedule,
        on_trace_ready=lambda profile: write_trace(profile, folder / f"{world.rank}.json", world.rank, world.ranks, "float"),
    ) as profile:
        for _ in range(3):
            step()
            profile.step()
    own = model_of(world, job, plain=False)
    graph = moeplan.torch.capture(own, rows, None, world, cache=str(folder / f"{world.rank}.db"))
    if world.rank == 0:
        (folder / "graph.json").write_text(json.dumps(graph))
        shapes = {name: list(value.shape) for name, value in own.named_parameters()}
        (folder / "shapes.json").write_text(json.dumps(shapes))
