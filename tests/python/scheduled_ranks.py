"""What the ranks of scheduled_test.py run, as rank_process.py says."""

import random
import sys

import small_gpt
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from small_gpt import SmallGpt
from torch_ranks import FAMILIES, close

import moeplan.torch

IN_PIECES = ("PARM_S1", "PARM_S2", "PIPELINE", "MONTA_O2", "MONTA_O3")
# Of two MoE layers, blocks 1 and 3. Backward passes come to block 3 first.
BESIDE = {
    "blocks.3.mlp.all_to_all2.dx": ["norm.dw", "head.dw"],
    "blocks.1.mlp.all_to_all2.dx": ["blocks.3.mlp.experts.dw", "blocks.3.attention.qkv.dw", "blocks.2.mlp.dw"],
    "blocks.1.mlp.all_to_all1.dx": [
        "blocks.3.attention.out.dw",
        "blocks.2.norm2.dw",
        "blocks.3.norm1.dw",
        "blocks.1.mlp.experts.dw",
        "blocks.3.mlp.gate.dw",
    ],
}


def answer_of(beside, **more):
    entries = [{"instruction": name, "allToAll": exchange} for exchange, names in beside.items() for name in names]
    lancet = {"weightGradients": entries, "partitions": [], "unscheduledTimeS": 2, "timeS": 1, "order": [], **more}
    return {"rules": {"lancet": lancet}}


def plan_of(ranks, **changes):
    shape = {"batch": 2, "sequenceLength": 8, "modelDim": 8, "hiddenDim": 12, "experts": 4, "topK": 2, "capacityFactor": 1.0}
    workload = {"layer": {**shape, "expertBias": True, **changes}, "layout": {"expertParallel": ranks}, "phase": "TRAINING"}
    return {"workload": workload, "best": {"schedule": "BASELINE", "chunks": 1, "partitionDegree": 1}}


class Runs:
    """A model with and without a schedule: alike, whatever is done with it."""

    def __init__(self, world, plan=None, layer_fields=None, **model):
        self.world = world
        plan = plan or plan_of(world.ranks, **(layer_fields or {}))
        self.models = []
        for _ in range(2):
            torch.manual_seed(3)
            self.models.append(SmallGpt(lambda i: moeplan.torch.MoELayer(plan, world, seed=i), **model).to(world.device))
        self.plain, self.planned = self.models
        self.answer = answer_of(BESIDE)

    def text(self, seed):
        generator = torch.Generator().manual_seed(100 * seed + self.world.rank)
        return torch.randint(0, 16, (2, 9), generator=generator).to(self.world.device)

    def step(self, model, seed, parts=1):
        torch.manual_seed(seed)
        losses = []
        for part in range(parts):
            loss = model(self.text(10 * seed + part)) / parts
            loss.backward()
            losses.append(loss.detach())
        return losses

    def expect_alike(self, seeds=(1, 2), exactly=(), tolerance=1e-6, **how):
        """Gradients of a step after another; those of ``exactly`` to the bit."""
        for seed in seeds:
            losses = self.step(self.plain, seed, **how)
            with moeplan.torch.scheduled(self.planned, self.answer):
                found = self.step(self.planned, seed, **how)
            assert torch.equal(torch.stack(found), torch.stack(losses)), (found, losses)
            self.compare(exactly, tolerance)

    def compare(self, exactly=(), tolerance=1e-6):
        for (name, one), (_, other) in zip(self.plain.named_parameters(), self.planned.named_parameters()):
            assert (one.grad is None) == (other.grad is None), name
            if one.grad is None:
                continue
            close(other.grad, one.grad, name, tolerance)
            assert not any(name.startswith(part) for part in exactly) or torch.equal(one.grad, other.grad), name
            assert other.grad.dtype == other.dtype and other.grad.shape == other.shape

    def zero(self):
        for model in self.models:
            model.zero_grad(set_to_none=True)


def gradients(world):
    """Steps, micro-batches, replicas, an optimizer."""
    runs = Runs(world)
    runs.expect_alike(exactly=("blocks", "norm"))
    assert runs.planned.blocks[3].mlp.up.grad is not None
    runs.zero()
    runs.expect_alike(parts=3)
    for model in runs.models:
        moeplan.torch.reduce_gradients(model)
    runs.compare()
    for (name, one), (_, other) in zip(
        runs.plain.blocks[1].mlp.full_gradients().items(), runs.planned.blocks[1].mlp.full_gradients().items()
    ):
        assert one is other is None or torch.allclose(one, other, atol=1e-6), name

    # Ten steps of an optimizer, the whole training inside of one context.
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in runs.models]
    losses = [[], []]
    with moeplan.torch.scheduled(runs.planned, runs.answer):
        for i, (model, optimizer) in enumerate(zip(runs.models, optimizers)):
            for seed in range(10):
                optimizer.zero_grad()
                losses[i] += runs.step(model, seed)
                moeplan.torch.reduce_gradients(model)
                optimizer.step()
    close(torch.stack(losses[1]), torch.stack(losses[0]), "losses", 1e-5)

    # Two forward passes before their backward passes, in either order.
    runs = Runs(world)
    for order in ((0, 1), (1, 0)):
        for i, model in enumerate(runs.models):
            answer = runs.answer if i == 1 else answer_of({})
            with moeplan.torch.scheduled(model, answer):
                made = [model(runs.text(seed)) for seed in (1, 2)]
                for one in order:
                    made[one].backward()
        runs.compare()

    # A graph that is gone back through after the end of the context; and one behind an exchange, without it: for the gradient
    # of its input alone, and twice as a whole.
    h = torch.randn(4, 8, generator=torch.Generator().manual_seed(world.rank)).to(world.device).requires_grad_()
    inputs = []
    for i, model in enumerate(runs.models):
        with moeplan.torch.scheduled(model, runs.answer if i == 1 else answer_of({})):
            later = model(runs.text(6))
            model.blocks[3].mlp(h)
            part = model.head(model.norm(h)).square().sum()
            inputs += torch.autograd.grad(part, h, retain_graph=True)
            part.backward(retain_graph=True)
            part.backward()
        later.backward()
    assert torch.equal(*inputs)
    runs.compare()


def special_models(world):
    """Dropout, recomputation of both kinds, frozen parameters, evaluation, hooks, capacities, shared experts."""
    runs = Runs(world, dropout=0.3)
    runs.expect_alike(exactly=("blocks", "norm"))
    for reentrant in (False, True):
        recompute = lambda function, x: torch.utils.checkpoint.checkpoint(function, x, use_reentrant=reentrant)  # noqa: B023, E731
        runs = Runs(world, dropout=0.3, recompute=recompute)
        runs.expect_alike(exactly=("blocks", "norm"), parts=2)
        only_moe = lambda function, x: recompute(function, x) if hasattr(function.mlp, "gate") else function(x)  # noqa: B023, E731
        runs = Runs(world, recompute=only_moe)
        runs.expect_alike(exactly=("blocks", "norm"), parts=2)

    runs = Runs(world)
    for model in runs.models:
        model.blocks[3].attention.qkv.weight.requires_grad_(False)
        model.blocks[3].attention.out.requires_grad_(False)
        model.blocks[3].mlp.requires_grad_(False)
        model.norm.bias.requires_grad_(False)
    runs.expect_alike(exactly=("blocks", "norm"))
    assert runs.planned.blocks[3].attention.qkv.weight.grad is None and runs.planned.blocks[3].attention.qkv.bias.grad is not None

    # Nothing in front of the first MoE layer learns, so no backward pass comes to its exchange.
    runs = Runs(world)
    for model in runs.models:
        model.requires_grad_(False)
        model.blocks[2].requires_grad_(True)
        model.blocks[3].requires_grad_(True)
    runs.expect_alike(exactly=("blocks",))
    assert runs.planned.blocks[2].mlp.up.grad is not None and runs.planned.blocks[3].mlp.up.grad is not None

    runs = Runs(world)
    with moeplan.torch.scheduled(runs.planned, runs.answer):
        with torch.no_grad():
            assert torch.equal(runs.planned(runs.text(1)), runs.plain(runs.text(1)))
        runs.planned.eval()
        assert torch.equal(runs.planned(runs.text(1)), runs.plain(runs.text(1)))
        with torch.inference_mode():
            assert torch.equal(runs.planned(runs.text(1)), runs.plain(runs.text(1)))
        runs.planned.train()
    runs.expect_alike(exactly=("blocks", "norm"))

    runs = Runs(world)
    seen = {id(model): [] for model in runs.models}
    for model in runs.models:
        model.head.weight.register_hook(lambda g, model=model: seen[id(model)].append("head") or g.clamp(-1e-3, 1e-3))
        model.blocks[3].mlp.up.register_hook(lambda g, model=model: seen[id(model)].append("up") or 2 * g)
        for path in ("blocks.3.attention.out", "norm"):
            module = model.get_submodule(path)
            module.register_full_backward_hook(lambda m, i, o, model=model, path=path: seen[id(model)].append(path) or None)
            module.register_forward_hook(lambda m, i, o: 1.5 * o)
    runs.expect_alike(exactly=("blocks", "norm"))
    assert sorted(seen[id(runs.plain)]) == sorted(seen[id(runs.planned)]), seen

    # A layer that two blocks share hides what comes between its calls, and what comes behind both.
    runs = Runs(world)
    for model in runs.models:
        model.blocks[3].mlp = model.blocks[1].mlp
    behind, between = ["norm.dw", "head.dw"], ["blocks.3.attention.out.dw", "blocks.2.mlp.dw"]
    runs.answer = answer_of({"blocks.1.mlp@2.all_to_all2.dx": behind, "blocks.1.mlp.all_to_all1.dx": between})
    runs.expect_alike(exactly=("blocks.0", "blocks.2", "norm"))

    for fields in ({"sharedHiddenDim": 8}, {"capacityFactor": 0.0}, {"router": {"bias": True}}):
        Runs(world, layer_fields=fields).expect_alike(exactly=("blocks", "norm"))

    # Under autocast products wait; the rest comes at once.
    runs = Runs(world)
    x, seed = runs.text(1), torch.ones((), device=world.device)
    for model in runs.models:
        model.blocks[1].mlp.register_forward_pre_hook(lambda m, inputs: (inputs[0].float(),))
        model.blocks[3].mlp.register_forward_pre_hook(lambda m, inputs: (inputs[0].float(),))
    for i, model in enumerate(runs.models):
        with moeplan.torch.scheduled(model, runs.answer if i == 1 else answer_of({})):
            with torch.autocast(world.device.type, dtype=torch.bfloat16):
                loss = model(x)
            loss.backward(seed)
    for (name, one), (_, other) in zip(runs.plain.named_parameters(), runs.planned.named_parameters()):
        close(other.grad, one.grad, name, tolerance=1e-2)


def distributed_data_parallel(world):
    """The reducer hears of every gradient once, when it is there."""
    from torch.nn.parallel import DistributedDataParallel

    for unused in (False, True):
        runs = Runs(world, layer_fields={"sharedHiddenDim": 8})
        wrapped = []
        for model in runs.models:
            ignored = [name for name, one in model.named_parameters() if getattr(one, "allreduce", True) is False]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
            wrapped.append(DistributedDataParallel(model, find_unused_parameters=unused, bucket_cap_mb=0.001))
        for names in (runs.answer, answer_of({f"module.{k}": [f"module.{v}" for v in vs] for k, vs in BESIDE.items()})):
            for seed in (1, 2):
                for i, model in enumerate(wrapped):
                    with moeplan.torch.scheduled(model, names if i == 1 else answer_of({})):
                        with model.no_sync():
                            model(runs.text(seed)).backward()
                        model(runs.text(seed + 5)).backward()
                    moeplan.torch.reduce_gradients(model, experts_only=True)
                runs.compare()
    # Alike on all ranks, so that they were summed after they were there.
    for name, one in runs.planned.named_parameters():
        if getattr(one, "allreduce", True):
            all_ranks = [torch.empty_like(one) for _ in range(world.ranks)]
            dist.all_gather(all_ranks, one.grad)
            assert torch.equal(all_ranks[0], all_ranks[1]), name


def random_plans(world, draws, seed):
    """Whatever waits for whatever, also for what has passed already, under all families of schedules."""
    draw = random.Random(seed)
    for number in range(draws):
        schedule, pieces = draw.choice(FAMILIES), draw.choice([1, 2])
        plan = plan_of(world.ranks, capacityFactor=draw.choice([0.0, 1.0]), sharedHiddenDim=draw.choice([0, 4]))
        chunks = {"chunks": pieces} if schedule in ("MONTA_O2", "MONTA_O3") else {"partitionDegree": pieces}
        plan["best"] = {"schedule": schedule, "chunks": 1, "partitionDegree": 1, **(chunks if schedule in IN_PIECES else {})}
        runs = Runs(world, plan=plan, layers=6, dropout=0.2, recompute=recompute_of(draw.choice([None, False, True])))
        exchanges = [f"blocks.{i}.mlp.all_to_all{n}.dx" for i in (1, 3, 5) for n in (1, 2)]
        able = [name for name, one in runs.plain.named_modules() if can_wait(one)]
        names = [f"{name}.dw" for name in draw.sample(able, draw.randint(0, len(able)))]
        beside = {exchange: [] for exchange in exchanges}
        for name in names:
            beside[draw.choice(exchanges)].append(name)
        for i in (3, 5):  # Experts wait for layers that the backward pass comes to later, or not at all.
            beside[f"blocks.{i - 2}.mlp.all_to_all{draw.choice([1, 2])}.dx"] += [f"blocks.{i}.mlp.experts.dw"] * draw.randint(0, 1)
        runs.answer = answer_of(beside)
        try:
            runs.expect_alike(parts=draw.randint(1, 2), tolerance=1e-5)
        except BaseException:
            print(number, plan, beside, file=sys.stderr)
            raise


def can_wait(module):
    known = (torch.nn.Linear, torch.nn.LayerNorm, small_gpt.RootMeanSquareNorm, small_gpt.Conv1D, small_gpt.Mlp)
    return isinstance(module, known)


def recompute_of(reentrant):
    if reentrant is None:
        return None
    return lambda function, x: torch.utils.checkpoint.checkpoint(function, x, use_reentrant=reentrant)


def planned(world, answer):
    """What a planner has answered to a graph of the model."""
    runs = Runs(world)
    runs.answer = answer
    assert answer["rules"]["lancet"]["weightGradients"], answer
    runs.expect_alike(exactly=("blocks", "norm"))
