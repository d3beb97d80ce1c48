"""moeplan.torch.capture: what is traced, what is refused, and graphs of models that never heard of moeplan."""

import multiprocessing
import types
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")

from ranks import run_ranks  # noqa: E402
from torch import nn  # noqa: E402

import moeplan  # noqa: E402
from moeplan.torch import moe_tasks  # noqa: E402
from moeplan.torch.by_batch import alike  # noqa: E402
from moeplan.torch.capture import _between  # noqa: E402
from moeplan.torch.deferred import Slots  # noqa: E402
from moeplan.torch.forward_in_parts import Program  # noqa: E402
from moeplan.torch.operator_times import Operator, OperatorTimes  # noqa: E402
from moeplan.torch.operators import Operators  # noqa: E402
from moeplan.torch.paced_step import PacedStep  # noqa: E402
from moeplan.torch.ranges import Partition, longest  # noqa: E402
from moeplan.torch.step_inputs import Arguments  # noqa: E402
from moeplan.torch.traced import BatchSize, Read  # noqa: E402
from moeplan.torch.tracer import trace, trace_forward  # noqa: E402

KINDS = ["gpt2_like", "mixtral_like", "deepseek_like"]
HOST = torch.device("cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_a_strangers_model_is_captured_and_then_times_nothing(tmp_path, kind):
    run_ranks(tmp_path, 2, "captured", program="capture_ranks", gpus_per_node=2, kind=kind, cache=str(tmp_path / "c.db"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_instructions_compute_the_step(tmp_path, kind):
    run_ranks(tmp_path, 2, "computes_the_step", program="capture_ranks", gpus_per_node=2, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_instructions_times_sum_up_to_a_step(tmp_path, kind):
    run_ranks(tmp_path, 2, "sums_up", program="capture_ranks", gpus_per_node=2, kind=kind, cache=str(tmp_path / "c.db"))


def test_a_rank_without_a_file_is_known_to_all(tmp_path):
    run_ranks(tmp_path, 2, "no_file", program="capture_ranks", gpus_per_node=2, folder=str(tmp_path))


def test_layers_whose_parts_are_uneven_or_none_are_captured(tmp_path):
    run_ranks(tmp_path, 2, "awkward_layers", program="capture_ranks", gpus_per_node=2, cache=str(tmp_path / "c.db"))


def test_a_plan_in_chunks_is_refused(tmp_path):
    run_ranks(tmp_path, 1, "chunks", program="capture_ranks", cache=str(tmp_path / "c.db"))


def test_a_block_of_the_models_own_is_refused(tmp_path):
    run_ranks(tmp_path, 1, "not_replaced", program="capture_ranks")


# ---- What is run in parts.


@pytest.mark.parametrize(
    "step, ends",
    [
        ("mmm", None),  # No layer.
        ("mmLm", ("m1", "m3")),  # The first reads what nobody has made of samples.
        ("mL", ("L1.gate", "L1.combine")),
        ("mmLmoLm", ("m1", "m3")),  # Half of the layers.
        ("mmLmomLmL", ("L6.gate", "L8.combine")),
        ("mmLmoLmLm", None),  # A third.
        ("mmLwm", ("m1", "L2.combine")),  # One looks at the whole batch.
    ],
)
def test_the_longest_stretch_has_half_of_the_layers(step, ends, monkeypatch):
    monkeypatch.setattr(moe_tasks, "why_whole", lambda layer: "gate" if layer == "w" else "")
    instructions = [
        types.SimpleNamespace(
            id=f"{kind}{i}",
            op="OTHER" if kind == "o" else "MATMUL",
            samples=kind != "o",
            layer=kind if kind in "Lw" else None,
            main=types.SimpleNamespace(index=i),
            reads=[Read(i - 1, 0)] if i else [],
        )
        for i, kind in enumerate(step)
    ]
    traced = types.SimpleNamespace(instructions=instructions, producer=dict(enumerate(instructions)), model_ends=len(step))
    assert longest(traced) == ends


# ---- What is traced.


class Net(nn.Module):
    """Calls ``function(self, x)``; has a linear layer for the loss to learn."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        self.linear = nn.Linear(6, 6)
        self.register_buffer("count", torch.zeros(6))
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        return self.function(self, self.linear(x))


def traced(function, batch=4, **modules):
    torch.manual_seed(1)
    x = torch.randn(batch, 3, 6)
    return trace(Net(function, **modules), x, lambda y: y.square().mean())


def ops_of(step):
    return {one.id: one.op for one in step.instructions}


def test_ids_are_paths_and_names():
    step = traced(lambda net, x: net.linear(x + x.tanh()) + net.inner(x) + net.inner(x), inner=nn.Sequential(nn.Linear(6, 6)))
    names = [one.id for one in step.instructions]
    assert names == "linear tanh add linear@2 inner.0 add_1 inner.0@2 add_2 loss.square loss.mean".split()
    assert [step.name_of(read) for read in step.by_id["add"].reads] == ["linear.y", "tanh.y"]
    assert step.by_id["linear@2"].weights == ["linear.weight", "linear.bias"]
    assert step.by_id["linear"].main.target.in_features == 6
    assert not any(step.can_wait(step.by_id[name]) for name in ("linear", "linear@2", "inner.0", "add"))
    step = traced(lambda net, x: x)
    assert step.can_wait(step.by_id["linear"])
    step = traced(lambda net, x: net.dropout(nn.functional.dropout(x, 0.1)), dropout=nn.Dropout(0.1))
    assert [one.id for one in step.instructions][:3] == ["linear", "dropout_1", "dropout"]


class OwnLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 6))

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


class OwnNorm(nn.Module):
    def __init__(self, offset):
        super().__init__()
        self.weight, self.offset = nn.Parameter(torch.zeros(6)), offset

    def forward(self, x):
        return x * (self.offset + self.weight if self.offset else self.weight)


def test_weight_gradients_wait_where_a_schedule_can_leave_them():
    modules = {
        "own": OwnLinear(),
        "norm": OwnNorm(0),
        "plus_one": OwnNorm(1),  # Gemma's.
        "groups": nn.GroupNorm(1, 3),
        "places": nn.Embedding(3, 6),
    }
    step = traced(lambda net, x: net.groups(net.plus_one(net.norm(net.own(x) + net.places(torch.arange(3))))), **modules)
    waits = {name: (step.by_id[name].op, step.can_wait(step.by_id[name])) for name in ("linear", *modules)}
    assert waits == {
        "linear": ("MATMUL", True),
        "own": ("MATMUL", True),
        "norm": ("LAYER_NORM", True),
        "plus_one": ("LAYER_NORM", False),
        "groups": ("LAYER_NORM", False),
        "places": ("OTHER", False),
    }


def test_views_and_constants_go_to_their_reader():
    def function(net, x):
        mask = torch.ones(3, 3).triu(1) * -9.0
        scores = x @ x.transpose(1, 2)
        return (scores + mask).view(x.shape[0], 9)

    step = traced(function)
    assert ops_of(step) == {
        "linear": "MATMUL",
        "matmul": "MATMUL",
        "add": "ELEMENTWISE",
        "view": "ELEMENTWISE",  # Of its own, as it is the model's output.
        "loss.square": "OTHER",
        "loss.mean": "OTHER",
    }
    assert [call.name for call in step.by_id["add"].calls] == ["ones", "triu", "mul", "add"]
    assert [call.name for call in step.by_id["matmul"].calls] == ["transpose", "matmul"]
    view = step.by_id["view"].main
    assert view.args[1] == BatchSize(Fraction(1), Fraction(0)) and view.args[2] == 9


def turned(x, angles):
    """Pairs of numbers as complex ones, times others: rotary positions as many models have them."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], 3, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(2)


@pytest.mark.parametrize(
    "function, mixing",
    [
        (lambda net, x: (x - x.mean(0)).tanh(), ["mean"]),  # What is left is cut where the mean is whole.
        (lambda net, x: x.cumsum(0).tanh(), ["cumsum"]),
        (lambda net, x: (x + x[-1:]).tanh(), ["add"]),
        (lambda net, x: (x + x[:1]).tanh(), ["add"]),
        (lambda net, x: x.flip(0).tanh(), ["flip"]),
        (lambda net, x: x.softmax(0).tanh(), ["softmax"]),
        (lambda net, x: x.softmax(1).tanh(), []),
        (lambda net, x: (x + x.new_ones(3, 6)).tanh(), []),
        (lambda net, x: x.repeat_interleave(2, 1).tanh(), []),
        (lambda net, x: (x / float(len(x))).tanh(), ["div"]),
        (lambda net, x: (x * torch.arange(len(x))[:, None, None]).tanh(), ["mul"]),
        (lambda net, x: x[torch.arange(len(x)), [1] * len(x)].tanh(), ["getitem"]),
        (lambda net, x: (x * torch.tensor([2.0] * len(x))[:, None, None]).tanh(), ["mul"]),
        (lambda net, x: (x.reshape(-1, 6) @ net.linear.weight).view_as(x).tanh(), []),
        (lambda net, x: turned(x, torch.ones(3, 3)).tanh(), []),
        (lambda net, x: turned(x, torch.arange(12.0).view(4, 1, 3)[: len(x)]).tanh(), ["mul"]),
    ],
)
def test_what_mixes_samples_cannot_be_cut(function, mixing):
    """The tanh behind is a part of its input whatever that is."""
    ops = {name: op for name, op in ops_of(traced(function)).items() if not name.startswith("loss")}
    mixes = [name for name, op in ops.items() if op == "OTHER"]
    assert mixes == mixing, ops
    assert ops["tanh"] == "ELEMENTWISE"


def test_what_only_the_loss_needs_runs_behind_the_samples():
    """A router's loss in the middle of the model stands in the way of no range."""

    def function(net, x):
        mean = x.mean((0, 1))
        shares = x.softmax(-1).mean((0, 1))
        loss = (shares * nn.functional.dropout(shares * 2, 0.5, net.training)).sum()
        return net.act(x - mean), loss

    torch.manual_seed(5)
    net, x = Net(function, act=nn.Tanh()), torch.randn(4, 3, 6)
    step = trace_forward(net, Arguments((x,), {}), net.forward)
    # A dropout draws where it did, and what it reads is there.
    names = "linear mean softmax mean_1 mul dropout sub act mul_1 sum"
    assert [one.id for one in step.instructions] == names.split()
    net.eval()
    step = trace_forward(net, Arguments((x,), {}), net.forward)
    names = "linear mean softmax sub act mean_1 mul mul_1 sum"
    assert [one.id for one in step.instructions] == names.split()
    y = torch.randn(4, 3, 6)
    found = Program(net, step, [Partition("softmax", "act", 2, "a test")]).run([y], Slots())
    for one, expected in zip(found, net(y)):
        assert torch.allclose(one, expected, atol=1e-6)


def test_parts_of_a_batch_have_sizes_of_their_own():
    """A part of 2 of 6 samples, through every call of the step, gives the first 2 samples of what all 6 give."""
    torch.manual_seed(2)
    x = torch.randn(6, 3, 6)
    net = Net(lambda net, x: net.norm(x.reshape(x.shape[0] * 3, 6).relu()).view(-1, 3, 6).permute(1, 0, 2), norm=nn.LayerNorm(6))
    step = trace(net, x, lambda y: y.sum())
    values = {}

    def value_of(source):
        kind = type(source).__name__
        return {"Read": lambda: values[source], "Given": lambda: x[:2], "Weight": lambda: step.parameters[source.name]}[kind]()

    for call in step.calls[: step.model_ends]:
        for i, value in enumerate(call.run(value_of, 2)):
            values[step.loss._replace(call=call.index, output=i)] = value
    last = step.calls[step.model_ends - 1]
    assert last.outputs[0].axis == 1 and last.outputs[0].shape_at(2) == (3, 2, 6)
    assert torch.allclose(values[step.model_outputs], net(x)[:, :2], atol=1e-6)


def test_complex_numbers_may_be_rounded():
    x = torch.randn(4, 3, dtype=torch.complex64)
    assert alike(x * (1 + 1e-6), x) and alike(x.conj(), x.conj().resolve_conj())
    assert not alike(x + 0.1j, x)


def masked(net, x):
    if not hasattr(net, "mask"):
        net.mask = torch.ones(3, 3).tril()
    return net.mask @ x


def masked_for_each_sample(net, x):
    if getattr(net, "mask", None) is None or len(net.mask) != len(x):
        net.mask = torch.ones(len(x), 3, 3).tril()
    return net.mask @ x


@pytest.mark.parametrize("function, made", [(masked, []), (masked_for_each_sample, ["ones", "tril"])])
def test_what_the_first_call_keeps_is_no_other_call(function, made):
    step = traced(function)
    assert ops_of(step)["matmul"] == "MATMUL"
    assert [call.name for call in step.by_id["matmul"].calls] == [*made, "matmul"]


def test_what_changes_in_place_is_its_new_value():
    def function(net, x):
        scores = x * 2
        scores.masked_fill_(scores > 0, 0.5)
        scores += 1
        return scores

    step = traced(function)
    assert [one.id for one in step.instructions][:4] == ["linear", "mul", "gt", "masked_fill_"]
    assert step.name_of(step.by_id["loss.square"].reads[0]) == "add_.y"


def test_what_a_later_call_changes_is_read_before_it():
    """A sum for the log gives nothing to what follows, and would else run behind the model."""

    def function(net, x):
        logged = x.mean()
        x.mul_(2)
        return x, logged

    torch.manual_seed(1)
    step = trace(Net(function), torch.randn(4, 3, 6), lambda out: out[0].square().mean() + out[1])
    ids = [one.id for one in step.instructions]
    assert ids.index("mean") < ids.index("mul_"), ids


def test_instructions_that_share_memory_compute_the_step():
    """Changes in place, views with several readers, and gradients that several tensors share."""

    def function(net, x):
        q, k, v = (x * 1.5).chunk(3, -1)
        kept = q.sin()
        kept[:, 0] = k[:, 0]
        kept += 1
        a, b = kept.sin(), v.cos()
        a.mul_(k)
        b[:, 1:] += a[:, :-1]
        shifted = b.new_zeros(b.shape)
        shifted[:, :-1] += b[:, 1:]
        b = b + shifted
        picked = torch.where(a > 0, a, b).masked_fill_(a > 1, 0.5)
        squares = a * a + b * b
        return squares + (a + b) + picked + net.act(squares * 2)

    torch.manual_seed(3)
    net, x = Net(function, act=nn.ReLU(inplace=True)), torch.randn(4, 3, 6)
    step = trace(net, x, lambda y: y.square().mean())
    paced = PacedStep(step, Operators(step, 1, 1), x, HOST)
    paced.run(4, counts=True)
    net(x).square().mean().backward()
    for name, parameter in net.named_parameters():
        assert torch.allclose(paced.gradients[name], parameter.grad, atol=1e-6), name
    times = paced.times_s(4)
    assert len(times) == len({operator for one in step.instructions for operator in operators_of(step, one)})
    assert all(seconds >= 0 for seconds in times.values()) and sum(times.values()) > 0
    # A step as it is takes twice what the calls of the pass took: so do the operators.
    paced.run_as_it_is(lambda: net(x).square().mean(), counts=True)
    assert paced.step_s(1) > 0
    paced._steps_s = {1: [2 * paced._calls_s[4][0]]}
    assert paced.times_s(4) == pytest.approx({one: 2 * seconds for one, seconds in times.items()})


def test_a_part_runs_past_what_is_never_cut():
    """Arguments that only the whole batch has, in front of what is cut: others get zeros of the right shapes."""

    def function(net, x):
        scale = torch.tensor([2.0] * len(x))
        return net.linear((x * scale[:, None, None]).tanh()) / float(len(x))

    net, x = Net(function), torch.randn(4, 3, 6)
    step = trace(net, x, lambda y: y.sum())
    assert [one.id for one in step.instructions if one.samples] == ["linear", "tanh", "linear@2"]
    paced = PacedStep(step, Operators(step, 1, 1), x, HOST)
    paced.run(1, counts=True)
    found = paced.times_s(1)
    for one in step.instructions[:4]:
        assert not one.samples or Operators(step, 1, 1).forward(one, 1)[0] in found, one.id


def operators_of(step, one):
    operators = Operators(step, 1, 1)
    return operators.forward(one, step.batch) + operators.backward(one, step.batch)


# ---- What is refused.


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


@torch.jit.script
def unseen(x: torch.Tensor):
    return x.detach().sign()


class DroppingLinear(OwnLinear):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.1)


class InPlaceNorm(OwnNorm):
    def forward(self, x):
        x *= 2
        return super().forward(x)


def clamped(net, x):
    net.linear.weight.data.clamp_(-1, 1)
    return x


def counted_through_a_view(net, x):
    net.count.view(-1).add_(1)
    return x


def put_elsewhere(net, x):
    y = x * 1
    some = y[:, 1:]
    some += 1
    y[:, :2] = some
    return y


def through_a_view(net, x):
    y = x * 1
    y[:, 0].mul_(2)
    return y


def counted(net, x):
    net.count += 1
    return x


class WholeBatch(nn.Module):
    """Adds what has the size of one batch and is no input."""

    def forward(self, x):
        return x + torch.ones(4, 3, 6)


REFUSED = {
    "conv": (lambda net, x: net.conv(x), {"conv": nn.Conv1d(3, 3, 1)}, "conv", "class Conv1d"),
    "norm": (lambda net, x: net.norm(x), {"norm": nn.BatchNorm1d(3)}, "norm", "class BatchNorm1d"),
    "heads": (lambda net, x: net.heads(x, x, x)[0], {"heads": nn.MultiheadAttention(6, 1)}, "heads", "class MultiheadAttention"),
    "inside": (lambda net, x: net.part(x), {"part": nn.Sequential(nn.GRU(6, 6))}, "part.0", "class GRU"),
    "function": (lambda net, x: nn.functional.conv1d(x, x[:1]), {}, "model", "conv1d"),
    "random": (lambda net, x: x + torch.randn_like(x), {}, "model", "randn_like"),
    "value": (lambda net, x: x * x.max().item(), {}, "model", "item"),
    "branch": (lambda net, x: x if x.sum() > 0 else -x, {}, "model", "__bool__"),
    "repeats": (lambda net, x: x.repeat_interleave((x[0, 0] > 0).long(), 2), {}, "model", "repeat_interleave"),
    "gradient": (lambda net, x: x.sum().backward(), {}, "model", "backward"),
    "out": (lambda net, x: torch.add(x, 1, out=net.count), {}, "model", "add with out"),
    "mask": (lambda net, x: x[x > 0], {}, "model", "getitem"),
    "buffer": (counted, {}, "model", "changes a buffer in place"),
    "unseen": (lambda net, x: x * unseen(x), {}, "model", "a tensor of the batch that no call was seen to make"),
    "samples": (lambda net, x: torch.stack(list(x)), {}, "model", "unbind, of 2 tensors with 2 samples and 4 with 4"),
    "drops": (lambda net, x: net.own(x), {"own": DroppingLinear()}, "own", "DroppingLinear, which draws random numbers"),
    "norm in place": (lambda net, x: net.norm(x * 1), {"norm": InPlaceNorm(0)}, "norm", "which changes its buffers, parameters or inputs"),
    "data": (clamped, {}, "model", "clamp_, which changes a parameter in place"),
    "count": (counted_through_a_view, {}, "model", "add_, which changes a buffer in place"),
    "elsewhere": (put_elsewhere, {}, "model", "changed in place through a view"),
    "view": (through_a_view, {}, "loss", "changed in place through a view"),
    "autograd": (lambda net, x: Doubled.apply(x) + 1, {}, "model", "an autograd.Function, Doubled"),
    "checkpoint": (
        lambda net, x: torch.utils.checkpoint.checkpoint(lambda y: net.linear(y) + 1, x, use_reentrant=True) * 2,
        {},
        "model",
        "activation checkpointing",
    ),
    "recomputed": (
        lambda net, x: torch.utils.checkpoint.checkpoint(lambda y: net.linear(y) + 1, x, use_reentrant=False) * 2,
        {},
        "model",
        "activation checkpointing",
    ),
    "size": (lambda net, x: x + net.part(x), {"part": WholeBatch()}, "part", "RuntimeError with 2 samples"),
    "batch": (lambda net, x: x.tanh() if len(x) > 2 else x.relu(), {}, "model", "relu with 2 samples where tanh was with 4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_graph_cannot_hold_is_named(name):
    import torch.utils.checkpoint  # noqa: F401

    function, modules, where, found = REFUSED[name]
    with pytest.raises(moeplan.InvalidInput) as refused:
        traced(function, **modules)
    assert refused.value.field == where and found in refused.value.found, refused.value
    assert len(refused.value.expected) > 10


def test_losses_are_checked():
    net, x = Net(lambda net, x: x), torch.randn(4, 3, 6)
    for loss in (lambda y: y, lambda y: 3.0, lambda y: y.detach().sum()):
        with pytest.raises(moeplan.InvalidInput) as refused:
            trace(net, x, loss)
        assert refused.value.field == "loss"
    assert trace(net, x, lambda y, inputs: (y - inputs).square().sum()).instructions[-1].id == "loss.sum"
    assert trace(net, x, nn.Flatten(0) if False else lambda y: nn.MSELoss()(y, x)).instructions[-1].id == "loss.MSELoss"


# ---- Times.


def write_some(path, first):
    times = OperatorTimes(path, HOST, 1)
    for i in range(first, first + 50):
        times.keep({Operator(f"operator {i}", "forward"): float(i)})


def test_processes_share_a_file(tmp_path):
    path = tmp_path / "folder" / "o.db"
    processes = [multiprocessing.Process(target=write_some, args=(path, 100 * i)) for i in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    known = [Operator(f"operator {i}", "forward") for i in (0, 49, 100, 149, 200, 249)]
    assert OperatorTimes(path, HOST, 1).find(known) == {one: float(one.text.split()[1]) for one in known}
    assert OperatorTimes(path, HOST, 2).find(known) == {}  # More ranks share the node.
    assert OperatorTimes(path, HOST, 1).find([Operator("operator 0", "dx 1")]) == {}


def test_the_file_of_times_is_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    OperatorTimes(None, HOST, 1)
    assert (tmp_path / "moeplan" / "operators.db").exists()
    (tmp_path / "text.db").write_text("this is no database, however long it is")
    for path in (tmp_path / "text.db", "/proc/no/such.db"):
        with pytest.raises(moeplan.InvalidInput) as refused:
            OperatorTimes(path, HOST, 1)
        assert refused.value.field == "cache" and str(path) in refused.value.found


def test_times_between_measured_sizes():
    # 8 ms for 8 samples, 4 for 4, 1 for 1. Between 1 and 4, log t = 0 + log(size) · log 4 / log 4.
    points = [(1, 1.0), (4, 4.0), (8, 8.0)]
    assert _between(points, 8) == 8 and _between(points, 4) == pytest.approx(4) and _between(points, 1) == 1
    assert _between(points, 2) == pytest.approx(2)
    # From 2 s at 2 samples to 8 s at 8: at 4, exp((log 2 + log 8) / 2) = 4; from 1 s to 9 s it is 3.
    assert _between([(2, 2.0), (8, 8.0)], 4) == pytest.approx(4)
    assert _between([(2, 1.0), (8, 9.0)], 4) == pytest.approx(3)
    # Below all sizes in proportion; where a time is 0, on a straight line.
    assert _between(points, 0.5) == 0.5
    assert _between([(2, 0.0), (8, 6.0)], 4) == pytest.approx(2)


def task(name, start, end):
    return {"task": name, "startS": start, "endS": end}


def test_a_layers_tasks_become_instructions():
    # The call took 12 s, of which the last task ended after 10; counts are exchanged before rows, and sums follow them.
    timeline = [
        task("gate", 0, 1),
        task("gather_counts", 1, 3),
        task("dispatch", 3, 4),
        task("dispatch_a2a", 4, 6),
        task("shared_expert", 4, 5),
        task("expert", 6, 8),
        task("combine_a2a", 8, 9),
        task("sum_shards", 9, 9.5),
        task("combine", 9.5, 10),
    ]
    found = moe_tasks.forward_times_s(timeline, 12)
    assert found == {
        "gate": 2 + 1 + 2,
        "dispatch": 1,
        "all_to_all1": 2,
        "shared": 1,
        "experts": 2,
        "all_to_all2": 1 + 0.5,
        "combine": 0.5,
    }
    backward = [
        task("grad_combine", 0, 1),
        task("grad_routing", 1, 2),
        task("grad_dispatch_a2a", 2, 4),
        task("grad_expert_input", 4, 5),
        task("grad_combine_a2a", 6, 9),
        task("grad_expert_weights", 5, 8),
        task("grad_dispatch", 9, 10),
        task("grad_gate", 10, 11),
    ]
    found = moe_tasks.backward_times_s(backward, 11)
    assert found["combine.dx"] == 2 and found["all_to_all1.dx"] == 3 and found["experts.dw"] == 3 and found["gate.dx"] == 1
