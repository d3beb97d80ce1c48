"""What the ranks of scheduled_test.py run to see when weight gradients run, what is refused, and what is left behind."""

import os
import time

import torch
from scheduled_ranks import BESIDE, Runs, answer_of
from torch_ranks import expect_raises

import moeplan
import moeplan.torch
from moeplan.torch import deferred, layer
from moeplan.torch.replace import ReplacedBlock


def order(world):
    """What is named runs between the start and the end of that layer's backward pass, and its exchange is under way."""
    runs = Runs(world)
    model, events = runs.planned, []
    names = {id(one): name for name, one in model.named_parameters()}
    with moeplan.torch.scheduled(model, runs.answer):
        lanes = [model.blocks[i].mlp._passes.schedule.lane for i in (1, 3)]
        assert sorted(lanes) == [1, 2], "a layer's weight gradients run beside an exchange of the other"
    paths = {id(model.blocks[i].mlp): f"blocks.{i}.mlp" for i in (1, 3)}
    marks = {"_begin_backward": "starts", "_await_experts": "experts", "_end_backward": "ends"}
    originals = {name: getattr(layer.MoELayer, name) for name in marks}
    leave = deferred.Use.leave

    def watched_leave(use, compute):
        of = [names[id(one)] for one in use.parameters if one is not None][0]
        leave(use, lambda: events.append(("dw", of)) or compute())

    def watched(kind, function):
        def call(self, *arguments):
            events.append((kind, paths[id(self)]))
            return function(self, *arguments)

        return call

    deferred.Use.leave = watched_leave
    for name, kind in marks.items():
        setattr(layer.MoELayer, name, watched(kind, originals[name]))
    try:
        for _ in range(2):
            events.clear()
            with moeplan.torch.scheduled(model, runs.answer):
                runs.step(model, 1)
            check_order(events)
        # The same where the layer is in a block that stands for one of the model's own.
        for i in (1, 3):
            model.blocks[i].mlp = ReplacedBlock(model.blocks[i].mlp, None)
        inside = {f"{k.replace('.mlp.', '.mlp.layer.')}": v for k, v in BESIDE.items()}
        for beside in (BESIDE, inside):
            events.clear()
            with moeplan.torch.scheduled(model, answer_of(beside)):
                runs.step(model, 1)
            check_order(events)
        # The order of launches counts, where the plan says it.
        launched = ["head.dw", "blocks.1.mlp.all_to_all2.dx", "norm.dw"]
        events.clear()
        with moeplan.torch.scheduled(model, answer_of({"blocks.1.mlp.all_to_all2.dx": ["norm.dw", "head.dw"]}, order=launched)):
            runs.step(model, 1)
        assert events[3:5] == [("dw", "tokens.weight"), ("dw", "norm.weight")], events
    finally:
        deferred.Use.leave = leave
        for name, function in originals.items():
            setattr(layer.MoELayer, name, function)


def check_order(events):
    assert events == [
        ("starts", "blocks.3.mlp"),
        ("dw", "norm.weight"),
        ("dw", "tokens.weight"),
        ("ends", "blocks.3.mlp"),
        ("starts", "blocks.1.mlp"),
        ("dw", "blocks.3.mlp.up"),
        ("dw", "blocks.3.attention.qkv.weight"),
        ("dw", "blocks.2.mlp.up"),
        ("dw", "blocks.2.mlp.down"),
        ("dw", "blocks.2.mlp.down"),
        ("dw", "blocks.2.mlp.up"),
        ("experts", "blocks.1.mlp"),
        ("dw", "blocks.3.attention.out.weight"),
        ("dw", "blocks.2.norm2.weight"),
        ("dw", "blocks.3.norm1.weight"),
        ("ends", "blocks.1.mlp"),
    ], events


def refusals(world):
    """What the model has not, or this version does not run; the model is as it was, whatever happens inside."""
    runs = Runs(world)
    model = runs.planned
    exchange = "blocks.3.mlp.all_to_all2.dx"
    scheduled = lambda *arguments, **how: moeplan.torch.scheduled(model, *arguments, **how).__enter__()  # noqa: E731

    for name in (
        "nothing.dw", "norm", "norm.dx", "blocks.0.dw", "blocks.0.attention.dropout.dw", "blocks.3.mlp.dw", "blocks.0.mlp.gate.dw",
        "blocks.3.mlp.up.dw", ".dw", "",
    ):  # fmt: skip
        refused = expect_raises(moeplan.InvalidInput, lambda: scheduled(answer_of({exchange: ["norm.dw", name]})), "found ")
        assert (refused.field, refused.found) == ("rules.lancet.weightGradients", name), refused
    for name in ("blocks.0.mlp.all_to_all2.dx", "blocks.3.mlp.all_to_all2", "blocks.3.mlp.all_to_all3.dx", "all_to_all1.dx"):
        refused = expect_raises(moeplan.InvalidInput, lambda: scheduled(answer_of({name: ["norm.dw"]})), name)
        assert refused.found == name, refused
    expect_raises(moeplan.InvalidInput, lambda: scheduled(answer_of({"a.all_to_all1.dx": ["b.dw"]})), "found b.dw, a.all_to_all1.dx")
    expect_raises(moeplan.InvalidInput, lambda: scheduled(answer_of({exchange: ["norm.dw", "norm.dw"]})), "norm.dw twice")
    expect_raises(
        moeplan.InvalidInput, lambda: scheduled(answer_of({exchange: ["blocks.3.mlp.experts.dw"]})), "beside what brings its rows"
    )
    waiting = {exchange: ["blocks.1.mlp.experts.dw"], "blocks.1.mlp.all_to_all1.dx": ["blocks.3.mlp.experts.dw"]}
    expect_raises(moeplan.InvalidInput, lambda: scheduled(answer_of(waiting)), "each other")
    for answer in ({}, {"rules": {}}, {"rules": {"lancet": None}}, None, [], {"rules": {"parm": {}}}):
        refused = expect_raises(moeplan.InvalidInput, lambda: scheduled(answer), "plan --graph")
        assert refused.field == "rules.lancet", refused
    expect_raises(moeplan.InvalidInput, lambda: scheduled({"rules": {"lancet": {"weightGradients": ["norm.dw"]}}}), "[0]")
    expect_raises(moeplan.InvalidInput, lambda: scheduled(runs.answer, without="nothing"), "without")

    ranges = answer_of(BESIDE, partitions=[{"first": "blocks.0.norm1", "last": "blocks.1.mlp.combine", "parts": 2, "timeS": 1}])
    for without in ("partition", ("partition", "weight-gradients")):
        with moeplan.torch.scheduled(model, ranges, without=without):
            assert ("forward" in vars(model.norm)) == (without == "partition") and "forward" not in vars(model)
    with moeplan.torch.scheduled(model, ranges, without="weight-gradients"):
        assert "forward" in vars(model) and "forward" not in vars(model.norm)
    with moeplan.torch.scheduled(model, answer_of({"nothing.all_to_all1.dx": ["nothing.dw"]}), without="weight-gradients"):
        pass
    expect_untouched(model)

    # Who cannot wait is told by the first forward pass; what is under a schedule is not put under another, nor cut in parts.
    with moeplan.torch.scheduled(model, answer_of({"blocks.1.mlp.all_to_all2.dx": ["tokens.dw"]})):
        refused = expect_raises(moeplan.InvalidInput, lambda: runs.step(model, 1), "Embedding")
        assert refused.field == "tokens.dw", refused
        expect_raises(moeplan.InvalidInput, lambda: scheduled(runs.answer), "one schedule at a time")
        assert model.blocks[1].mlp._passes.schedule is not None
        rows = torch.zeros(16, 8)
        part = lambda: model.blocks[1].mlp(rows)  # noqa: E731
        expect_raises(moeplan.InvalidInput, lambda: moeplan.torch.side_by_side(world, part, part), "side_by_side")
    expect_untouched(model)

    def failing():
        with moeplan.torch.scheduled(model, runs.answer):
            runs.step(model, 1)
            raise KeyError("inside")

    expect_raises(KeyError, failing, "inside")
    expect_untouched(model)

    # A backward pass that fails half way leaves nothing to the next one.
    runs.zero()
    with moeplan.torch.scheduled(model, runs.answer):
        fails = model.blocks[2].norm1.weight.register_hook(lambda _: 1 / 0)
        expect_raises(ZeroDivisionError, lambda: model(runs.text(1)).backward(), "division")
        fails.remove()
    runs.zero()
    runs.expect_alike(exactly=("blocks", "norm"))

    # Others have replaced a forward before; states and copies are as ever.
    norm, own = model.norm, model.norm.forward
    norm.forward = lambda x: own(x)
    mine = norm.forward
    state = {name: one.clone() for name, one in model.state_dict().items()}
    with moeplan.torch.scheduled(model, runs.answer):
        assert norm.forward is not mine
        assert list(model.state_dict()) == list(state)
        runs.step(model, 1)
    assert norm.forward is mine
    del norm.forward
    model.load_state_dict(state)
    expect_untouched(model)


def expect_untouched(model):
    for path, module in model.named_modules():
        assert "forward" not in vars(module), path
        assert not isinstance(module, moeplan.torch.MoELayer) or module._passes.schedule is None, path


def lost_rank(world):
    """A rank dies between the passes; the others, which wait in the middle of a backward pass, learn of it in time."""
    runs = Runs(world)
    with moeplan.torch.scheduled(runs.planned, answer_of({"blocks.3.mlp.all_to_all1.dx": ["norm.dw"]})):
        runs.step(runs.planned, 1)
        loss = runs.planned(runs.text(2))
        if world.rank == 1:
            os._exit(0)
        began = time.monotonic()
        lost = expect_raises(moeplan.PeerLost, loss.backward, "rank 1")
        assert lost.rank == 1 and time.monotonic() - began < world.deadline_s + 5, lost
    expect_untouched(runs.planned)
