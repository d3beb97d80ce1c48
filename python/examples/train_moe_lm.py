#!/usr/bin/env python3
"""Trains a small GPT-2-like language model whose every second layer is a Mixture of Experts.

The MoE layers are plain PyTorch (--layer plain), moeplan's executor under DeepSpeed-MoE's schedule (--layer baseline), or
under a plan (--layer planned, with --plan FILE or --planner HOST:PORT). All see the same batches, capacity and gradient
sums, so all learn the same model; --check compares them step by step.

Run it as the ranks of a job:

    moeplan launch --local 4 -- python3 python/examples/train_moe_lm.py --layer planned --plan plan.json

Prints a line every --log steps: loss, tokens/s of the job, and what the MoE layers took beside what their plan predicts.
"""

from __future__ import annotations

import argparse
import datetime
import glob
import json
import math
import os
import statistics
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import moeplan
import moeplan.torch

# Debian's own: they change rarely, and every system has them.
TEXT = "/usr/share/common-licenses/*"
VOCABULARY = 256  # Bytes.
SCHEDULES = ("BASELINE", "BASELINE_TP", "PARM_S1", "PARM_S2", "MONTA_O1", "MONTA_O2", "MONTA_O3", "PIPELINE")


class Job:
    """Who this rank is, and the groups that the model's dense layers use."""

    def __init__(self, tensor_parallel: int, expert_parallel: int) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.tensor_parallel = tensor_parallel
        self.expert_parallel = expert_parallel
        self.batch = self.rank // tensor_parallel
        self.batches = self.ranks // tensor_parallel
        self.tensor_index = self.rank % tensor_parallel
        holders = tensor_parallel * expert_parallel  # Experts are cut over the tensor-parallel ranks.
        self.tensor_group = self._own([range(i, i + tensor_parallel) for i in range(0, self.ranks, tensor_parallel)])
        self.data_group = self._own([range(i, self.ranks, tensor_parallel) for i in range(tensor_parallel)])
        self.replica_group = self._own([range(i, self.ranks, holders) for i in range(holders)])
        self.expert_group = self._own(
            [
                range(first + i, first + holders, tensor_parallel)
                for first in range(0, self.ranks, holders)
                for i in range(tensor_parallel)
            ]
        )

    def _own(self, groups: list[range]) -> Any:
        made = [(ranks, dist.new_group(list(ranks)) if len(ranks) > 1 else None) for ranks in groups]
        return next(group for ranks, group in made if self.rank in ranks)


class _SumGradients(torch.autograd.Function):
    """The same on all tensor-parallel ranks; their gradients are parts."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _SumParts(torch.autograd.Function):
    """Parts on tensor-parallel ranks; their sum on all."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


def sum_gradients(x: torch.Tensor, group: Any) -> torch.Tensor:
    return x if group is None else _SumGradients.apply(x, group)


def sum_parts(x: torch.Tensor, group: Any) -> torch.Tensor:
    return x if group is None else _SumParts.apply(x, group)


class _AllToAll(torch.autograd.Function):
    """Equal parts to and from every rank of a group."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x.contiguous(), group=group)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _AllToAll.apply(gradient, ctx.group), None


def all_to_all(x: torch.Tensor, group: Any) -> torch.Tensor:
    return x if group is None else _AllToAll.apply(x, group)


def drawn(name: str, shape: tuple[int, ...], bound: float) -> torch.Tensor:
    """A whole tensor that depends on its name alone, so that every layout cuts the same model."""
    generator = torch.Generator().manual_seed(sum(ord(c) * 31**i for i, c in enumerate(name)) % 2**31)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


class Attention(nn.Module):
    def __init__(self, job: Job, name: str, model: int, heads: int) -> None:
        super().__init__()
        self.job, self.heads = job, heads // job.tensor_parallel
        own = model // job.tensor_parallel
        part = slice(job.tensor_index * own, (job.tensor_index + 1) * own)
        bound = 1 / math.sqrt(model)
        self.qkv = nn.Parameter(drawn(f"{name}.qkv", (3, model, model), bound)[:, part].reshape(3 * own, model).clone())
        self.out = nn.Parameter(drawn(f"{name}.out", (model, model), bound)[:, part].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        x = sum_gradients(x, self.job.tensor_group)
        q, k, v = (x @ self.qkv.T).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        return sum_parts(y @ self.out.T, self.job.tensor_group)


class Mlp(nn.Module):
    def __init__(self, job: Job, name: str, model: int, hidden: int) -> None:
        super().__init__()
        self.job = job
        own = hidden // job.tensor_parallel
        part = slice(job.tensor_index * own, (job.tensor_index + 1) * own)
        self.up = nn.Parameter(drawn(f"{name}.up", (model, hidden), 1 / math.sqrt(model))[:, part].clone())
        self.down = nn.Parameter(drawn(f"{name}.down", (hidden, model), 1 / math.sqrt(hidden))[part].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = sum_gradients(x, self.job.tensor_group)
        return sum_parts(nn.functional.gelu(x @ self.up) @ self.down, self.job.tensor_group)


class PlainMoELayer(nn.Module):
    """The layer as PyTorch users write it: tokens to slots by index, all-to-all, batched products, all-to-all back.

    Parameters have the names and shapes of moeplan.torch.MoELayer's.
    """

    def __init__(self, job: Job, layer: dict[str, Any], like: moeplan.torch.MoELayer) -> None:
        super().__init__()
        self.job, self.layer = job, layer
        for name, value in like.named_parameters():
            parameter = nn.Parameter(value.detach().clone())
            parameter.allreduce = getattr(value, "allreduce", True)
            self.register_parameter(name, parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        experts, k = self.layer["experts"], self.layer["topK"]
        rows = sum_gradients(x.reshape(-1, x.shape[-1]), self.job.tensor_group)
        tokens, model = rows.shape
        slots = max(1, math.ceil(k * self.layer["capacityFactor"] * tokens / experts - 1e-9))
        probabilities = (rows @ sum_gradients(self.gate, self.job.tensor_group).T).softmax(-1)
        weights, chosen = probabilities.topk(k, -1)
        if k > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        taken = nn.functional.one_hot(chosen.flatten(), experts)
        place = (taken.cumsum(0) * taken).sum(-1) - 1  # Of every pair among those of its expert.
        kept = place < slots
        slot = (chosen.flatten() * slots + place)[kept]
        token = torch.arange(tokens * k).div(k, rounding_mode="floor")[kept]
        sent = torch.zeros(experts * slots, model).index_copy(0, slot, rows[token])
        got = all_to_all(sent, self.job.expert_group)
        own = experts // self.job.expert_parallel
        got = got.view(self.job.expert_parallel, own, slots, model).transpose(0, 1).reshape(own, -1, model)
        done = torch.bmm(nn.functional.gelu(torch.bmm(got, self.up)), self.down)
        done = done.view(own, self.job.expert_parallel, slots, model).transpose(0, 1).reshape(experts * slots, model)
        back = all_to_all(done, self.job.expert_group)
        parts = back[slot] * weights.flatten()[kept].unsqueeze(-1)
        y = torch.zeros_like(rows).index_add(0, token, parts)
        return sum_parts(y, self.job.tensor_group).view_as(x)


class Block(nn.Module):
    def __init__(self, job: Job, name: str, options: argparse.Namespace, mlp: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(options.model), nn.LayerNorm(options.model)
        self.attention = Attention(job, name, options.model, options.heads)
        self.mlp = mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """Bytes in, the loss of the next ones out. The head is tied to the embedding."""

    def __init__(self, job: Job, options: argparse.Namespace, make_moe: Any) -> None:
        super().__init__()
        self.tokens = nn.Parameter(drawn("tokens", (VOCABULARY, options.model), 0.04))
        self.places = nn.Parameter(drawn("places", (options.length, options.model), 0.04))
        self.blocks = nn.ModuleList(
            Block(
                job,
                f"block{i}",
                options,
                make_moe(i) if i % 2 == 1 else Mlp(job, f"block{i}.mlp", options.model, 4 * options.model),
            )
            for i in range(options.layers)
        )
        self.norm = nn.LayerNorm(options.model)

    def moe_blocks(self) -> list[Block]:
        return [block for i, block in enumerate(self.blocks) if i % 2 == 1]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        x, targets = rows[:, :-1], rows[:, 1:]
        x = self.tokens[x] + self.places
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.tokens.T
        return nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def reduce_gradients(model: nn.Module, job: Job) -> None:
    """Means over all batches: of experts over the ranks that hold the same, of everything else over the batches."""
    for experts, group in ((False, job.data_group), (True, job.replica_group)):
        own = [p for p in model.parameters() if (getattr(p, "allreduce", True) is False) == experts and p.grad is not None]
        if not own:
            continue
        flat = torch.cat([p.grad.flatten() for p in own])
        if group is not None:
            dist.all_reduce(flat, group=group)
        flat /= job.batches
        for parameter, part in zip(own, flat.split([p.numel() for p in own])):
            parameter.grad.copy_(part.view_as(parameter))


class Text:
    """Random pieces of the text, by step and batch: every layout sees the same."""

    def __init__(self, pattern: str) -> None:
        files = sorted(path for path in glob.glob(pattern) if os.path.isfile(path) and not os.path.islink(path))
        if not files:
            raise SystemExit(f"train_moe_lm: --text: found no file like {pattern}")
        self.bytes = torch.frombuffer(bytearray(b"".join(open(path, "rb").read() for path in files)), dtype=torch.uint8)

    def rows(self, step: int, batch: int, count: int, length: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(step * 100003 + batch)
        starts = torch.randint(0, len(self.bytes) - length - 1, (count,), generator=generator)
        return torch.stack([self.bytes[start : start + length + 1] for start in starts]).long()


def workload_of(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "name": "train_moe_lm",
        "layer": {
            "batch": options.batch,
            "sequenceLength": options.length,
            "modelDim": options.model,
            "hiddenDim": options.hidden,
            "experts": options.experts,
            "topK": options.top_k,
            "capacityFactor": options.capacity_factor,
            "bytesPerElement": 4,
        },
        "layout": {
            "tensorParallel": options.tp,
            "expertParallel": options.ep,
            "expertShardingParallel": options.tp,
        },
        "minChunkBytes": options.min_chunk_bytes,
        "phase": "TRAINING",
    }


def with_schedule(options: argparse.Namespace, schedule: str) -> dict[str, Any]:
    return {"workload": workload_of(options), "best": {"schedule": schedule, "chunks": 1, "partitionDegree": 1}}


class Trainer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.world = moeplan.torch.init(deadline_s=options.deadline)
        self.job = Job(options.tp, options.ep)
        self.text = Text(options.text)
        self.planner = self._planner()
        self.answer = self._plan()
        self.model = LanguageModel(self.job, options, self._make_moe)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
        self.others: dict[str, LanguageModel] = {}
        self.watch = None
        if self.planner is not None and self.job.rank == 0 and options.layer == "planned":
            self.watch = Watch(self.planner, self.answer)

    def _planner(self) -> moeplan.Planner | None:
        if not self.options.planner:
            return None
        cluster = {"nodes": self.world.nodes, "gpusPerNode": self.world.gpus_per_node}
        return moeplan.Planner(self.options.planner, cluster=cluster, deadline_s=10)

    def _plan(self) -> Any:
        """What rank 0 was told, on all ranks."""
        options = self.options
        found: list[Any] = [None]
        if self.job.rank == 0:
            if options.layer != "planned":
                found = [with_schedule(options, "BASELINE")]
            elif options.plan:
                with open(options.plan, encoding="utf-8") as file:
                    found = [json.load(file)]
            elif self.planner is not None:
                found = [self.planner.plan(workload_of(options))]
            else:
                raise SystemExit("train_moe_lm: --layer planned: found neither --plan nor --planner, expected one of them")
        dist.broadcast_object_list(found)
        return found[0]

    def _make_moe(self, number: int) -> nn.Module:
        layer = moeplan.torch.MoELayer(self.answer, self.world, seed=number)
        if self.options.layer != "plain":
            return layer
        plain = PlainMoELayer(self.job, workload_of(self.options)["layer"], layer)
        layer.close()
        return plain

    def take_new_plan(self) -> str:
        """A better plan that the planner has told meanwhile, taken between two steps; its name. Collective."""
        found: list[Any] = [self.watch.news() if self.watch else None]
        dist.broadcast_object_list(found)
        if found[0] is None:
            return ""
        self.answer = found[0]
        for number, block in enumerate(self.model.moe_blocks()):
            old = block.mlp
            new = moeplan.torch.MoELayer(self.answer, self.world, seed=number)
            # The parameters stay the optimizer's, with its state.
            for name, value in old.named_parameters():
                new.register_parameter(name, value)
            block.mlp = new
            old.close()
        return str(self.answer.best["schedule"])

    def step(self, number: int) -> float:
        """One step; the loss over all batches."""
        rows = self.text.rows(number, self.job.batch, self.options.batch, self.options.length)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(rows)
        loss.backward()
        reduce_gradients(self.model, self.job)
        self.optimizer.step()
        return self._mean(loss)

    def _mean(self, loss: torch.Tensor) -> float:
        total = loss.detach().clone()
        if self.job.data_group is not None:
            dist.all_reduce(total, group=self.job.data_group)
        return float(total) / self.job.batches

    def layer_time_s(self) -> float:
        """What an MoE layer took in the last step, both passes: the longest of all ranks."""
        layers = [block.mlp for block in self.model.moe_blocks() if isinstance(block.mlp, moeplan.torch.MoELayer)]
        took = []
        for layer in layers:
            spans = (layer.last_timeline(phase) for phase in ("FORWARD", "BACKWARD"))
            took.append(sum(max(task["endS"] for task in span) for span in spans))
        longest = torch.tensor(took or [0.0])
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        return float(longest.mean())

    def check(self, number: int) -> float:
        """Loss and gradients of this model's weights under every schedule and in plain PyTorch: how far they differ."""
        rows = self.text.rows(number, self.job.batch, self.options.batch, self.options.length)
        worst, reference = 0.0, None
        state = self.model.state_dict()
        for name in ("plain", *SCHEDULES):
            if name not in self.others:
                try:
                    self.others[name] = LanguageModel(self.job, self.options, lambda i, name=name: self._other(i, name))
                except moeplan.Infeasible:
                    continue  # Such as BASELINE_TP where ESP is not TP.
            other = self.others[name]
            other.load_state_dict(state)
            other.zero_grad(set_to_none=True)
            loss = other(rows)
            loss.backward()
            reduce_gradients(other, self.job)
            found = {key: value.grad for key, value in other.named_parameters()}
            found["loss"] = torch.tensor(self._mean(loss))
            reference = reference or found
            for key, value in found.items():
                if not torch.isfinite(value).all():
                    worst = math.inf
                    continue
                scale = float(reference[key].abs().max()) or 1.0
                worst = max(worst, float((value - reference[key]).abs().max()) / scale)
        total = torch.tensor(worst)
        dist.all_reduce(total, op=dist.ReduceOp.MAX)
        return float(total)

    def _other(self, number: int, name: str) -> nn.Module:
        plan = with_schedule(self.options, "BASELINE" if name == "plain" else name)
        layer = moeplan.torch.MoELayer(plan, self.world, seed=number)
        return PlainMoELayer(self.job, plan["workload"]["layer"], layer) if name == "plain" else layer

    def report(self) -> None:
        """Tells the planner how the last step's layers ran."""
        for block in self.model.moe_blocks():
            report = block.mlp.run_report() if isinstance(block.mlp, moeplan.torch.MoELayer) else None
            if self.planner is None or self.job.rank != 0 or report is None or not self.options.layer == "planned":
                continue
            try:
                self.planner.report_run(report)
            except moeplan.Error as error:
                print(f"the planner took no report: {error}", file=sys.stderr)


class Watch:
    """Better plans that a planner tells, collected by a thread."""

    def __init__(self, planner: moeplan.Planner, answer: moeplan.Answer) -> None:
        import threading

        self._news: list[moeplan.Answer] = []
        self._watch = planner.watch(answer)
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        try:
            for answer in self._watch:
                self._news.append(answer)
        except moeplan.Error as error:
            print(f"no better plans will be told: {error}", file=sys.stderr)

    def news(self) -> moeplan.Answer | None:
        """The last that came since it was asked; each is better than those before."""
        news, self._news = self._news, []
        return news[-1] if news else None


def predicted_s(answer: Any) -> float:
    best = answer["best"] if isinstance(answer, dict) else answer.best
    return float(best.get("predictedTimeS", 0))


def train(options: argparse.Namespace) -> None:
    trainer = Trainer(options)
    job = trainer.job
    tokens = job.batches * options.batch * options.length
    if job.rank == 0:
        count = sum(p.numel() for p in trainer.model.parameters())
        best = trainer.answer["best"] if isinstance(trainer.answer, dict) else trainer.answer.best
        schedule = "PyTorch" if options.layer == "plain" else best["schedule"]
        print(f"{job.ranks} ranks, {count / 1e6:.1f} M parameters on each, MoE layers by {schedule}", flush=True)
    took: list[float] = []
    layers: list[float] = []
    for number in range(options.steps):
        began = time.perf_counter()
        loss = trainer.step(number)
        took.append(time.perf_counter() - began)
        layers.append(trainer.layer_time_s())
        if options.check and number % options.check == 0:
            off = trainer.check(number)
            if job.rank == 0:
                print(f"step {number}: plain PyTorch and every schedule agree within {off:.1e}", flush=True)
            assert off <= 1e-5, f"schedules differ by {off:.3g}"
        if options.planner and options.layer == "planned" and (number + 1) % options.log == 0:
            trainer.report()
            name = trainer.take_new_plan()
            if name and job.rank == 0:
                print(f"step {number}: takes the new plan {name}", flush=True)
        if (number + 1) % options.log == 0 and job.rank == 0:
            step_s = statistics.median(took[-options.log :])
            line = f"step {number + 1}: loss {loss:.4f}, {tokens / step_s:,.0f} tokens/s, step {step_s * 1e3:.1f} ms"
            if options.layer != "plain":
                layer_ms = statistics.median(layers[-options.log :]) * 1e3
                line += f", MoE layer {layer_ms:.2f} ms"
                if predicted_s(trainer.answer) > 0:
                    line += f" ({predicted_s(trainer.answer) * 1e3:.2f} predicted)"
            print(line, flush=True)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--layer", choices=("plain", "baseline", "planned"), default="plain")
    parser.add_argument("--plan", help="what `moeplan plan --json` printed of this job's workload")
    parser.add_argument("--planner", help="HOST:PORT of `moeplan serve`, to ask, to report to and to be told better plans")
    parser.add_argument("--print", choices=("workload", "grid"), help="print what `moeplan` is asked for the layer, and end")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks, over which experts are cut as well")
    parser.add_argument("--ep", type=int, default=2, help="expert-parallel ranks")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--log", type=int, default=10, help="print a line every so many steps")
    parser.add_argument("--check", type=int, default=0, help="compare all schedules every so many steps; 0: never")
    parser.add_argument("--text", default=TEXT, help="files to learn (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--model", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256, help="of an expert")
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--capacity-factor", type=float, default=1.25)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a source batch")
    parser.add_argument("--length", type=int, default=64, help="of a sequence, in bytes of text")
    parser.add_argument("--min-chunk-bytes", type=float, default=16384)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--deadline", type=float, default=30.0, help="of each collective, in seconds")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    if options.print:
        workload = workload_of(options)
        print(json.dumps(workload if options.print == "workload" else {"workloads": [workload]}, indent=2))
        return
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4 * options.deadline))
    train(options)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
