"""What the ranks of capture_test.py run (rank_process.py says how)."""

import copy
import json
import os
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch_ranks import close

import moeplan
import moeplan.torch
from moeplan.torch.operator_times import OperatorTimes
from moeplan.torch.operators import Operators
from moeplan.torch.paced_step import PacedStep
from moeplan.torch.tracer import trace

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "models"))

import deepseek_like  # noqa: E402
import gpt2_like  # noqa: E402
import mixtral_like  # noqa: E402

BATCH, VOCABULARY, EXPERTS = 8, 64, 4


def plan_of(world, width, hidden, length, top_k, matrices, more=None, **best):
    layer = {
        "batch": BATCH,
        "sequenceLength": length,
        "modelDim": width,
        "hiddenDim": hidden,
        "experts": EXPERTS,
        "topK": top_k,
        "bytesPerElement": 4,
        "expertMatrices": matrices,
        **(more or {}),
    }
    layout = {"expertParallel": world.ranks}
    found = {"schedule": "BASELINE", "chunks": 1, "partitionDegree": 1, **best}
    return {"workload": {"layer": layer, "layout": layout, "phase": "TRAINING"}, "best": found}


def of_gpt2(block):
    return {"gate": block.router.weight, "up": block.up, "down": block.down, "top_k": 1, "dropless": True}


def of_mixtral(block):
    def matrices(name):
        return [getattr(expert, name).weight.T for expert in block.experts]

    weights = {"gate": block.gate.weight, "gate_up": matrices("w1"), "up": matrices("w3"), "down": matrices("w2")}
    return {**weights, "top_k": block.top_k, "dropless": True, "returns": lambda layer, x, y: (y, layer.gate.sum())}


def router_of(gate):
    return {
        "scoreFunction": "SIGMOID",
        "correctionBias": True,
        "weightScale": gate.route_scale,
        "expertGroups": gate.n_groups,
        "groupsPerToken": gate.topk_groups,
    }


def of_deepseek(block):
    names = {"gate_up": "w1", "up": "w3", "down": "w2"}
    weights = {name: [getattr(expert, own).weight.T for expert in block.experts] for name, own in names.items()}
    shared = {f"shared_{name}": getattr(block.shared_experts, own).weight.T for name, own in names.items()}
    gate = {"gate": block.gate.weight, "correction_bias": block.gate.bias}
    return {**gate, **weights, **shared, "top_k": block.gate.topk, "dropless": True, "router": router_of(block.gate)}


def model_of(world, kind, width=32, length=16, **best):
    """The model with its blocks replaced, and the loss of its output for the batch's targets."""
    torch.manual_seed(7)
    targets = torch.randint(0, VOCABULARY, (BATCH, length)).to(world.device)
    if kind == "gpt2_like":
        model = gpt2_like.LanguageModel(VOCABULARY, width, 4, 2, 2 * width, EXPERTS, length).to(world.device)
        plan = plan_of(world, width, 2 * width, length, 1, 2, **best)
        moeplan.torch.replace(model, {gpt2_like.SparseFeedForward: of_gpt2}, plan, world)
        return model, lambda logits: F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))
    if kind == "deepseek_like":
        args = deepseek_like.Args(VOCABULARY, width, 2 * width, width, n_routed_experts=EXPERTS)
        model = deepseek_like.Transformer(args).to(world.device)
        more = {"sharedHiddenDim": width, "router": router_of(model.layers[-1].ffn.gate)}
        plan = plan_of(world, width, width, length, args.n_activated_experts, 3, more, **best)
        moeplan.torch.replace(model, {deepseek_like.MoE: of_deepseek}, plan, world)
        return model, lambda logits: F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    model = mixtral_like.Model(mixtral_like.Config(VOCABULARY, width, 2 * width, 2, 4, 2, EXPERTS)).to(world.device)
    plan = plan_of(world, width, 2 * width, length, 2, 3, **best)
    moeplan.torch.replace(model, {mixtral_like.SparseMoeBlock: of_mixtral}, plan, world)
    return model, lambda output: F.cross_entropy(output["logits"].view(-1, VOCABULARY), targets.view(-1))


def tokens_of(world, length=16):
    tokens = torch.randint(0, VOCABULARY, (BATCH, length), generator=torch.Generator().manual_seed(world.rank))
    return tokens.to(world.device)


def check_graph(graph, model):
    """Every tensor that is read was produced before, or is an input or a weight; ids are those of modules and layers."""
    layers = {path: one for path, one in model.named_modules() if isinstance(one, moeplan.torch.MoELayer)}
    with_capacity = [path for path, one in layers.items() if one.plan.workload.layer.capacity_factor > 0]
    cut = {one["id"] for one in graph["instructions"] if one["phase"] == "FORWARD" and "partTimesS" in one}
    produced, ids = set(), []
    for one in graph["instructions"]:
        forward = one["id"].rpartition(".")[0]
        assert one.get("forward") == (forward if one["phase"] == "BACKWARD" and forward in cut else None), one
        assert len(one["outputBytes"]) == len(one["outputs"]), one
        for tensor in one["inputs"]:
            assert tensor in produced or tensor.startswith(("input(", "w(")), (one["id"], tensor)
        parts = one.get("partTimesS", [])
        # Parts of a layer with a capacity may send fewer rows than the whole has slots.
        has_slots = any(one["id"].startswith(path + ".") for path in with_capacity)
        assert has_slots or all(k * time_s >= one["timeS"] * (1 - 1e-9) for k, time_s in enumerate(parts, 1)), one
        assert one["timeS"] >= 0 and not produced & set(one["outputs"]), one
        assert all(time_s > 0 for time_s in parts) or one["op"] in ("ALL_TO_ALL", "DISPATCH"), one
        produced.update(one["outputs"])
        ids.append(one["id"])
    assert len(set(ids)) == len(ids)
    for path, module in model.named_modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.LayerNorm)):
            assert {path, path + ".dx", path + ".dw"} <= set(ids), path
            weights = graph["instructions"][ids.index(path + ".dw")]
            assert weights["outputBytes"] == [4 * sum(one.numel() for one in module.parameters())], path
        if isinstance(module, moeplan.torch.MoELayer):
            shared = ["shared"] if module.plan.workload.layer.shared_hidden_dim > 0 else []
            of_layer = ["gate", "dispatch", "all_to_all1", *shared, "experts", "all_to_all2", "combine"]
            expected = [f"{path}.{name}" for name in of_layer]
            assert [one for one in ids if one.startswith(path) and not one.endswith((".dx", ".dw"))] == expected, ids
            assert {one + ".dx" for one in expected} | {f"{path}.gate.dw", f"{path}.experts.dw"} <= set(ids), ids
    modules = dict(model.named_modules())
    weights = [one for one in graph["instructions"] if one.get("weightGradient")]
    assert weights and all(one["id"].endswith(".dw") and one["phase"] == "BACKWARD" for one in weights)
    for one in weights:
        path = one["id"][: -len(".dw")]
        layer = modules.get(path.rpartition(".")[0])
        assert path in modules or isinstance(layer, moeplan.torch.MoELayer), path


def planned(world, graph):
    """The plan of `moeplan plan --graph`."""
    return answered(graph)["rules"]["lancet"]


def answered(graph):
    """What `moeplan plan --graph` says of it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(graph, file)
        file.flush()
        command = [os.environ["MOEPLAN_BIN"], "plan", "--graph", file.name, "--json"]
        answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def captured(world, kind, cache):
    """A stranger's model is captured, and captured again without timing anything; neither changes the job."""
    model, loss = model_of(world, kind)
    tokens = tokens_of(world)
    loss(model(tokens)).backward()
    before = [one.grad.clone() for one in model.parameters()], torch.get_rng_state()
    steps = []
    as_it_is = PacedStep.run_as_it_is
    PacedStep.run_as_it_is = lambda self, *args, **kwargs: (steps.append(1), as_it_is(self, *args, **kwargs))
    graph = moeplan.torch.capture(model, tokens, loss, world, cache=cache)
    in_turns = 6 * len(graph["measuredSteps"])  # With the passes, the first of which does not count.
    assert len(steps) == in_turns and [one["parts"] for one in graph["measuredSteps"]] == [1, 2, 4, 8], graph["measuredSteps"]
    ids = [one["id"] for one in graph["instructions"]]
    for one in graph["measuredSteps"][1:]:
        inside = ids[ids.index(one["first"]) : ids.index(one["last"]) + 1]
        assert {"ALL_TO_ALL", "COMBINE"} <= {graph["instructions"][ids.index(name)]["op"] for name in inside}, inside
        assert one["timeS"] > 0, one
    assert all(torch.equal(one.grad, known) for one, known in zip(model.parameters(), before[0]))
    assert torch.equal(torch.get_rng_state(), before[1])
    assert graph.timed > 50, graph.timed
    check_graph(graph, model)
    assert world._gather(json.dumps(graph)) == [json.dumps(graph)] * world.ranks
    again = moeplan.torch.capture(model, (tokens,), loss, world, cache=cache)
    assert again.timed == 0 and again == graph and len(steps) == in_turns, again.timed
    # One rank listens to a module that is several operations, which runs in parts nowhere then.
    blocks = next(one for one in model.children() if isinstance(one, torch.nn.ModuleList))
    listens = blocks[0].register_forward_hook(lambda *_: None) if world.rank == 0 else None
    hooked = moeplan.torch.capture(model, tokens, loss, world, cache=cache)
    assert "measuredSteps" not in hooked and hooked.timed == 0, hooked.timed
    if listens is not None:
        listens.remove()
    # Steps are compared, so one that is missing has all timed.
    with sqlite3.connect(cache) as database:
        database.execute("DELETE FROM operator_times WHERE side LIKE '4 parts%'")
        database.execute("UPDATE operator_times SET seconds = 100 WHERE side = 'as it is'")
    anew = moeplan.torch.capture(model, tokens, loss, world, cache=cache)
    assert anew.timed == 4 and all(one["timeS"] < 50 for one in anew["measuredSteps"]), (anew.timed, anew["measuredSteps"])
    smaller = moeplan.torch.capture(model, {"tokens": tokens[:4]}, lambda output: first_of(output).sum(), world, cache=cache)
    assert smaller.timed > 0
    # A file of its own says otherwise on one rank.
    own = f"{cache}.{world.rank}"
    times = OperatorTimes(own, world.device, world.gpus_per_node)
    operators = Operators(again.traced, world.ranks, world.nodes)
    some = [one for i in again.traced.instructions for one in operators.forward(i, BATCH) + operators.backward(i, BATCH)]
    times.keep({one: 1.0 + world.rank for one in some})
    other = moeplan.torch.capture(model, tokens, loss, world, cache=own)
    assert world._gather(json.dumps(other)) == [json.dumps(other)] * world.ranks
    assert {one["timeS"] for one in other["instructions"]} == {0.0, 1.5}
    said = answered(graph)
    assert "Parts that run beside each other take" in said["explanation"], said["explanation"]
    # A busy machine's steps may be out of reach of any times of parts; ranges that cannot be cut are a fault.
    assert not any("cannot be cut" in warning for warning in said["warnings"]), said["warnings"]
    answer = said["rules"]["lancet"]
    assert 0 < answer["timeS"] <= answer["unscheduledTimeS"] * (1 + 1e-9)
    assert set(answer["order"]) and graph["maxParts"] == BATCH


def awkward_layers(world, cache):
    """Seven samples, whose parts leave some over, with a router's loss that asks for all of them; and a gate that looks at
    the whole batch, whose layer no plan may cut."""
    for gate, coefficient in (("TOP_K", 0.01), ("EXPERT_CHOICE", 0.0)):
        plan = plan_of(world, 32, 64, 16, 1, 2)
        plan["workload"]["layer"].update({"gate": gate, "auxLossCoefficient": coefficient, "capacityFactor": 1.25})
        layer = moeplan.torch.MoELayer(plan, world)
        model = torch.nn.Sequential(torch.nn.Linear(32, 32), layer, torch.nn.Linear(32, 32))
        x = torch.randn(7, 16, 32, generator=torch.Generator().manual_seed(world.rank))
        graph = moeplan.torch.capture(model, x, lambda y: y.square().mean(), world, cache=cache)
        of_layer = [one for one in graph["instructions"] if one["id"].startswith("1.")]
        assert len(of_layer) == 14 and graph["maxParts"] == 7, [one["id"] for one in of_layer]
        assert any("forward" in one for one in of_layer) == (gate == "TOP_K"), of_layer
        assert ("measuredSteps" in graph) == (gate == "TOP_K"), graph.get("measuredSteps")
        graph.pop("measuredSteps", None)
        for one in graph["instructions"]:  # Whatever cutting would hide.
            one["timeS"] *= 1e6 if one["op"] == "ALL_TO_ALL" else 1
            one["partTimesS"] = [time_s * (1e6 if one["op"] == "ALL_TO_ALL" else 1) for time_s in one.get("partTimesS", [])]
        cuts = planned(world, graph)["partitions"]
        ids = [one["id"] for one in graph["instructions"]]
        inside = [ids[i] for cut in cuts for i in range(ids.index(cut["first"]), ids.index(cut["last"]) + 1)]
        assert gate == "TOP_K" or not any(one.startswith("1.") for one in inside), cuts


def first_of(output):
    return output["logits"] if isinstance(output, dict) else output


def sums_up(world, kind, cache):
    """The graph's unscheduled timeline is about as long as a step."""
    model, loss = model_of(world, kind, width=128, length=64)
    tokens = tokens_of(world, 64)

    def step_s():
        model.zero_grad(set_to_none=True)
        torch.distributed.barrier()
        begin = time.perf_counter()
        loss(model(tokens)).backward()
        return time.perf_counter() - begin

    for attempt in range(4):  # Other work of the machine may come between.
        steps = [step_s() for _ in range(4)]
        graph = moeplan.torch.capture(model, tokens, loss, world, cache=f"{cache}.{attempt}")
        steps += [step_s() for _ in range(3)]
        ratio = planned(world, graph)["unscheduledTimeS"] / statistics.fmean(world._gather(statistics.median(steps)))
        if world.rank == 0:
            print(f"{kind}: unscheduled over measured step {ratio:.3f}", flush=True)
        if any(world._gather(0.6 <= ratio <= 1.4)):
            return
    raise AssertionError(f"the graph's timeline is {ratio:.2f} of the step")


def computes_the_step(world, kind):
    """The instructions, one after another, give the gradients of the step, dropout's draws and all."""
    model, loss = model_of(world, kind)
    tokens = tokens_of(world)
    traced = trace(model, tokens, loss)
    paced = PacedStep(traced, Operators(traced, world.ranks, world.nodes), tokens, world.device)
    torch.manual_seed(11)
    paced.run(BATCH, counts=False)
    torch.manual_seed(11)
    loss(model(tokens)).backward()
    learning = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    assert set(paced.gradients) == set(learning), set(learning) ^ set(paced.gradients)
    for name, gradient in learning.items():
        close(paced.gradients[name], gradient, name)


def no_file(world, folder):
    """Where one rank cannot write its file, all are told."""
    model, loss = model_of(world, "gpt2_like")
    try:
        moeplan.torch.capture(model, tokens_of(world), loss, world, cache=f"{folder}/c.db" if world.rank == 0 else "/proc/c.db")
    except moeplan.InvalidInput as error:
        assert error.field == "cache" and "/proc/c.db" in error.found, error
    else:
        raise AssertionError("no file taken")


def chunks(world, cache):
    """A layer that its plan runs in chunks is refused, with what to do."""
    model, loss = model_of(world, "gpt2_like", schedule="PIPELINE", partitionDegree=2)
    try:
        moeplan.torch.capture(model, tokens_of(world), loss, world, cache=cache)
    except moeplan.InvalidInput as error:
        assert "a plan of one chunk" in str(error) and "blocks.1.mlp.layer" in str(error), error
    else:
        raise AssertionError("chunks taken")


def not_replaced(world):
    """A model's own MoE block is refused where its shapes depend on values."""
    model = gpt2_like.LanguageModel()
    before = copy.deepcopy(model.state_dict())
    try:
        moeplan.torch.capture(model, tokens_of(world), lambda output: output.sum(), world)
    except moeplan.InvalidInput as error:
        assert "blocks.1.mlp" in error.field and "nonzero" in error.found and "replace" in error.expected, error
    else:
        raise AssertionError("a block of the model's own taken")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
