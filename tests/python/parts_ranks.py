"""What the ranks of parts_test.py run: forward passes with ranges in parts, as rank_process.py says."""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import types

import torch
import torch.utils.checkpoint
from capture_ranks import model_of, tokens_of
from scheduled_order_ranks import expect_untouched
from scheduled_ranks import BESIDE, IN_PIECES, Runs, answer_of, can_wait, plan_of
from torch_ranks import FAMILIES, close, expect_raises

import moeplan
import moeplan.torch
from moeplan.torch import deferred, forward_in_parts, layer, layer_functions
from moeplan.torch.step_inputs import Arguments
from moeplan.torch.tracer import trace_forward

BATCH = 5


def cut(*ranges, beside=None):
    """An answer with ranges (first, last, parts)."""
    partitions = [{"first": first, "last": last, "parts": parts, "timeS": 1} for first, last, parts in ranges]
    return answer_of(beside or {}, partitions=partitions)


class PartedRuns(Runs):
    """Models whose ranges of the forward pass are in parts, and the same without: batches of five samples."""

    def __init__(self, world, answer, layer_fields=None, plan=None, **model):
        plan = plan or plan_of(world.ranks, batch=BATCH, **(layer_fields or {}))
        super().__init__(world, plan=plan, **model)
        self.answer = answer

    def text(self, seed):
        generator = torch.Generator().manual_seed(100 * seed + self.world.rank)
        return torch.randint(0, 16, (BATCH, 9), generator=generator).to(self.world.device)

    def expect_close(self, seeds=(1, 2), tolerance=1e-5, **how):
        for seed in seeds:
            losses = self.step(self.plain, seed, **how)
            after = torch.get_rng_state()
            with moeplan.torch.scheduled(self.planned, self.answer):
                found = self.step(self.planned, seed, **how)
            close(torch.stack(found), torch.stack(losses), "loss", tolerance)
            self.compare(tolerance=tolerance)
            assert torch.equal(torch.get_rng_state(), after), "dropout has drawn as without"


class Rows(torch.nn.Module):
    """A layer that gets rows [tokens, M], by name."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x=x.reshape(-1, x.shape[-1])).view_as(x)


class SamplesInside(torch.nn.Module):
    """Gives its layer [length, batch, M], as models do whose sequences come first."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.transpose(0, 1)).transpose(0, 1)


def patch(block, calls):
    """Has the block do something to its input first, under its own name."""
    kind = type(block)
    block.__class__ = type("Patched", (kind,), {"forward": lambda self, x: kind.forward(self, calls(x))})


def dropped_in_place(x):
    torch.nn.functional.dropout(x, 0.3, True, True)
    return x


class CountingNorm(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(model))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.weight * x


WHOLE = ("blocks.0.norm1", "blocks.3.add_1", 2)


def gradients(world):
    """Losses, gradients and random states are those without, whatever is cut."""
    for ranges in (
        [WHOLE],
        [("blocks.1.mlp.gate", "blocks.1.mlp.combine", 2)],
        [("blocks.0.attention.dropout", "blocks.2.attention.softmax", 5)],
        [("blocks.0.norm1", "blocks.0.add", 3), ("blocks.1.norm2", "blocks.3.mlp.combine", 4)],
        [("blocks.1.mlp.all_to_all1", "blocks.1.mlp.all_to_all2", 3)],  # The layer as a whole.
        [("blocks.1.norm2", "blocks.1.mlp.experts", 2), ("blocks.1.mlp.all_to_all2", "blocks.2.norm1", 3)],  # One range.
        [("tokens", "head", 2)],
    ):
        PartedRuns(world, cut(*ranges), dropout=0.3).expect_close()
    runs = PartedRuns(world, cut(WHOLE))
    for model in runs.models:
        model.blocks[1].mlp = Rows(model.blocks[1].mlp)
    runs.expect_close()
    runs = PartedRuns(world, cut(WHOLE), layer_fields={"capacityFactor": 0.0})
    for model in runs.models:
        model.blocks[1].mlp = SamplesInside(model.blocks[1].mlp)
        model.blocks[3].mlp = model.blocks[1].mlp  # One layer for both.
    runs.expect_close()
    relu, dropout = torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.3, inplace=True)
    for calls in (
        lambda x: x + torch.nn.functional.relu(2 * x, inplace=True),
        lambda x: (x * 2).add_(x),
        lambda x: (x + 1).relu_(),
        lambda x: relu(x * 3),
        lambda x: x + dropout(x * 3),
        lambda x: x + dropped_in_place(x * 2),
        lambda x: torch.dropout(x, 0.3, True),
        lambda x: x + torch.nn.functional.dropout2d(x.unsqueeze(1), 0.3).squeeze(1),
    ):
        runs = PartedRuns(world, cut(WHOLE), dropout=0.3)
        for model in runs.models:
            patch(model.blocks[2], calls)
        runs.expect_close()
    # What mixes samples in front of a range is cut where the range reads it, and more parts than samples are as many.
    for ranges in ([("blocks.2.norm1", "blocks.3.add_1", 2)], [("blocks.2.norm1", "blocks.3.add_1", 7)]):
        runs = PartedRuns(world, cut(*ranges))
        for model in runs.models:
            patch(model.blocks[2], lambda x: x + x.flip(0))
        runs.expect_close()
    for fields in (
        {"capacityFactor": 0.5},  # Many pairs are dropped, and the same ones.
        {"capacityFactor": 0.0},
        {"sharedHiddenDim": 8},
        {"router": {"bias": True}, "auxLossCoefficient": 0.1, "zLossCoefficient": 0.01},
    ):
        PartedRuns(world, cut(WHOLE), layer_fields=fields, dropout=0.3).expect_close(parts=2)


def with_weight_gradients(world):
    """Both passes of a plan at once, under every family of schedules."""
    runs = PartedRuns(world, cut(WHOLE, beside=BESIDE), dropout=0.3)
    runs.expect_close()
    runs.expect_close(parts=2)
    for schedule in FAMILIES:
        plan = plan_of(world.ranks, batch=BATCH)
        pieces = {"chunks": 2} if schedule.startswith("MONTA") else {"partitionDegree": 2}
        plan["best"] = {"schedule": schedule, "chunks": 1, "partitionDegree": 1, **(pieces if schedule in IN_PIECES else {})}
        PartedRuns(world, cut(WHOLE, beside=BESIDE), plan=plan).expect_close(seeds=(1,))
    expect_untouched(runs.planned)


def random_plans(world, draws, seed):
    """Any ranges, any weight gradients that wait."""
    draw = random.Random(seed)
    for number in range(draws):
        plan = plan_of(world.ranks, batch=BATCH, capacityFactor=draw.choice([0.0, 0.7]), sharedHiddenDim=draw.choice([0, 4]))
        runs = PartedRuns(world, None, plan=plan, layers=6, dropout=0.2)
        ids = ids_of(runs)
        places = sorted(draw.sample(range(len(ids)), 2 * draw.randint(1, 3)))
        ranges = [(ids[a], ids[b], draw.randint(1, BATCH)) for a, b in zip(places[::2], places[1::2])]
        exchanges = [f"blocks.{i}.mlp.all_to_all{n}.dx" for i in (1, 3, 5) for n in (1, 2)]
        able = [name for name, one in runs.plain.named_modules() if can_wait(one)]
        beside = {exchange: [] for exchange in exchanges}
        for name in draw.sample(able, draw.randint(0, len(able))):
            beside[draw.choice(exchanges)].append(f"{name}.dw")
        for i in (3, 5):
            beside[f"blocks.{i - 2}.mlp.all_to_all{draw.choice([1, 2])}.dx"] += [f"blocks.{i}.mlp.experts.dw"] * draw.randint(0, 1)
        runs.answer = cut(*ranges, beside=beside)
        try:
            runs.expect_close(parts=draw.randint(1, 2))
        except BaseException:
            print(number, plan, runs.answer, file=sys.stderr)
            raise


def ids_of(runs):
    """Those of the forward pass that a plan could name, between the embedding and the loss, by instruction."""
    traced = trace_forward(runs.plain, Arguments((runs.text(1),), {}), runs.plain.forward)
    able = list(itertools.takewhile(lambda one: one.samples, traced.instructions))
    return [one.id if one.layer is None else f"{one.id}.experts" for one in able]


def turns(world):
    """While a part's rows are on their way the next part computes, forward and back; random draws come once."""
    runs = PartedRuns(world, cut(("blocks.0.norm1", "blocks.3.add_1", 3)))
    model, events = runs.planned, []
    paths = {id(model.blocks[i].mlp): i for i in (1, 3)}
    passes = {}

    def part_of(under_way):
        return passes.setdefault(id(under_way), len(passes) % 3)

    kept = []  # So that no pass gets the id of another.
    leave, learned = deferred.Use.leave, {id(model.blocks[3].attention.out.weight): "out"}

    def watched_leave(use, compute):
        of = next((learned[id(one)] for one in use.parameters if id(one) in learned), None)
        leave(use, lambda: (events.append(of) if of else None) or compute())

    def watch(owner, name, kind, pass_of):
        function = getattr(owner, name)

        def call(*arguments):
            result = function(*arguments)
            under_way = pass_of(result, *arguments)
            kept.append(under_way)
            events.append(f"{kind} {paths[id(arguments[0] if owner is layer.MoELayer else arguments[0].layer)]}.{part_of(under_way)}")
            return result

        setattr(owner, name, call)
        return lambda: setattr(owner, name, function)

    undo = [
        watch(layer.MoELayer, "_begin", "begin", lambda begun, *_: begun.under_way),
        watch(layer_functions.UnderWay, "end", "end", lambda _, begun: begun.under_way),
        watch(layer.MoELayer, "_begin_backward", "back", lambda _, own, under_way, *more: under_way),
        watch(layer.MoELayer, "_end_backward", "done", lambda _, own, under_way: under_way),
    ]
    deferred.Use.leave = watched_leave
    try:
        with moeplan.torch.scheduled(model, runs.answer):
            for seed in (1, 2):
                events.clear()
                passes.clear()
                model(runs.text(seed)).backward()
                forward, backward = events[:12], events[12:]
                assert forward == [
                    *("begin 1.0", "begin 1.1", "begin 1.2"),
                    *("end 1.0", "begin 3.0", "end 1.1", "begin 3.1", "end 1.2", "begin 3.2"),
                    *("end 3.0", "end 3.1", "end 3.2"),
                ], forward
                assert backward == [
                    *("back 3.2", "back 3.1", "back 3.0"),
                    *("done 3.2", "back 1.2", "done 3.1", "back 1.1", "done 3.0", "back 1.0"),
                    *("done 1.2", "done 1.1", "done 1.0"),
                ], backward
                assert [one.lane for one in kept[-24:][:3]] == [1, 2, 1], "no part waits for the one before"
        # A weight gradient of all parts runs once the exchange that hides it is under way for the first of them.
        beside = {"blocks.1.mlp.all_to_all2.dx": ["blocks.3.attention.out.dw"]}
        with moeplan.torch.scheduled(model, cut(("blocks.0.norm1", "blocks.3.add_1", 3), beside=beside)):
            events.clear()
            passes.clear()
            model(runs.text(1)).backward()
            assert events[12:] == [
                *("back 3.2", "back 3.1", "back 3.0"),
                *("done 3.2", "back 1.2", "done 3.1", "back 1.1", "done 3.0", "back 1.0"),
                *("out", "out", "out", "done 1.2", "done 1.1", "done 1.0"),
            ], events
    finally:
        deferred.Use.leave = leave
        for one in undo:
            one()


def model_of_strangers(world, kind):
    """A model that never heard of moeplan: replaced, captured, planned with exchanges that are slow, and run."""
    (plain, loss), (model, _) = (model_of(world, kind) for _ in range(2))
    rows = tokens_of(world)
    graph = moeplan.torch.capture(model, rows, loss, world)
    del graph["measuredSteps"]  # Exchanges were fast there.
    for one in graph["instructions"]:
        if one["op"] == "ALL_TO_ALL":
            one["timeS"] = 5e-3
        if "partTimesS" in one:  # Parts that cost nothing, so that the least of what they hide pays.
            one["partTimesS"] = [one["timeS"] / k for k in range(1, 9)]
    # Both passes at once do what each does alone: the plan of both may leave out what no longer pays.
    ranges, gradients = (planned(world, graph, "--without", left_out) for left_out in ("weight-gradients", "partition"))
    both = {**gradients["rules"]["lancet"], "partitions": ranges["rules"]["lancet"]["partitions"]}
    assert both["partitions"] and both["weightGradients"], (both["partitions"], both["weightGradients"])
    for seed, answer in enumerate((planned(world, graph), {"rules": {"lancet": both}}, ranges)):
        losses = []
        for each, own in ((plain, None), (model, answer)):
            each.zero_grad(set_to_none=True)
            torch.manual_seed(seed)
            with moeplan.torch.scheduled(each, own or answer_of({})):
                losses.append(loss(each(rows)))
                losses[-1].backward()
        close(losses[1].detach(), losses[0].detach(), kind, 1e-5)
        for (name, one), (_, other) in zip(plain.named_parameters(), model.named_parameters()):
            close(other.grad, one.grad, name, 1e-4)
    expect_untouched(model)


def planned(world, graph, *options):
    """What rank 0's planner says, on all ranks."""
    answers = [None] * world.ranks
    if world.rank == 0:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(graph, file)
            file.flush()
            command = [os.environ["MOEPLAN_BIN"], "plan", "--graph", file.name, *options, "--json"]
            said = subprocess.run(command, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        answers[0] = json.loads(said.stdout)
    return world._gather(answers[0])[0]


def other_passes(world):
    """Evaluation, other shapes, other modes, changed buffers and outputs of classes are as without."""
    runs = PartedRuns(world, cut(WHOLE), dropout=0.3)
    with moeplan.torch.scheduled(runs.planned, runs.answer):
        with torch.no_grad():
            torch.manual_seed(0)
            found = runs.planned(runs.text(1))
        torch.manual_seed(0)
        assert torch.equal(found, runs.plain(runs.text(1)))
        for rows in (BATCH, 2, 4, BATCH):
            losses = []
            for model in runs.models:
                torch.manual_seed(rows)
                losses.append(model(runs.text(1)[:rows]))
                losses[-1].backward()
            close(losses[1].detach(), losses[0].detach(), "loss", 1e-5)
            runs.compare(tolerance=1e-5)
        for model in runs.models:
            norm = model.blocks[2].norm1
            norm.forward = lambda x, norm=norm: 2 * type(norm).forward(norm, x)
        close(runs.step(runs.planned, 3)[0], runs.step(runs.plain, 3)[0], "another forward", 1e-5)
        for model in runs.models:
            del model.blocks[2].norm1.forward
            model.eval()
        close(runs.planned(runs.text(1)).detach(), runs.plain(runs.text(1)).detach(), "evaluated", 1e-5)

    class Output(dict):
        def __getattr__(self, name):
            if name not in self:
                raise AttributeError(name)
            return self[name]

    class Wrapped(torch.nn.Module):
        """Gives what Hugging Face's models give, and reads a buffer that a job changes."""

        def __init__(self, model):
            super().__init__()
            self.model = model
            self.register_buffer("scale", torch.ones(()))
            self.temperature = 1.0
            self.config = types.SimpleNamespace(share=1.0)

        def forward(self, text=None, other=None, *, tags):
            loss = self.model(text) * self.scale.item() + self.config.share * self.model(other)
            return Output(loss=loss * self.temperature, tags=tags, more=(loss * 2, None))

    runs = PartedRuns(world, None)
    wrapped = [Wrapped(model) for model in runs.models]
    with moeplan.torch.scheduled(wrapped[1], cut(("model.blocks.0.norm1", "model.blocks.3.add_1", 2))):
        for scale, temperature, other, share in ((1.0, 1.0, 1, 1.0), (3.0, 1.0, 1, 1.0), (3.0, 0.5, 2, 1.0), (3.0, 0.5, 2, 0.5)):
            outputs, text = [], runs.text(1)
            for each in wrapped:
                each.scale.fill_(scale)
                each.temperature = temperature
                each.config.share = share
                outputs.append(each(text=text, other=text if other == 1 else runs.text(other), tags="mine"))
                outputs[-1].more[0].backward()
            assert type(outputs[1]) is Output and outputs[1].tags == "mine" and outputs[1].more[1] is None
            close(outputs[1].loss.detach(), outputs[0].loss.detach(), "loss", 1e-5)
            runs.compare(tolerance=1e-5)


def distributed_data_parallel(world):
    from torch.nn.parallel import DistributedDataParallel

    runs = PartedRuns(world, None)
    wrapped = []
    for model in runs.models:
        model.register_buffer("mask", torch.ones(3))
        ignored = [name for name, one in model.named_parameters() if getattr(one, "allreduce", True) is False]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
        wrapped.append(DistributedDataParallel(model, bucket_cap_mb=0.001))
    inside = ("module." + WHOLE[0], "module." + WHOLE[1], 2)
    beside = {f"module.{k}": [f"module.{v}" for v in vs] for k, vs in BESIDE.items()}
    traces, trace = [], forward_in_parts.trace_forward
    forward_in_parts.trace_forward = lambda *arguments: traces.append(1) or trace(*arguments)
    for answer in (cut(WHOLE, beside=BESIDE), cut(inside, beside=beside)):
        for seed in (1, 2):
            for i, model in enumerate(wrapped):
                with moeplan.torch.scheduled(model, answer if i == 1 else answer_of({})):
                    with model.no_sync():
                        model(runs.text(seed)).backward()
                    model(runs.text(seed + 5)).backward()
            runs.compare(tolerance=1e-5)
    with moeplan.torch.scheduled(wrapped[1], cut(WHOLE)):
        traces.clear()
        for seed in (1, 2, 3):
            wrapped[1](runs.text(seed)).backward()  # Which writes every buffer before it.
        assert len(traces) == 1, traces
    forward_in_parts.trace_forward = trace


def refusals(world):
    """What the model has not, and what cannot be cut, is named; the model is as it was."""

    def refused(answer, part, model=None, **how):
        runs = PartedRuns(world, answer, **how)
        if model is not None:
            model(runs.planned)
        with moeplan.torch.scheduled(runs.planned, runs.answer):
            found = expect_raises(moeplan.InvalidInput, lambda: runs.planned(runs.text(1)), part)
        expect_untouched(runs.planned)
        return found

    place = "rules.lancet.partitions[0]"
    assert refused(cut(("nothing", "norm", 2)), "found nothing, expected instructions").field == place
    refused(cut(("norm", "blocks.1.mlp", 2)), "found blocks.1.mlp,")
    refused(cut(("norm", "blocks.1.mlp.experts.dw", 2)), "found blocks.1.mlp.experts.dw,")
    refused(cut(("norm", "blocks.0.norm1", 2)), "found norm behind blocks.0.norm1")
    refused(cut(("blocks.0.norm1", "cross_entropy", 2)), "found cross_entropy, which mixes samples")
    for path in ("blocks.2", "blocks.1.mlp"):
        hooked = lambda model, path=path: model.get_submodule(path).register_forward_hook(lambda *_: None)  # noqa: E731
        assert refused(cut(WHOLE), "found hooks", hooked).field == path
    refused(cut(WHOLE), "found hooks", lambda model: model.blocks[2].register_backward_hook(lambda *_: None))

    def alpha(model):
        model.blocks[2].attention.dropout = torch.nn.AlphaDropout(0.1)

    refused(cut(WHOLE), "AlphaDropout draws in a way of its own", alpha)
    for name, calls, told in (
        ("a hook", lambda x: (x.register_hook(lambda g: g), x)[1], "a call of register_hook"),
        ("positions that are dropped", lambda x: x + torch.nn.functional.dropout(torch.ones(8, 8), 0.5), "draws for the batch as a whole"),
        ("samples in reverse", lambda x: x + 0 * x.flip(0), "which mixes samples"),
        ("samples moved on", lambda x: x + 0 * x.roll(1, 0), "which mixes samples"),
        ("running sums", lambda x: x + 0 * x.cumsum(dim=0), "which mixes samples"),
    ):
        refused(cut(WHOLE), told, lambda model, calls=calls: patch(model.blocks[2], calls))
    refused(cut(WHOLE), "which changes its buffers", lambda model: setattr(model.blocks[2], "norm1", CountingNorm(8)))
    for reentrant in (False, True):
        recompute = lambda function, x: torch.utils.checkpoint.checkpoint(function, x, use_reentrant=reentrant)  # noqa: B023, E731
        refused(cut(WHOLE), "activation checkpointing", recompute=recompute)

    def printed(x):
        layers[0].aux_loss
        return x

    layers = []
    told = "found the router's statistics or aux_loss of an MoELayer"
    refused(cut(WHOLE), told, lambda model: (layers.append(model.blocks[1].mlp), patch(model.blocks[2], printed)))

    def inside(model):
        model.blocks[1].mlp = SamplesInside(model.blocks[1].mlp)

    refused(cut(WHOLE), "blocks.1.mlp.layer, which mixes samples", inside)  # Its capacity has slots in the order of the rows.
    priority = {"gate": "BATCH_PRIORITIZED"}
    refused(cut(WHOLE), "BATCH_PRIORITIZED", layer_fields=priority)

    runs = PartedRuns(world, cut(WHOLE))
    for entry in ({}, {"first": "norm", "last": "norm"}, {"first": 1, "last": "norm", "parts": 2}, "norm", {**WHOLE_ENTRY, "parts": 0}):
        answer = answer_of({}, partitions=[entry])
        expect_raises(moeplan.InvalidInput, lambda: moeplan.torch.scheduled(runs.planned, answer).__enter__(), "partitions[0]")  # noqa: B023
    with moeplan.torch.scheduled(runs.planned, runs.answer):
        part = lambda: runs.planned(runs.text(1))  # noqa: E731
        expect_raises(moeplan.InvalidInput, lambda: moeplan.torch.side_by_side(world, part), "side_by_side")
        expect_raises(moeplan.InvalidInput, lambda: runs.planned(torch.zeros(BATCH, 9).long()), "samples that are all alike")
        expect_raises(moeplan.InvalidInput, lambda: runs.planned(object()), "an argument of class object")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expect_raises(moeplan.InvalidInput, part, "autocast")
    runs.expect_close()

    # A hook that comes later is told, too, and a job that fails half way through goes on.
    with moeplan.torch.scheduled(runs.planned, runs.answer):
        runs.planned(runs.text(1)).backward()
        later = runs.planned.blocks[2].register_forward_hook(lambda *_: None)
        expect_raises(moeplan.InvalidInput, lambda: runs.planned(runs.text(1)), "found hooks")
        later.remove()
        runs.zero()
        fails = runs.planned.blocks[2].norm1.register_forward_pre_hook(lambda *_: 1 / 0)
        expect_raises(ZeroDivisionError, lambda: runs.planned(runs.text(1)), "division")
        fails.remove()
    runs.expect_close()


WHOLE_ENTRY = {"first": WHOLE[0], "last": WHOLE[1]}


def lost_rank(world):
    """A rank dies between the passes; the other, with parts under way, learns of it in time."""
    runs = PartedRuns(world, cut(WHOLE))
    with moeplan.torch.scheduled(runs.planned, runs.answer):
        runs.step(runs.planned, 1)
        if world.rank == 1:
            os._exit(0)
        began = time.monotonic()
        lost = expect_raises(moeplan.PeerLost, lambda: runs.planned(runs.text(2)), "rank 1")
        assert lost.rank == 1 and time.monotonic() - began < world.deadline_s + 5, lost
    expect_untouched(runs.planned)
