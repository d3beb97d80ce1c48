#!/usr/bin/env python3
"""What one MoE layer on one card takes through moeplan.torch, beside the same layer in plain PyTorch.

Usage: PYTHONPATH=BUILD/python card_layer_bench.py [--device cuda] [--sizes NAME,...] [--rounds N] [--json FILE]

Plain PyTorch sorts tokens by expert and multiplies with torch._grouped_mm, as torchtitan does, or expert by expert where
that is missing. A row is a layer of a published model on one of its ranks: both passes, in BF16, medians of rounds in which
the two take turns. `host` is how long the calls themselves take, and `ours/plain` a ratio of the cards' times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from torch import nn

import moeplan
import moeplan.torch

# Model dim, hidden dim, experts on the rank, top-k of the rank's tokens, tokens.
SIZES = {
    "mixtral-8x7b": (4096, 14336, 8, 2, 4096),
    "qwen3-30b-a3b": (2048, 768, 128, 8, 4096),
    "qwen3-30b-a3b-ep8": (2048, 768, 16, 8, 4096),
    "tiny": (64, 32, 8, 2, 256),
}


class PlainLayer(nn.Module):
    """Dropless, with the parameters of a MoELayer of SwiGLU experts."""

    def __init__(self, like: moeplan.torch.MoELayer, top_k: int) -> None:
        super().__init__()
        self.top_k = top_k
        for name in ("gate", "up", "gate_up", "down"):
            self.register_parameter(name, nn.Parameter(getattr(like, name).detach().clone()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        probabilities = (x.float() @ self.gate.float().T).softmax(-1)
        weights, chosen = probabilities.topk(self.top_k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        token = order // self.top_k
        ends = torch.bincount(chosen.flatten(), minlength=self.gate.shape[0]).cumsum(0)
        rows = x[token]
        hidden = nn.functional.silu(products(rows, self.gate_up, ends)) * products(rows, self.up, ends)
        parts = products(hidden, self.down, ends) * weights.flatten()[order].unsqueeze(-1).to(x.dtype)
        return torch.zeros_like(x).index_add_(0, token, parts)


def products(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    if hasattr(torch, "_grouped_mm") and rows.is_cuda:
        return torch._grouped_mm(rows, weights, ends.to(torch.int32))
    first, parts = 0, []
    for expert, end in enumerate(ends.tolist()):
        parts.append(rows[first:end] @ weights[expert])
        first = end
    return torch.cat(parts)


class Timed:
    """One layer with a step of its own."""

    def __init__(self, layer: nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> None:
        self.layer, self.x, self.gradient = layer, x.clone().requires_grad_(), gradient
        self.device_s: list[float] = []
        self.host_s: list[float] = []

    def step(self) -> torch.Tensor:
        self.x.grad = None
        for parameter in self.layer.parameters():
            parameter.grad = None
        y = self.layer(self.x)
        y.backward(self.gradient)
        return y

    def measure(self, steps: int) -> None:
        synchronize(self.x)
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        queued = time.perf_counter()
        synchronize(self.x)
        self.device_s.append((time.perf_counter() - began) / steps)
        self.host_s.append((queued - began) / steps)


def synchronize(x: torch.Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize()


def bench(name: str, world: moeplan.torch.World, capacity_factor: float, rounds: int) -> dict[str, object]:
    model, hidden, experts, top_k, tokens = SIZES[name]
    layer = {
        "batch": 1,
        "sequenceLength": tokens,
        "modelDim": model,
        "hiddenDim": hidden,
        "experts": experts,
        "topK": top_k,
        "capacityFactor": capacity_factor,
        "bytesPerElement": 2,
        "expertMatrices": 3,
    }
    best = {"schedule": "BASELINE", "chunks": 1, "partitionDegree": 1}
    ours = moeplan.torch.MoELayer({"workload": {"layer": layer, "layout": {}}, "best": best}, world, dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(1)
    x, gradient = (torch.randn(tokens, model, generator=generator).to(world.device, torch.bfloat16) for _ in range(2))
    timed = {"moeplan": Timed(ours, x, gradient), "plain": Timed(PlainLayer(ours, top_k), x, gradient)}
    outputs = {what: one.step().detach().float() for what, one in timed.items()}
    off = float((outputs["moeplan"] - outputs["plain"]).norm() / outputs["plain"].norm())
    for _ in range(rounds + 1):
        for one in timed.values():
            one.measure(5)
    found = {
        what: {"stepMs": 1e3 * statistics.median(one.device_s[1:]), "hostMs": 1e3 * statistics.median(one.host_s[1:])}
        for what, one in timed.items()
    }
    spans = {phase: ours.last_timeline(phase) for phase in ("FORWARD", "BACKWARD")}
    tasks = {task["task"]: 1e3 * (task["endS"] - task["startS"]) for span in spans.values() for task in span}
    longest = {phase: 1e3 * max(task["endS"] for task in span) for phase, span in spans.items()}
    ours.close()
    return {"name": name, "capacityFactor": capacity_factor, "apart": off, **found, "tasksMs": tasks, "spansMs": longest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", default="mixtral-8x7b,qwen3-30b-a3b,qwen3-30b-a3b-ep8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="where the rows go, with each task's time")
    options = parser.parse_args()
    world = moeplan.torch.init(device=options.device)
    rows = []
    print(f"{'layer':>20} {'factor':>6} {'moeplan':>9} {'host':>8} {'PyTorch':>9} {'host':>8} {'ours/plain':>10} {'apart':>8}")
    for name in options.sizes.split(","):
        for factor in (1.25, 0.0):
            row = bench(name, world, factor, options.rounds)
            rows.append(row)
            ours, plain = row["moeplan"], row["plain"]
            print(
                f"{name:>20} {factor or 'none':>6} {ours['stepMs']:>6.2f} ms {ours['hostMs']:>5.2f} ms {plain['stepMs']:>6.2f} ms"
                f" {plain['hostMs']:>5.2f} ms {ours['stepMs'] / plain['stepMs']:>10.2f} {row['apart']:>8.1e}",
                flush=True,
            )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
