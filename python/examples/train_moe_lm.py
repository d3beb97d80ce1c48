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
import contextlib
import datetime
import glob
import json
import math
import os
import statistics
import sys
import time
from typing import Any, Iterable

import torch
import torch.distributed as dist
from moe_lm import VOCABULARY, Job, LanguageModel, PlainMoELayer, reduce_gradients
from torch import nn

import moeplan
import moeplan.torch

# Debian's own: they change rarely, and every system has them.
TEXT = "/usr/share/common-licenses/*"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Tasks that bring rows to other ranks.
EXCHANGES = ("ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER", "ALL_REDUCE")
# How far loss and gradients of two schedules may be apart (`apart`).
AGREE = {"float32": 1e-5, "bfloat16": 1e-2}
SCHEDULES = ("BASELINE", "BASELINE_TP", "PARM_S1", "PARM_S2", "MONTA_O1", "MONTA_O2", "MONTA_O3", "PIPELINE")


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


def apart(found: dict[str, torch.Tensor], reference: dict[str, torch.Tensor], dtype: str) -> float:
    """How far loss and gradients differ: in float32 any element, as a part of its tensor's largest.

    Rounded to BF16 a token now and then takes another expert, which some elements show: the loss, and all gradients as one
    vector, as a part of its length.
    """
    if not all(value.isfinite().all() for value in found.values()):
        return math.inf
    if dtype == "float32":
        return max(
            float((found[key] - value).abs().max()) / (float(value.abs().max()) or 1.0) for key, value in reference.items()
        )
    loss = abs(float(found["loss"] / reference["loss"]) - 1)
    names = [name for name in reference if name != "loss"]
    difference = torch.cat([(found[name] - reference[name]).float().flatten() for name in names]).norm()
    return max(loss, float(difference / torch.cat([reference[name].float().flatten() for name in names]).norm()))


def covered_s(tasks: Iterable[dict[str, Any]]) -> float:
    """How long at least one of them ran."""
    covered, until = 0.0, 0.0
    for task in sorted(tasks, key=lambda task: task["startS"]):
        covered += max(0.0, task["endS"] - max(until, task["startS"]))
        until = max(until, task["endS"])
    return covered


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
            "bytesPerElement": 4 if options.dtype == "float32" else 2,
        },
        "layout": {
            "tensorParallel": options.tp,
            "expertParallel": options.ep,
            "expertShardingParallel": options.tp,
            "contextParallel": options.cp,
        },
        "minChunkBytes": options.min_chunk_bytes,
        "phase": "TRAINING",
    }


def model_of(options: argparse.Namespace) -> dict[str, Any]:
    """The model as a Hugging Face config, which `moeplan layout` and `step` read. Its experts have a third matrix."""
    return {
        "model_type": "qwen2_moe",
        "hidden_size": options.model,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.heads,
        "intermediate_size": 4 * options.model,
        "moe_intermediate_size": options.hidden,
        "num_experts": options.experts,
        "num_experts_per_tok": options.top_k,
        "decoder_sparse_step": 2,
        "shared_expert_intermediate_size": 0,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": True,
    }


def with_schedule(options: argparse.Namespace, schedule: str) -> dict[str, Any]:
    """A plan of that schedule, in two pieces where it has any."""
    chunks = 2 if schedule in ("MONTA_O2", "MONTA_O3") else 1
    degree = 2 if schedule in ("PARM_S1", "PARM_S2", "PIPELINE") else 1
    return {"workload": workload_of(options), "best": {"schedule": schedule, "chunks": chunks, "partitionDegree": degree}}


class Trainer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.world = moeplan.torch.init(deadline_s=options.deadline, device=options.device)
        self.job = Job(options.tp, options.cp, options.ep, options.cp_order == "horizontal")
        self.text = Text(options.text)
        self.planner = self._planner()
        self.answer = self._plan()
        self.model = self._model(self._make_moe)
        self.masters = {p: p.detach().float() for p in self.model.parameters() if p.dtype != torch.float32}
        updated = [self.masters.get(p, p) for p in self.model.parameters()]
        self.optimizer = torch.optim.AdamW(updated, lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
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

    def _model(self, make_moe: Any) -> LanguageModel:
        o = self.options
        model = LanguageModel(self.job, o.layers, o.model, o.heads, o.length, make_moe, DTYPES[o.dtype])
        return model.to(self.world.device)

    def _make_moe(self, number: int) -> nn.Module:
        layer = moeplan.torch.MoELayer(self.answer, self.world, seed=number, dtype=DTYPES[self.options.dtype])
        return self._plain(layer) if self.options.layer == "plain" else layer

    def _plain(self, like: moeplan.torch.MoELayer) -> PlainMoELayer:
        """The same weights in plain PyTorch, in the place of ``like``."""
        layer, o = workload_of(self.options)["layer"], self.options
        plain = PlainMoELayer(self.job, layer, dict(like.named_parameters()), o.plain_chunks, o.plain_receives_first)
        like.close()
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
            new = moeplan.torch.MoELayer(self.answer, self.world, seed=number, dtype=old.dtype)
            # The parameters stay the optimizer's, with its state.
            for name, value in old.named_parameters():
                new.register_parameter(name, value)
            block.mlp = new
            old.close()
        return str(self.answer.best["schedule"])

    def scheduled(self) -> contextlib.AbstractContextManager[None]:
        """Steps that run inside follow the plan of --lancet."""
        if not self.options.lancet:
            return contextlib.nullcontext()
        with open(self.options.lancet, encoding="utf-8") as file:
            return moeplan.torch.scheduled(self.model, json.load(file), without=self.options.without)

    def step(self, number: int) -> float:
        """One step; the loss over all sources and micro-batches."""
        self.model.zero_grad(set_to_none=True)
        parts = self.options.accumulate

        def loss_of(part: int) -> torch.Tensor:
            return self.model(self._rows(number * parts + part)) / parts

        total = torch.zeros((), device=self.world.device)
        if self.options.overlap:
            total += sum(moeplan.torch.micro_batches(self.world, loss_of, parts))
        else:
            for part in range(parts):
                loss = loss_of(part)
                loss.backward()
                total += loss.detach()
        reduce_gradients(self.model, self.job)
        self._update()
        return self._mean(total)

    def _update(self) -> None:
        """The optimizer's step: of weights in BF16 on copies in float, which keep what a small step changes."""
        for parameter, master in self.masters.items():
            master.grad = parameter.grad.float()
        self.optimizer.step()
        with torch.no_grad():
            for parameter, master in self.masters.items():
                parameter.copy_(master)

    def _rows(self, number: int) -> torch.Tensor:
        return self.text.rows(number, self.job.batch, self.options.batch, self.options.length).to(self.world.device)

    def _mean(self, loss: torch.Tensor) -> float:
        total = loss.detach().clone()
        if self.job.dense_group is not None:
            dist.all_reduce(total, group=self.job.dense_group)
        return float(total) / self.job.sources

    def layer_times_s(self) -> tuple[float, float]:
        """What an MoE layer took in the last micro-batch, both passes, and its exchanges in that: each the longest of all
        ranks, and the mean of the layers."""
        layers = [block.mlp for block in self.model.moe_blocks() if isinstance(block.mlp, moeplan.torch.MoELayer)]
        took, exchanged = [0.0] * len(layers), [0.0] * len(layers)
        for i, layer in enumerate(layers):
            for phase in ("FORWARD", "BACKWARD"):
                tasks = layer.last_timeline(phase)
                took[i] += max(task["endS"] for task in tasks)
                exchanged[i] += covered_s(task for task in tasks if task["kind"] in EXCHANGES)
        longest = torch.tensor([took or [0.0], exchanged or [0.0]], device=self.world.device)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        whole, exchanges = longest.mean(1).tolist()
        return whole, exchanges

    def check(self, number: int) -> float:
        """Loss and gradients of this model's weights in plain PyTorch, under every schedule, and as it trains: how far they
        differ."""
        rows = self._rows(number * self.options.accumulate)
        worst, reference = 0.0, None
        state = self.model.state_dict()
        for name in ("plain", *SCHEDULES, "own"):
            if name == "own":
                other = self.model
            elif name not in self.others:
                other = self.others[name] = self._model(lambda i, name=name: self._other(i, name))
            else:
                other = self.others[name]
            if other is not self.model:
                other.load_state_dict(state)
            other.zero_grad(set_to_none=True)
            loss = other(rows)
            loss.backward()
            reduce_gradients(other, self.job)
            found = {key: value.grad for key, value in other.named_parameters()}
            found["loss"] = torch.tensor(self._mean(loss))
            reference = reference or found
            worst = max(worst, apart(found, reference, self.options.dtype))
        total = torch.tensor(worst, device=self.world.device)
        dist.all_reduce(total, op=dist.ReduceOp.MAX)
        return float(total)

    def _other(self, number: int, name: str) -> nn.Module:
        plan = with_schedule(self.options, "BASELINE" if name == "plain" else name)
        layer = moeplan.torch.MoELayer(plan, self.world, seed=number, dtype=DTYPES[self.options.dtype])
        return self._plain(layer) if name == "plain" else layer

    def capture(self, path: str) -> str:
        """Writes the training graph of a micro-batch to a file, on rank 0; says how long the micro-batch takes. Collective."""
        rows, took = self._rows(0), []
        for _ in range(7):
            self.model.zero_grad(set_to_none=True)
            dist.barrier()
            began = time.perf_counter()
            self.model(rows).backward()
            took.append(time.perf_counter() - began)
        began = time.perf_counter()
        graph = moeplan.torch.capture(self.model, rows, None, self.world)
        capture_s = time.perf_counter() - began
        if self.job.rank == 0:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(graph, file)
        return (
            f"{len(graph['instructions'])} instructions, {graph.timed} operators timed in {capture_s:.1f} s; "
            f"forward and back take {statistics.median(took[2:]) * 1e3:.1f} ms"
        )

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
    tokens = job.sources * options.accumulate * options.batch * options.length // options.cp
    if job.rank == 0:
        count = sum(p.numel() for p in trainer.model.parameters())
        best = trainer.answer["best"] if isinstance(trainer.answer, dict) else trainer.answer.best
        schedule = "PyTorch" if options.layer == "plain" else best["schedule"]
        print(f"{job.ranks} ranks, {count / 1e6:.1f} M parameters on each, MoE layers by {schedule}", flush=True)
    if options.capture:
        for number in range(options.capture_after):
            trainer.step(number)
        said = trainer.capture(options.capture)
        if job.rank == 0:
            print(said, flush=True)
        return
    with trainer.scheduled():
        record = steps(trainer, tokens)
    if options.record and job.rank == 0:
        with open(options.record, "w", encoding="utf-8") as file:
            json.dump(record, file)


def steps(trainer: Trainer, tokens: int) -> dict[str, Any]:
    """Runs them, of so many tokens each; gives losses and times."""
    options, job = trainer.options, trainer.job
    losses: list[float] = []
    took: list[float] = []
    layers: list[float] = []
    exchanges: list[float] = []
    for number in range(options.steps):
        began = time.perf_counter()
        loss = trainer.step(number)
        took.append(time.perf_counter() - began)
        losses.append(loss)
        layer_s, exchange_s = trainer.layer_times_s()
        layers.append(layer_s)
        exchanges.append(exchange_s)
        if options.check and number % options.check == 0:
            off = trainer.check(number)
            if job.rank == 0:
                print(f"step {number}: plain PyTorch and {len(SCHEDULES)} schedules agree within {off:.1e}", flush=True)
            assert off <= AGREE[options.dtype], f"schedules differ by {off:.3g}"
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
    return {"losses": losses, "stepS": took, "moeLayerS": layers, "exchangeS": exchanges, "predictedMoeLayerS": predicted_s(trainer.answer)}


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--layer", choices=("plain", "baseline", "planned"), default="plain")
    parser.add_argument("--plan", help="what `moeplan plan --json` printed of this job's workload")
    parser.add_argument("--planner", help="HOST:PORT of `moeplan serve`, to ask, to report to and to be told better plans")
    parser.add_argument("--print", choices=("workload", "grid", "model"), help="print what `moeplan` is asked with, and end")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks, over which experts are cut as well")
    parser.add_argument("--cp", type=int, default=1, help="context-parallel ranks, over which sequences are cut")
    parser.add_argument(
        "--cp-order",
        choices=("vertical", "horizontal"),
        default="vertical",
        help="whether the ranks of a context group lie side by side, or the expert-parallel ranks between them",
    )
    parser.add_argument("--ep", type=int, help="expert-parallel ranks (default: all of four ranks that TP and CP leave)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the ranks run, a card each where they last")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32", help="of the MoE layers' rows and weights")
    parser.add_argument("--plain-chunks", type=int, default=1, help="parts of plain's all-to-all, beside its products")
    parser.add_argument("--plain-receives-first", action="store_true", help="plain posts its receives before it sends")
    parser.add_argument("--record", metavar="FILE", help="write losses and times of every step there, as JSON")
    parser.add_argument("--capture", metavar="FILE", help="write the training graph of a micro-batch there, and end")
    parser.add_argument("--capture-after", type=int, default=0, metavar="STEPS", help="train so long before; routing drifts meanwhile")
    parser.add_argument("--lancet", metavar="FILE", help="what `moeplan plan --graph GRAPH --json` printed of --capture's graph: run steps so")
    parser.add_argument("--without", action="append", default=[], choices=("weight-gradients", "partition"), help="leave that of it")
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
    parser.add_argument("--capacity-factor", type=float, default=1.25, help="0: no pair is dropped")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a source batch")
    parser.add_argument("--length", type=int, default=128, help="of a sequence, in bytes of text")
    parser.add_argument("--min-chunk-bytes", type=float, default=16384)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches whose gradients a step adds up")
    parser.add_argument(
        "--overlap",
        action="store_true",
        help="run the backward pass of each micro-batch beside the forward pass of the next",
    )
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--deadline", type=float, default=30.0, help="of each collective, in seconds")
    options = parser.parse_args()
    if options.capture and (options.layer == "plain" or options.tp * options.cp > 1):
        parser.error("--capture: found plain layers, --tp or --cp, whose exchanges are autograd functions, expected moeplan's")
    if options.capture_after and not options.capture:
        parser.error("--capture-after: found no --capture, expected the file that it writes after so many steps")
    if options.lancet and (options.layer == "plain" or options.tp * options.cp > 1 or options.overlap or options.planner):
        parser.error("--lancet: found plain layers, --tp, --cp, --overlap or --planner, expected layers that stay as --capture took them")
    if options.without and not options.lancet:
        parser.error("--without: found no --lancet, expected the plan that it leaves something of")
    if options.overlap and options.layer == "plain":
        parser.error("--overlap: found --layer plain, expected baseline or planned")
    if options.overlap and options.accumulate < 2:
        parser.error("--overlap: found one micro-batch, expected --accumulate 2 or more")
    if options.ep is None:
        options.ep = max(1, 4 // (options.tp * options.cp))
    return options


def main() -> None:
    options = read_options()
    if options.print:
        workload = workload_of(options)
        asked = {"workload": workload, "grid": {"workloads": [workload]}, "model": model_of(options)}
        print(json.dumps(asked[options.print], indent=2))
        return
    torch.manual_seed(0)
    backend = "gloo"
    if options.device == "cuda":
        cards = torch.cuda.device_count()
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % cards)
        if cards >= int(os.environ.get("LOCAL_WORLD_SIZE", "1")):
            backend = "nccl"
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=4 * options.deadline))
    train(options)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
