"""What the ranks of torch_layer_test.py and torch_card_test.py run, each case in a job of its own (rank_process.py)."""

import json
import os
import pathlib
import random
import re
import sys
import time

import torch
import torch.distributed as dist
from plain_moe import PlainMoE

import moeplan
import moeplan.torch
from moeplan.torch.tensors import own_part

FAMILIES = (
    "BASELINE BASELINE_TP PARM_S1 PARM_S2 MONTA_O1 MONTA_O2 MONTA_O3 PIPELINE ONCE_PER_NODE".split()
)
TOLERANCE = 2e-5


def close(found, expected, what, tolerance=TOLERANCE):
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    off = float((found.cpu().double() - expected.cpu().double()).abs().max()) if expected.numel() else 0.0
    assert off <= tolerance * scale, f"{what}: off by {off:.3g}, at a scale of {scale:.3g}"


def draw_router(draw, experts, top_k):
    """Rules of today's routers, of which each comes up in some draws."""
    sigmoid = draw.random() < 0.6
    router = {
        "scoreFunction": "SIGMOID" if sigmoid else "SOFTMAX",
        "rawWeights": draw.random() < 0.5,
        "weightScale": draw.choice([1.0, 2.5]),
        "correctionBias": sigmoid and draw.random() < 0.7,
        "bias": draw.random() < 0.5,
        "weighsInput": top_k == 1 and draw.random() < 0.5,
    }
    groups = draw.choice([n for n in (1, 2, 3) if experts % n == 0 and (n == 1 or experts // n > 1)])
    least = -(-top_k // (experts // groups))
    return {**router, "expertGroups": groups, "groupsPerToken": draw.randint(least, groups)}


def random_plan(draw, ranks):
    """A plan of some family in some layout of this many ranks: dropless, or with capacities that drop pairs."""
    stages = draw.choice([1, 1, 1, 2]) if ranks == 4 else 1
    ranks //= stages
    context = draw.choice([1, 1, 2]) if ranks % 2 == 0 else 1
    tensor = draw.choice([n for n in (1, 2, 4) if ranks // context % n == 0])
    expert = draw.choice([n for n in (1, 2, 4) if ranks % n == 0])
    sharding = draw.choice([n for n in (1, 2, 4) if (ranks // expert) % n == 0])
    family = draw.choice(FAMILIES)
    if (family == "BASELINE_TP" or family.startswith("MONTA")) and (ranks // expert) % tensor == 0:
        sharding = tensor  # Others are infeasible.
    experts = expert * draw.choice([1, 2, 3, 4])
    top_k = draw.randint(1, min(3, experts))
    gated = draw.random() < 0.5
    layer = {
        "batch": draw.randint(1, 3),
        "sequenceLength": context * draw.randint(1, 9),
        "modelDim": draw.randint(1, 12),
        "hiddenDim": draw.randint(4, 12),
        "experts": experts,
        "topK": top_k,
        "capacityFactor": draw.choice([0.5, 0.8, 1.25, 0.0, 0.0]),
        "bytesPerElement": 4,
        "expertMatrices": 3 if gated else 2,
        "expertBias": draw.random() < 0.5,
        "sharedHiddenDim": draw.choice([0, 0, 6]),
        "auxLossCoefficient": draw.choice([0.0, 0.5]),
        "zLossCoefficient": draw.choice([0.0, 0.25]),
    }
    if draw.random() < 0.5:
        layer["router"] = draw_router(draw, experts, top_k)
    if gated and draw.random() < 0.3:
        layer["swigluLimit"] = 0.25
    best = {"schedule": family, "chunks": 1, "partitionDegree": 1}
    if family in ("MONTA_O2", "MONTA_O3"):
        best["chunks"] = draw.randint(1, 3)
    elif family in ("PIPELINE", "PARM_S1", "PARM_S2"):
        best["partitionDegree"] = draw.randint(1, 3)
    layout = {
        "tensorParallel": tensor,
        "expertParallel": expert,
        "expertShardingParallel": sharding,
        "contextParallel": context,
        "pipelineParallel": stages,
    }
    phase = draw.choice(["FORWARD", "TRAINING"])
    return {"workload": {"layer": layer, "layout": layout, "phase": phase}, "best": best}


class Job:
    """A layer of a plan beside the plain one, and what both find."""

    def __init__(self, plan, world, dtype=torch.float32, **options):
        self.plan, self.world = plan, world
        self.layer = moeplan.torch.MoELayer(plan, world, seed=3, dtype=dtype, **options)
        self.shape = plan["workload"]["layer"]
        layout = plan["workload"]["layout"]
        self.tensor = layout.get("tensorParallel", 1)
        stage = world.ranks // layout.get("pipelineParallel", 1)
        self.batch = world.rank % stage // self.tensor  # Its number in the pipeline stage.
        self.batches = stage // self.tensor
        self.tokens = self.shape["batch"] * self.shape["sequenceLength"] // layout.get("contextParallel", 1)
        self._draw_biases()
        self.plain = PlainMoE(self.shape, self.layer.full_weights())

    def _draw_biases(self):
        """Those of the router, which begin at zero, become others; alike on all ranks."""
        generator = torch.Generator().manual_seed(17)
        with torch.no_grad():
            for bias, bound in ((self.layer.gate_bias, 1.0), (self.layer.correction_bias, 0.3)):
                if bias is not None:
                    bias.copy_(torch.empty(bias.shape).uniform_(-bound, bound, generator=generator))

    def rows(self, batch, seed, tokens=None):
        generator = torch.Generator().manual_seed(seed * 1000 + batch)
        shape = (tokens or self.tokens, self.shape["modelDim"])
        return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)

    def own_rows(self, seed, tokens=None):
        return tuple(rows.to(self.world.device) for rows in self.rows(self.batch, seed, tokens))

    def run(self, seed, tokens=None):
        """Forward alone: input, output and the gradient that will come."""
        x, dy = self.own_rows(seed, tokens)
        x = x.to(self.layer.dtype).requires_grad_()
        return x, self.layer(x), dy.to(self.layer.dtype)

    def expect(self, seeds, outputs, inputs, tokens=None, tolerance=TOLERANCE):
        """Checks outputs and input gradients of the own batch, and the weights' gradients over all batches and seeds."""
        for seed, (output, x) in zip(seeds, zip(outputs, inputs)):
            for batch in range(self.batches):
                row, dy = self.rows(batch, seed, tokens)
                row = row.to(self.layer.dtype).double().requires_grad_()
                expected, losses, _ = self.plain(row)
                ((expected * dy.to(self.layer.dtype).double()).sum() + losses).backward()
                if batch == self.batch:
                    close(output, expected, f"output of seed {seed}", tolerance)
                    close(x.grad, row.grad, f"input gradient of seed {seed}", tolerance)
        found = self.layer.full_gradients()
        learning = {name: value for name, value in self.plain.weights.items() if name != "correction_bias"}
        assert found.keys() == learning.keys(), (found.keys(), learning.keys())
        for name, value in learning.items():
            close(found[name], torch.zeros_like(value) if value.grad is None else value.grad, name, tolerance)
            value.grad = None
        for parameter in self.layer.parameters():
            parameter.grad = None


def equality(world, draws, seed):
    """Random plans, against plain PyTorch; last_timeline has the tasks of the phase."""
    draw = random.Random(seed)
    ran = {}
    while sum(ran.values()) < draws:
        plan = random_plan(draw, world.ranks)
        try:
            job = Job(plan, world)
        except (moeplan.Infeasible, moeplan.InvalidInput) as refused:
            # The same on every rank: what the layout rules out, such as BASELINE_TP with ESP other than TP, and more
            # chunks than there are slots.
            expected = ("layout", "chunks", "partitionDegree")
            assert isinstance(refused, moeplan.Infeasible) or any(word in str(refused) for word in expected), refused
            continue
        try:
            x, y, dy = job.run(seed)
            y.backward(dy)
            own = job.rows(job.batch, seed)[0].double()
            _, losses, pairs = job.plain(own)
            close(job.layer.aux_loss, losses.detach(), "aux_loss")
            statistics = job.layer.router_statistics()
            assert int(statistics["pairs"].sum()) == job.shape["topK"] * statistics["tokens"]
            if statistics["tokens"] == job.tokens:
                assert torch.equal(statistics["pairs"], pairs), (statistics, pairs)
            job.expect([seed], [y], [x])
            kinds = {task["kind"] for task in job.layer.last_timeline("FORWARD")}
            assert {"GATE", "EXPERT", "COMBINE"} <= kinds, kinds
            both = job.layer.last_timeline("TRAINING")
            assert len(both) == len(job.layer.last_timeline("FORWARD")) + len(job.layer.last_timeline("BACKWARD"))
            assert min(task["startS"] for task in both) == 0
            if sum(ran.values()) % 3 == 0:
                in_order(world, plan, job, seed)
            if sum(ran.values()) % 2 == 0:
                beside(world, job, seed)
            if job.tokens > 1:
                in_parts(draw, job, seed)
        except AssertionError as wrong:
            raise AssertionError(f"{json.dumps(plan)}: {wrong}") from None
        job.layer.close()
        ran[plan["best"]["schedule"]] = ran.get(plan["best"]["schedule"], 0) + 1
    if draws >= 60:
        assert set(ran) == set(FAMILIES), ran


def in_parts(draw, job, seed):
    """The same batch cut in two or three, which drops the same pairs."""
    cuts = sorted(draw.sample(range(1, job.tokens), min(draw.randint(1, 2), job.tokens - 1)))
    x, dy = job.own_rows(seed)
    x.requires_grad_()
    batch = job.layer.in_parts(job.tokens)
    y = torch.cat([batch(part) for part in x.tensor_split(cuts)])
    y.backward(dy)
    job.expect([seed], [y], [x])
    expect_raises(moeplan.InvalidInput, lambda: batch(x[:1].detach()), "tokens")


def beside(world, job, seed):
    """Three batches, of which two at a time are under way: forward, back and forward, back."""

    def back(run):
        run[1].backward(run[2])

    first, second = moeplan.torch.side_by_side(world, lambda: job.run(seed), lambda: job.run(seed + 1))
    _, third = moeplan.torch.side_by_side(world, lambda: back(first), lambda: job.run(seed + 2))
    moeplan.torch.side_by_side(world, lambda: back(second), lambda: back(third))
    runs = (first, second, third)
    job.expect([seed, seed + 1, seed + 2], [run[1] for run in runs], [run[0] for run in runs])


def in_order(world, plan, job, seed):
    """The same plan with an order of tasks, as planners give it: here that in which rank 0 just ran them."""
    tasks = job.layer.last_timeline(plan["workload"]["phase"])
    order = world._gather([task["task"] for task in sorted(tasks, key=lambda task: task["startS"])])[0]
    ordered = Job({**plan, "best": {**plan["best"], "order": order}}, world)
    x, y, dy = ordered.run(seed)
    y.backward(dy)
    ordered.expect([seed], [y], [x])
    assert {task["task"] for task in ordered.layer.last_timeline(plan["workload"]["phase"])} == set(order)
    ordered.layer.close()


def small_plan(**changes):
    layer = {
        "batch": 2,
        "sequenceLength": 8,
        "modelDim": 6,
        "hiddenDim": 8,
        "experts": 4,
        "topK": 2,
        "capacityFactor": 1.0,
        "bytesPerElement": 4,
        "expertMatrices": 3,
        "expertBias": True,
        "sharedHiddenDim": 4,
    }
    layout = {"tensorParallel": 2, "expertParallel": 2, "expertShardingParallel": 2}
    plan = {
        "workload": {"layer": {**layer, **changes}, "layout": layout, "phase": "TRAINING"},
        "best": {"schedule": "PARM_S2", "chunks": 1, "partitionDegree": 1},
    }
    return plan


def experts_move(world, layout, router):
    """A layer whose experts move between steps learns what one learns whose experts stay, optimizer states included."""
    plan = small_plan(experts=8, topK=2, capacityFactor=0.0, router=router)
    plan["workload"]["layout"] = layout
    plan["best"]["schedule"] = "PARM_S1"
    stays, moves = (Job(plan, world) for _ in range(2))
    optimizers = {job: torch.optim.AdamW(job.layer.parameters(), lr=1e-2) for job in (stays, moves)}
    limited = router.get("groupsPerToken", 1) < router.get("expertGroups", 1)
    placements = [[2, 3, 0, 1, 7, 6, 5, 4] if limited else [7, 2, 4, 1, 0, 3, 6, 5], [4, 5, 6, 7, 0, 1, 2, 3], list(range(8))]
    for step, placement in enumerate(placements):
        losses = []
        for job in (stays, moves):
            x, y, dy = job.run(step)
            losses.append((y * dy).sum())
            losses[-1].backward()
        close(losses[1].detach(), losses[0].detach(), f"loss of step {step}", 1e-6)
        for name in ("pairs", "kept", "probability_sum"):
            close(moves.layer.router_statistics()[name], stays.layer.router_statistics()[name], name)
        drifts = [job.layer.routing_drift() for job in (stays, moves)]
        loads = drifts[0]["routing"]["tokensPerExpert"]
        assert drifts[1]["routing"]["tokensPerExpert"] == loads and sum(loads) == 2 * moves.tokens * moves.batches
        assert drifts[0]["planned_busiest_rank_ratio"] == 1
        moves.layer.place_experts(placement, optimizers[moves])  # The gradients are still the rank's part.
        expect_raises(moeplan.InvalidInput, moves.layer.router_statistics, "no forward pass yet")
        gradients = {job: job.layer.full_gradients() for job in (stays, moves)}
        for name, value in gradients[stays].items():
            close(gradients[moves][name], value, f"gradient of {name} in step {step}", 1e-6)
        for job in (stays, moves):
            moeplan.torch.reduce_gradients(job.layer)
            optimizers[job].step()
            optimizers[job].zero_grad()
        if router.get("correctionBias"):
            for job in (stays, moves):
                job.layer.balance_experts(0.01, torch.tensor(loads))
        by_place = [loads[expert] for expert in placement]
        ranks = layout["expertParallel"]
        halves = [sum(by_place[i : i + 8 // ranks]) for i in range(0, 8, 8 // ranks)]
        found = moves.layer.routing_drift(torch.tensor(loads, dtype=torch.float64) / moves.batches)["busiest_rank_ratio"]
        close(torch.tensor(found), torch.tensor(max(halves) * ranks / sum(halves)), "the busiest rank")
        whole = {job: job.layer.full_weights() for job in (stays, moves)}
        for name, value in whole[stays].items():
            close(whole[moves][name], value, f"{name} after step {step}", 1e-6)
        own = moves.layer.gate[placement.index(3)].detach()
        close(own, whole[stays]["gate"][3], "the row of expert 3")

    # A checkpoint says where experts are.
    moves.layer.place_experts(placements[0], optimizers[moves])
    again = Job(plan, world)
    again.layer.load_state_dict(moves.layer.state_dict())
    assert again.layer.placement.tolist() == placements[0]
    close(again.run(9)[1].detach(), stays.run(9)[1].detach(), "a layer from a checkpoint", 1e-6)
    again.layer.load_state_dict(stays.layer.state_dict())
    assert again.layer.placement is None
    close(again.run(9)[1].detach(), stays.run(9)[1].detach(), "a layer from another", 1e-6)
    again.layer.place_experts(placements[0])
    again.layer.load_full_weights(**stays.layer.full_weights())
    close(again.run(9)[1].detach(), stays.run(9)[1].detach(), "whole weights, by the job's numbers", 1e-6)

    # What does not fit is refused on every rank, and nothing has moved.
    before = moves.layer.full_weights()
    place = moves.layer.place_experts
    expect_raises(moeplan.InvalidInput, lambda: place([0] * 8), "physical_to_logical")
    other = placements[1] if world.rank == 1 else placements[2]
    expect_raises(moeplan.InvalidInput, lambda: place(other), "physical_to_logical")
    one_wrong = [0] * 8 if world.rank == 2 else placements[1]
    expect_raises(moeplan.InvalidInput, lambda: place(one_wrong), "physical_to_logical")
    copies = torch.optim.SGD([value.detach().clone() for value in moves.layer.parameters()], lr=1.0)
    expect_raises(moeplan.InvalidInput, lambda: place(placements[1], copies), "optimizer")
    sums = torch.optim.SGD(moves.layer.parameters(), lr=1.0)
    sums.state[moves.layer.up]["rows"] = moves.layer.up.detach().sum(-1)
    expect_raises(moeplan.InvalidInput, lambda: place(placements[1], sums), "optimizer")
    kept = torch.optim.SGD(moves.layer.parameters(), lr=1.0)
    if world.rank == 0:
        kept.state[moves.layer.up]["more"] = moves.layer.up.detach().clone()
    if layout["expertParallel"] == world.ranks:
        expect_raises(moeplan.InvalidInput, lambda: place(placements[1], kept), "optimizer")
    for name, value in moves.layer.full_weights().items():
        assert torch.equal(value, before[name]), name
    if limited:
        apart = [7, 2, 4, 1, 0, 3, 6, 5]
        expect_raises(moeplan.InvalidInput, lambda: moves.layer.place_experts(apart), "groups that stay together")


def what_jobs_do(world):
    """Several forwards under way, checkpointing, accumulation, evaluation, fewer tokens, deferred dW, resume, BF16."""
    from torch.utils.checkpoint import checkpoint

    job = Job(small_plan(), world)

    # 1F1B with another order, and gradients that add up.
    runs = {seed: job.run(seed) for seed in (1, 2, 3)}
    for seed in (2, 1, 3):
        runs[seed][1].backward(runs[seed][2])
    job.expect([1, 2, 3], [runs[seed][1] for seed in (1, 2, 3)], [runs[seed][0] for seed in (1, 2, 3)])

    # Two calls in one graph.
    (x1, y1, dy1), (x2, y2, dy2) = job.run(1), job.run(2)
    ((y1 * dy1).sum() + (y2 * dy2).sum()).backward()
    job.expect([1, 2], [y1, y2], [x1, x2])

    # Both kinds of activation checkpointing.
    for reentrant in (True, False):
        x, dy = job.own_rows(4)
        x.requires_grad_()
        y = checkpoint(job.layer, x, use_reentrant=reentrant)
        y.backward(dy)
        job.expect([4], [y], [x])

    # Nobody goes back, and then somebody does.
    with torch.no_grad():
        for seed in (5, 6):
            assert not job.layer(job.own_rows(seed)[0]).requires_grad
    job.layer.eval()
    job.layer(job.own_rows(6)[0])
    job.layer.train()

    # Fewer tokens, in between.
    x, y, dy = job.run(7, tokens=5)
    y.backward(dy)
    job.expect([7], [y], [x], tokens=5)
    x, y, dy = job.run(7)
    y.backward(dy)
    job.expect([7], [y], [x])

    # Frozen experts, and an input that needs no gradient.
    for parameter in job.layer.parameters():
        parameter.requires_grad_(parameter is job.layer.gate)
    job.layer(job.own_rows(8)[0]).sum().backward()
    assert job.layer.gate.grad is not None and job.layer.up.grad is None
    for parameter in job.layer.parameters():
        parameter.requires_grad_(True)
        parameter.grad = None

    # A parameter changed between the passes is told, and a graph is gone back through once.
    x, y, dy = job.run(9)
    with torch.no_grad():
        job.layer.up.add_(1)
    expect_raises(RuntimeError, lambda: y.backward(dy), "modified by an inplace operation")
    with torch.no_grad():
        job.layer.up.sub_(1)
    x, y, dy = job.run(9)
    y.backward(dy)
    expect_raises(RuntimeError, lambda: y.backward(dy), "second time")
    for parameter in job.layer.parameters():
        parameter.grad = None

    # Weights that move to other memory.
    for parameter in job.layer.parameters():
        parameter.data = parameter.data.clone()
    job.plain = PlainMoE(job.shape, job.layer.full_weights())
    x, y, dy = job.run(10)
    for parameter in job.layer.parameters():
        parameter.data = parameter.data.clone()  # While a pass is under way.
    y.backward(dy)
    job.expect([10], [y], [x])

    # Reduced, then whole: the same.
    x, y, dy = job.run(11)
    y.backward(dy)
    whole = job.layer.full_gradients()
    moeplan.torch.reduce_gradients(job.layer)
    for name, value in job.layer.full_gradients().items():
        close(value, whole[name], f"reduced {name}")
    part = whole["up"][own_part(job.layer._shard, "up")]
    close(job.layer.up.grad, part, "reduced up is the rank's part of the sum")
    close(job.layer.gate.grad, whole["gate"], "reduced gate")
    moeplan.torch.flush_weight_gradients(job.layer)  # There are none, and nothing changes.
    close(job.layer.full_gradients()["up"], whole["up"], "reduced, and flushed")

    # A pass that nobody goes back through has no backward pass of an earlier one.
    with torch.no_grad():
        job.layer(job.own_rows(11)[0])
    assert job.layer.last_timeline("FORWARD") and not job.layer.last_timeline("BACKWARD")

    # The bias of choices moves against the loads of all source batches.
    balanced = Job(small_plan(topK=1, router={"scoreFunction": "SIGMOID", "correctionBias": True}), world)
    before = balanced.layer.correction_bias.clone()
    balanced.run(12)
    loads = sum(balanced.plain(balanced.rows(batch, 12)[0].double())[2] for batch in range(balanced.batches))
    balanced.layer.balance_experts(0.125)
    expected = before.cpu() + 0.125 * torch.sign(loads.double().mean() - loads)
    close(balanced.layer.correction_bias, expected, "the bias of choices")
    balanced.layer.balance_experts(0.125, torch.zeros(4, dtype=torch.int64))
    close(balanced.layer.correction_bias, expected, "even loads")
    expect_raises(moeplan.InvalidInput, lambda: job.layer.balance_experts(0.125), "correctionBias")

    # What is under way when a layer is closed is finished.
    closed = Job(small_plan(), world)
    x, y, dy = closed.run(14)
    closed.layer.close()
    y.backward(dy)
    closed.expect([14], [y], [x])

    # Deferred weight gradients.
    rules = {"scoreFunction": "SIGMOID", "correctionBias": True, "bias": True}
    deferred = Job(small_plan(router=rules), world, defer_weight_gradients=True)
    first, second = deferred.run(1), deferred.run(2)
    for run in (second, first):
        run[1].backward(run[2])
        assert deferred.layer.up.grad is None and deferred.layer.gate.grad is not None
    moeplan.torch.flush_weight_gradients(torch.nn.Sequential(deferred.layer))
    deferred.expect([1, 2], [first[1], second[1]], [first[0], second[0]])

    # Resume, onto another layout too.
    state = {name: value.clone() for name, value in job.layer.state_dict().items()}
    again = moeplan.torch.MoELayer(small_plan(), world, seed=99)
    again.load_state_dict(state)
    rows = job.own_rows(12)[0]
    close(again(rows), job.layer(rows), "a resumed layer")
    other = small_plan()
    other["workload"]["layout"] = {"expertParallel": 4}
    moved = moeplan.torch.MoELayer(other, world)
    moved.load_full_weights(**job.layer.full_weights())
    for name, value in moved.full_weights().items():
        assert torch.equal(value, job.layer.full_weights()[name]), name

    # BF16, within what its rows have.
    half = Job(small_plan(), world, dtype=torch.bfloat16)
    x, y, dy = half.run(13)
    y.backward(dy)
    assert half.layer.up.grad.dtype == torch.bfloat16 and y.dtype == torch.bfloat16
    half.expect([13], [y], [x], tolerance=3e-2)

    expect_raises(moeplan.InvalidInput, job.layer.run_report, "no TRAINING after the last forward")
    x, y, dy = job.run(15)
    y.backward(dy)
    report = job.layer.run_report()
    own = report["ranks"][world.rank]["timeline"]
    spans = [max(task["endS"] for task in job.layer.last_timeline(phase)) for phase in ("FORWARD", "BACKWARD")]
    assert abs(max(task["endS"] for task in own) - sum(spans)) < 1e-9, (own, spans)
    assert [entry["rank"] for entry in report["ranks"]] == list(range(world.ranks)) and report["ranks"][1]["timeline"]


class Dropping(torch.nn.Module):
    """A small model with random draws, recomputation, and a collective of its own between two layers."""

    def __init__(self, world, defers=False):
        super().__init__()
        torch.manual_seed(5)
        plan = small_plan(sharedHiddenDim=0)
        self.first = moeplan.torch.MoELayer(plan, world, seed=1, defer_weight_gradients=defers)
        self.between = torch.nn.Linear(6, 6)
        self.second = moeplan.torch.MoELayer(plan, world, seed=2, defer_weight_gradients=defers)

    def forward(self, x):
        y = self.first(x)
        y += x
        x = torch.utils.checkpoint.checkpoint(self._middle, y)
        return x + torch.nn.functional.dropout(self.second(torch.nn.functional.dropout(x, 0.2)), 0.1, inplace=True)

    def _middle(self, x):
        scale = torch.ones((), device=x.device)
        dist.all_reduce(scale)
        return x + scale * torch.nn.functional.dropout(self.between(self.first(x)), 0.3)


def side_by_side(world):
    """Two parts of a step that take turns."""
    import torch.utils.checkpoint  # noqa: F401

    both = moeplan.torch.side_by_side
    models = [Dropping(world, defers).to(world.device) for defers in (False, False, True)]
    seeds = [torch.Generator().manual_seed(10 * world.rank + i) for i in range(4)]
    rows = [torch.randn(16 - i, 6, generator=seed).to(world.device) for i, seed in enumerate(seeds)]

    def loss_of(model, i):
        loss = model(rows[i].requires_grad_()).square().sum()
        pairs = model.second.router_statistics()["pairs"]
        assert int(pairs.sum()) == 2 * len(rows[i]), pairs  # Not the other part's.
        return loss

    torch.manual_seed(world.rank)
    expected = []
    for i in range(4):
        loss = loss_of(models[0], i)
        loss.backward()
        expected.append(loss.detach())
    following = torch.rand(())
    for model in models[1:]:
        torch.manual_seed(world.rank)
        found = moeplan.torch.micro_batches(world, lambda i: loss_of(model, i), 4)
        assert torch.equal(torch.stack(found), torch.stack(expected)), (found, expected)
        assert torch.rand(()) == following
        moeplan.torch.flush_weight_gradients(model)
        for (name, one), (_, other) in zip(models[0].named_parameters(), model.named_parameters()):
            close(other.grad, one.grad, name, tolerance=1e-6)

    # They take turns at layers, in one order; what follows draws behind the first.
    layer, turns = models[0].first, []

    def part(name):
        for i in range(2):
            turns.append(f"{name}{i}")
            layer(rows[0].detach())
        turns.append(f"{name} ends")
        return name, torch.rand(()).item(), torch.is_grad_enabled()

    torch.manual_seed(3)
    draws = []
    for _ in range(2):
        turns.clear()
        with torch.no_grad():
            one, two = both(world, lambda: part("a"), lambda: part("b"))
        assert turns == ["a0", "b0", "a1", "b1", "a ends", "b ends"], turns
        assert one[::2] == ("a", False) and two[::2] == ("b", False), (one, two)
        draws += [one[1], two[1], torch.rand(()).item()]
    assert len(set(draws)) == 6, draws
    assert torch.is_grad_enabled()
    state = torch.get_rng_state()
    assert both(world, lambda: part("alone"))[1] is None
    torch.set_rng_state(state)
    drawn = torch.rand(())
    torch.set_rng_state(state)
    assert both(world, lambda: torch.rand(()))[0] == drawn

    # A layer in a part waits neither for its rows nor for a layer of the other part: rank 0 begins both before any other.
    hand_over, begun = moeplan.torch.layer.others_turn, []

    def after_all_have_begun():
        begun.append(world._lane)
        if world.rank == 0 and len(begun) == 2:
            dist.barrier()
        hand_over()

    if world.rank > 0:
        dist.barrier()
    moeplan.torch.layer.others_turn = after_all_have_begun
    def tokens_of(i):
        layer(rows[i])
        return layer.router_statistics()["tokens"]

    with torch.no_grad():
        found = both(world, lambda: tokens_of(0), lambda: tokens_of(1))
    moeplan.torch.layer.others_turn = hand_over
    assert len(begun) == 2 and found == (16, 15), (begun, found)

    # A part that raises ends the other, and the job can go on.
    def fails():
        layer(rows[0])
        raise KeyError("mine")

    for parts in ((fails, lambda: part("c")), (lambda: part("c"), fails)):
        expect_raises(KeyError, lambda: both(world, *parts), "mine")
    expect_raises(moeplan.InvalidInput, lambda: both(world, lambda: both(world, fails, fails), lambda: None), "inside of another")
    assert both(world, lambda: 1, lambda: layer(rows[0]).shape) == (1, (16, 6))
    job = Job(small_plan(), world)
    beside(world, job, 20)
    x, y, dy = job.run(23)
    y.backward(dy)
    job.expect([23], [y], [x])


def behind_a_stream(world):
    """On a card: a call comes back before what its stream had to do is done, and other streams are followed, too."""
    plan = small_plan()
    plan["workload"]["layout"] = {}
    job = Job(plan, world)
    x, y, dy = job.run(1)
    y.backward(dy)
    job.expect([1], [y], [x])
    for seed, stream in ((2, torch.cuda.current_stream()), (3, torch.cuda.Stream())):
        with torch.cuda.stream(stream):
            (x, dy), late = job.own_rows(seed), torch.zeros(job.tokens, 6, device=world.device)
            torch.cuda.synchronize()
            torch.cuda._sleep(2_000_000_000)  # About a second.
            late.copy_(x)
            late.requires_grad_()
            y = job.layer(late)
            assert not stream.query(), "the call came back when its stream was done"
            y.backward(dy)
            job.expect([seed], [y], [late])


def gradients_are_the_jobs(world):
    """On a card: a gradient that somebody keeps is not the memory of the next one, and one that nobody keeps is."""
    plan = small_plan()
    plan["workload"]["layout"] = {}
    job = Job(plan, world)
    kept, places = [], set()
    for seed in (1, 2, 1):
        x, y, dy = job.run(seed)
        y.backward(dy)
        kept.append((job.layer.up.grad, job.layer.up.grad.clone()))
        job.expect([seed], [y], [x])  # Which leaves none.
    for gradient, copy in kept:
        assert torch.equal(gradient, copy)
    assert torch.equal(kept[0][0], kept[2][0]) and not torch.equal(kept[0][0], kept[1][0])
    assert len({gradient.data_ptr() for gradient, _ in kept}) == 3
    del kept, gradient, copy
    for seed in (1, 2, 3, 4):
        x, y, dy = job.run(seed)
        y.backward(dy)
        places.add(job.layer.up.grad.data_ptr())
        job.expect([seed], [y], [x])
    assert len(places) == 1, places

    # Gradients that add up over micro-batches, step after step.
    for _ in range(3):
        runs = [job.run(seed) for seed in (1, 2, 3)]
        for _, y, dy in runs:
            y.backward(dy)
        job.expect([1, 2, 3], [run[1] for run in runs], [run[0] for run in runs])

    # Parameters that are no longer of the layer's kind, and streams that a graph is captured from.
    job.layer.bfloat16()
    refused = expect_raises(moeplan.InvalidInput, lambda: job.layer(job.own_rows(1)[0]), "up: found a parameter of torch.bfloat16")
    assert refused.field == "up"
    job.layer.float()
    captured = torch.cuda.CUDAGraph()
    rows = job.own_rows(1)[0]
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(captured):
            expect_raises(moeplan.InvalidInput, lambda: job.layer(rows), "stream: found one that a graph is captured from")
            rows + 1
    finally:
        torch.cuda.synchronize()
    assert job.layer(rows).isfinite().all()


def no_card_for_the_host(world):
    """A job whose layers run on the host already is told that it cannot have a card, too, from the same library."""
    moeplan.torch.MoELayer({**small_plan(), "workload": {**small_plan()["workload"], "layout": {}}}, world)
    if torch.cuda.is_available():
        expect_raises(moeplan.UnavailableHere, lambda: moeplan.torch.init(device="cuda"), "on the host already")
    else:
        refused = expect_raises(moeplan.InvalidInput, lambda: moeplan.torch.init(device="cuda"), "no card here")
        assert refused.field == "device", refused.field
    expect_raises(moeplan.InvalidInput, lambda: moeplan.torch.init(device="meta"), "cpu or cuda")


def expect_raises(kind, call, part):
    try:
        call()
    except kind as raised:
        assert part in str(raised), raised
        return raised
    raise AssertionError(f"no {kind.__name__} with {part!r}")


def bad_input(world):
    """Everything that is refused names its field, and the job goes on."""
    layer = moeplan.torch.MoELayer(small_plan(), world)
    refused = expect_raises(moeplan.InvalidInput, lambda: layer(torch.zeros(3, 7)), "(3, 7)")
    assert (refused.field, refused.expected) == ("input", "[..., 6]")
    expect_raises(moeplan.InvalidInput, lambda: layer(torch.zeros(3, 6, dtype=torch.float64)), "torch.float64")
    expect_raises(moeplan.InvalidInput, lambda: layer(torch.zeros(17, 6)), "tokens: found 17, expected 1 to 16")
    expect_raises(moeplan.InvalidInput, lambda: layer(torch.zeros(3, 6, device="meta")), "a tensor on meta")
    expect_raises(moeplan.InvalidInput, layer.router_statistics, "no forward pass yet")
    weights = layer.full_weights()
    weights["up"] = weights["up"].transpose(1, 2)
    expect_raises(moeplan.InvalidInput, lambda: layer.load_full_weights(**weights), "up: found a tensor of shape (4, 8, 6)")
    del weights["shared_up"], weights["up"]
    expect_raises(TypeError, lambda: layer.load_full_weights(**weights), "up")

    other = small_plan()
    if world.rank == 1:
        other["workload"]["layer"]["topK"] = 1
    refused = expect_raises(moeplan.InvalidInput, lambda: moeplan.torch.MoELayer(other, world), "on rank 1")
    assert (refused.field, refused.found) == ("layer.topK", "1 on rank 1"), (refused.field, refused.found)
    for path, plan in (
        ("plan.best", {"workload": small_plan()["workload"]}),
        ("plan.workload.layer.topk", {**small_plan(), "workload": {"layer": {"topk": 1}}}),
        ("layer.topK", small_plan(topK=9)),
    ):
        refused = expect_raises(moeplan.InvalidInput, lambda plan=plan: moeplan.torch.MoELayer(plan, world), path)
        assert refused.field == path, refused.field
    # A plan that one rank cannot read is told to all.
    one = small_plan(topk=1) if world.rank == 2 else small_plan()
    refused = expect_raises(moeplan.InvalidInput, lambda: moeplan.torch.MoELayer(one, world), "")
    assert refused.field == ("plan.workload.layer.topk" if world.rank == 2 else "plan"), refused
    assert world.rank == 2 or "rank 2" in str(refused), refused
    infeasible = small_plan()
    infeasible["workload"]["layout"]["expertShardingParallel"] = 1
    infeasible["best"]["schedule"] = "BASELINE_TP"
    expect_raises(moeplan.Infeasible, lambda: moeplan.torch.MoELayer(infeasible, world), "")

    # More rows than a dropless layer may receive: all 16 tokens of the last source batch are one, so two of four experts
    # have all of them where an even share is 8.
    bounded = moeplan.torch.MoELayer(small_plan(capacityFactor=0, receiveFactor=1.5), world)
    rows = torch.randn(16, 6, generator=torch.Generator().manual_seed(world.rank // 2))
    if world.rank >= 2:
        rows = rows[:1].expand(16, 6)
    refused = expect_raises(moeplan.InvalidInput, lambda: bounded(rows), "found 16 rows of rank 2 for one expert")
    assert refused.field == "layer.receiveFactor", refused.field
    one_each = torch.eye(4, 6).repeat(4, 1)
    bounded.load_full_weights(**{**bounded.full_weights(), "gate": torch.eye(4, 6) + 0.5 * torch.eye(4, 6).roll(1, 0)})
    bounded(one_each)
    assert bounded.router_statistics()["pairs"].tolist() == [8, 8, 8, 8]
    bounded.close()

    child = os.fork()
    if child == 0:
        try:
            expect_raises(moeplan.UnavailableHere, lambda: layer(torch.zeros(3, 6)), "forked off process")
            os._exit(0)
        except BaseException as wrong:
            print(wrong, file=sys.stderr, flush=True)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

    layer(torch.zeros(3, 6))
    layer.close()
    layer.close()
    expect_raises(moeplan.UnavailableHere, lambda: layer(torch.zeros(3, 6)), "closed")


def lost_rank(world, phase):
    """Rank 1 dies before a pass; the others learn of it within the deadline."""
    layer = moeplan.torch.MoELayer(small_plan(), world)
    x = torch.ones(3, 6, requires_grad=True, device=world.device)
    layer(x).sum().backward()
    y = layer(x)
    if phase == "parts":
        moeplan.torch.side_by_side(world, lambda: layer(x), lambda: layer(x))
    if world.on_card:
        torch.cuda.synchronize()
    if world.rank == 1:
        os._exit(0)
    began = time.monotonic()

    def forward():
        layer(x)
        if world.on_card:  # The call came back; who waits for its stream is let go, and the next call tells why.
            torch.cuda.synchronize()
            layer(x)

    def parts():
        moeplan.torch.side_by_side(world, forward, forward)

    dies_in = {"forward": forward, "backward": lambda: y.sum().backward(), "parts": parts}
    lost = expect_raises(moeplan.PeerLost, dies_in[phase], "rank 1")
    assert time.monotonic() - began < world.deadline_s + 5, time.monotonic() - began
    assert lost.rank == 1, lost
    expect_raises(moeplan.PeerLost, lambda: layer(x), "rank")


def other_tokens(world):
    """Some ranks pass fewer rows than the others, as many slots though they take: all are told at once whose differ."""
    for schedule in FAMILIES:
        for fewer in ((1,), (2, 3)):  # Inside an MP group, and one source batch of two.
            world = moeplan.torch.init(gpus_per_node=2, deadline_s=5)
            plan = small_plan(sharedHiddenDim=0)
            plan["best"]["schedule"] = schedule
            layer = moeplan.torch.MoELayer(plan, world)
            own = 3 if world.rank in fewer else 4
            began = time.monotonic()
            refused = expect_raises(moeplan.InvalidInput, lambda: layer(torch.ones(own, 6)), "tokens: found ")
            assert time.monotonic() - began < world.deadline_s, time.monotonic() - began
            said = re.search(r"found (\d) on rank (\d), expected as many as on rank (\d), (\d)$", str(refused))
            assert said and refused.field == "tokens", (schedule, refused)
            tokens = {int(said[2]): int(said[1]), int(said[3]): int(said[4])}
            assert tokens == {rank: 3 if rank in fewer else 4 for rank in tokens} and len(set(tokens.values())) == 2, refused
            expect_raises(moeplan.Error, lambda: layer(torch.ones(4, 6)), "tokens")
            dist.barrier()


def planned(world, file):
    """Answers of a planner, in a file: they run, and the tasks are those of their timelines, without slices of dense gradients."""
    for answer in json.loads(pathlib.Path(file).read_text()):
        job = Job(answer, world)
        x, y, dy = job.run(1)
        y.backward(dy)
        job.expect([1], [y], [x])
        wanted = [task for task in answer["best"]["timeline"] if not task["task"].startswith("dense_gradients.")]
        kept = ("task", "kind", "stream", "chunk")
        found = job.layer.last_timeline(answer["workload"]["phase"])
        assert sorted([task[k] for k in kept] for task in found) == sorted([task[k] for k in kept] for task in wanted)


def stages_apart(world):
    """Stage 1 runs its first pass only once it has what stage 0's gave."""
    plan = small_plan()
    plan["workload"]["layout"] = {"expertParallel": 2, "pipelineParallel": 2}
    plan["best"] = {"schedule": "PIPELINE", "chunks": 1, "partitionDegree": 2}
    layer = moeplan.torch.MoELayer(plan, world)
    rows = torch.ones(16, 6)
    if world.rank < 2:
        dist.send(layer(rows).detach(), world.rank + 2)
    else:
        dist.recv(rows, world.rank - 2)
        assert layer(rows).shape == rows.shape
    # A stage may also run more passes than the other.
    for _ in range(3 if world.rank < 2 else 1):
        layer(rows)
    # And of a dropless layer passes of other rows; a layer that is made then is one of both stages.
    plan["workload"]["layer"]["capacityFactor"] = 0
    dropless = moeplan.torch.MoELayer(plan, world)
    for tokens in (16, 5) if world.rank < 2 else (7,):
        assert dropless(rows[:tokens]).shape == (tokens, 6)
    moeplan.torch.MoELayer(plan, world)(rows)


def learns(world):
    """Beside DataLoader workers, DistributedDataParallel and the job's own collectives, a small model learns."""
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    plan = small_plan(capacityFactor=2.0, sharedHiddenDim=0)
    plan["workload"]["layout"] = {"expertParallel": 2}
    layer = moeplan.torch.MoELayer(plan, world)
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), layer, torch.nn.Linear(6, 6))
    ignored = [name for name, value in model.named_parameters() if getattr(value, "allreduce", True) is False]
    assert ignored, "experts are marked"
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    parallel = DistributedDataParallel(model)
    data = torch.randn(64, 16, 6, generator=torch.Generator().manual_seed(world.rank))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=1, num_workers=1)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-2)
    threads = torch.get_num_threads()
    losses = []
    for (rows,) in loader:
        optimizer.zero_grad()
        loss = ((parallel(rows) - rows.flip(-1)) ** 2).mean()
        loss.backward()
        moeplan.torch.reduce_gradients(model, experts_only=True)
        for name, value in model.named_parameters():
            if name in ignored:
                value.grad /= world.ranks
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / world.ranks)
    assert sum(losses[-8:]) < 0.6 * sum(losses[:8]), losses
    assert torch.get_num_threads() == threads
    # Replicas of experts, and the gate on all ranks, stay the same.
    for name, value in layer.full_weights().items():
        part = own_part(layer._shard, name)
        close(getattr(layer, name), value[part], f"{name} of a replica", tolerance=1e-6)
