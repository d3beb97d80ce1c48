"""A GPT-2-like language model with a Mixture of Experts in every second block, cut over the ranks of a job.

Dense layers are plain PyTorch: tensor parallelism cuts heads and hidden columns, context parallelism cuts sequences and
gathers keys and values. PlainMoELayer is the MoE layer in plain PyTorch, for comparison with moeplan.torch.MoELayer.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import nn

VOCABULARY = 256  # Bytes.


class Job:
    """Who this rank is, and the groups of ranks that the model's layers use. A group of one rank is None.

    Ranks lie, fastest first, as [TP, CP, DP] (``horizontal`` False) or as [TP, EP, CP, DP / EP]. MoE layers lay them out as
    [TP, EP, replicas], with every expert cut over the tensor-parallel ranks. ``source``: the batch of tokens that this rank's
    MoE layers see, alike on the tensor-parallel ranks; there are ``sources``.
    """

    def __init__(self, tensor: int, context: int, expert: int, horizontal: bool = False) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.tensor, self.context, self.expert = tensor, context, expert
        self.sources = self.ranks // tensor
        self.source = self.rank // tensor
        between = expert if horizontal else 1  # Sources between two ranks of a context group.

        def place(rank: int) -> tuple[int, int, int]:
            source = rank // tensor
            return (
                rank % tensor,
                source // between % context,
                source % between + source // (between * context) * between,
            )

        self.tensor_index, self.context_index, self.batch = place(self.rank)
        held = tensor * expert
        self.tensor_group, _ = self._own(lambda rank: place(rank)[1:])
        self.context_group, _ = self._own(lambda rank: (place(rank)[0], place(rank)[2]))
        self.dense_group, _ = self._own(lambda rank: rank % tensor)
        self.replica_group, _ = self._own(lambda rank: rank % held)
        self.expert_group, self.expert_ranks = self._own(lambda rank: (rank // held, rank % tensor))

    def _own(self, key: Callable[[int], Any]) -> tuple[Any, list[int]]:
        """This rank's group of those with equal keys, and its ranks. Collective."""
        own: tuple[Any, list[int]] = (None, [self.rank])
        for value in sorted({key(rank) for rank in range(self.ranks)}):
            ranks = [rank for rank in range(self.ranks) if key(rank) == value]
            group = dist.new_group(ranks) if len(ranks) > 1 else None
            if self.rank in ranks:
                own = (group, ranks)
        return own


class _SumGradients(torch.autograd.Function):
    """The same on all tensor-parallel ranks; their gradients are parts."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return summed(gradient, ctx.group), None


class _SumParts(torch.autograd.Function):
    """Parts on tensor-parallel ranks; their sum on all."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        return summed(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


class _GatherContexts(torch.autograd.Function):
    """[...] of every rank of a context group in, [CP, ...] out."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, ranks: int) -> torch.Tensor:
        ctx.group = group
        y = x.new_empty(ranks, *x.shape)
        dist.all_gather(list(y.unbind(0)), x.contiguous(), group=group)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        gradient = gradient.contiguous()
        parts = torch.empty_like(gradient)
        dist.all_to_all_single(parts, gradient, group=ctx.group)
        return parts.sum(0), None, None


def summed(x: torch.Tensor, group: Any) -> torch.Tensor:
    """A new tensor: the sum over a group, in float."""
    total = x.float() if x.dtype != torch.float32 else x.clone()
    dist.all_reduce(total, group=group)
    return total.to(x.dtype)


def sum_gradients(x: torch.Tensor, group: Any) -> torch.Tensor:
    return x if group is None else _SumGradients.apply(x, group)


def sum_parts(x: torch.Tensor, group: Any) -> torch.Tensor:
    return x if group is None else _SumParts.apply(x, group)


def drawn(name: str, shape: tuple[int, ...], bound: float) -> torch.Tensor:
    """A whole tensor that depends on its name alone, so that every layout cuts the same model."""
    generator = torch.Generator().manual_seed(sum(ord(c) * 31**i for i, c in enumerate(name)) % 2**31)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


def linear(weight: torch.Tensor) -> nn.Linear:
    """A layer with that matrix [out, in]."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight = nn.Parameter(weight.clone())
    return made


class Attention(nn.Module):
    def __init__(self, job: Job, name: str, model: int, heads: int) -> None:
        super().__init__()
        self.job, self.heads = job, heads // job.tensor
        own = model // job.tensor
        part = slice(job.tensor_index * own, (job.tensor_index + 1) * own)
        bound = 1 / math.sqrt(model)
        self.qkv = linear(drawn(f"{name}.qkv", (3, model, model), bound)[:, part].reshape(3 * own, model))
        self.out = linear(drawn(f"{name}.out", (model, model), bound)[:, part])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        x = sum_gradients(x, self.job.tensor_group)
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, keys_values = qkv[0], qkv[1:]
        if self.job.context_group is not None:
            parts = _GatherContexts.apply(keys_values, self.job.context_group, self.job.context)
            keys_values = parts.permute(1, 2, 3, 0, 4, 5).flatten(3, 4)
        k, v = keys_values
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1 + self.job.context_index * length)
        y = (scores.masked_fill(later, float("-inf")).softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        return sum_parts(self.out(y), self.job.tensor_group)


class Mlp(nn.Module):
    def __init__(self, job: Job, name: str, model: int, hidden: int) -> None:
        super().__init__()
        self.job = job
        own = hidden // job.tensor
        part = slice(job.tensor_index * own, (job.tensor_index + 1) * own)
        self.up = linear(drawn(f"{name}.up", (model, hidden), 1 / math.sqrt(model))[:, part].T)
        self.down = linear(drawn(f"{name}.down", (hidden, model), 1 / math.sqrt(hidden))[part].T)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = sum_gradients(x, self.job.tensor_group)
        return sum_parts(self.down(nn.functional.gelu(self.up(x))), self.job.tensor_group)


def products(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Batched products that add up in float, as devices do; PyTorch's own on a CPU add BF16 up in BF16."""
    if rows.dtype == torch.float32 or rows.is_cuda:
        return torch.bmm(rows, weights)
    return torch.bmm(rows.float(), weights.float()).to(rows.dtype)


class AllToAll:
    """One all-to-all of equal parts [ranks, ...] that runs beside what is computed between start and finish, both ways."""

    def __init__(self, job: Job, receives_first: bool) -> None:
        self.job, self.receives_first = job, receives_first
        self.under_way: list[Any] = []

    def start(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.job.expert_group is None else _Start.apply(x, self)

    def finish(self, y: torch.Tensor) -> torch.Tensor:
        return y if self.job.expert_group is None else _Finish.apply(y, self)

    def begin(self, x: torch.Tensor) -> torch.Tensor:
        """What the parts of x will have become once `wait` returns."""
        x = x.contiguous()
        y = torch.empty_like(x)
        sent, got = (t.view(torch.uint8) if t.dtype == torch.bfloat16 else t for t in (x, y))  # Gloo has no BF16.
        group, ranks = self.job.expert_group, self.job.expert_ranks
        if self.receives_first:
            others = [(i, rank) for i, rank in enumerate(ranks) if rank != self.job.rank]
            self.under_way = [dist.irecv(got[i], rank, group=group) for i, rank in others]
            self.under_way += [dist.isend(sent[i], rank, group=group) for i, rank in others]
            own = ranks.index(self.job.rank)
            got[own].copy_(sent[own])
        else:
            self.under_way = [dist.all_to_all_single(got, sent, group=group, async_op=True)]
        self.under_way.append(sent)  # Whose memory is read until then.
        return y

    def wait(self) -> None:
        for work in self.under_way[:-1]:
            work.wait()
        self.under_way = []


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, exchange: AllToAll) -> torch.Tensor:
        ctx.exchange = exchange
        return exchange.begin(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.exchange.wait()
        return gradient, None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, exchange: AllToAll) -> torch.Tensor:
        ctx.exchange = exchange
        exchange.wait()
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.exchange.begin(gradient), None


class PlainMoELayer(nn.Module):
    """The layer as PyTorch users write it: tokens to slots by index, all-to-all, batched products, all-to-all back.

    ``chunks``: parts of the slots; the all-to-all of one runs beside the products of another, in both passes.
    ``receives_first``: point-to-point messages whose receives are posted before the sends, instead of
    ``all_to_all_single``. ``weights``: parameters by name, with the shapes of moeplan.torch.MoELayer's; copied.
    """

    def __init__(self, job: Job, layer: dict[str, Any], weights: dict[str, nn.Parameter], chunks: int, receives_first: bool):
        super().__init__()
        self.job, self.layer, self.chunks, self.receives_first = job, layer, chunks, receives_first
        for name, value in weights.items():
            parameter = nn.Parameter(value.detach().clone())
            parameter.allreduce = getattr(value, "allreduce", True)
            self.register_parameter(name, parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        experts, k = self.layer["experts"], self.layer["topK"]
        rows = sum_gradients(x.reshape(-1, x.shape[-1]), self.job.tensor_group)
        tokens, model = rows.shape
        gate = sum_gradients(self.gate, self.job.tensor_group)
        probabilities = (rows.float() @ gate.float().T).softmax(-1)
        weights, chosen = probabilities.topk(k, -1)
        if k > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        taken = nn.functional.one_hot(chosen.flatten(), experts)
        slots = self._slots(taken.sum(0), tokens)
        place = (taken.cumsum(0) * taken).sum(-1) - 1  # How many pairs of its expert come before each.
        kept = place < slots
        slot = (chosen.flatten() * slots + place)[kept]
        token = torch.arange(tokens * k, device=x.device).div(k, rounding_mode="floor")[kept]
        sent = rows.new_zeros(experts * slots, model).index_copy(0, slot, rows[token])
        back = self._experts(sent.view(self.job.expert, -1, slots, model)).reshape(experts * slots, model)
        parts = back[slot].float() * weights.flatten()[kept].unsqueeze(-1)
        y = torch.zeros(tokens, model, device=x.device).index_add(0, token, parts).to(rows.dtype)
        return sum_parts(y, self.job.tensor_group).view_as(x)

    def _slots(self, pairs: torch.Tensor, tokens: int) -> int:
        """Of each expert; without a capacity factor, as many as the busiest of any rank needs."""
        factor = self.layer["capacityFactor"]
        if factor > 0:
            return max(1, math.ceil(self.layer["topK"] * factor * tokens / self.layer["experts"] - 1e-9))
        most = pairs.max()
        if self.job.expert_group is not None:
            dist.all_reduce(most, op=dist.ReduceOp.MAX, group=self.job.expert_group)
        return max(1, int(most))

    def _experts(self, sent: torch.Tensor) -> torch.Tensor:
        """[EP, experts of a rank, slots, M] in and out."""
        parts = sent.tensor_split(min(self.chunks, sent.shape[2]), 2)
        there = [AllToAll(self.job, self.receives_first) for _ in parts]
        back = [AllToAll(self.job, self.receives_first) for _ in parts]
        under_way = [exchange.start(part) for exchange, part in zip(there, parts)]
        for i, part in enumerate(parts):
            got = there[i].finish(under_way[i]).transpose(0, 1)
            rows = got.reshape(got.shape[0], -1, got.shape[-1])
            done = products(nn.functional.gelu(products(rows, self.up)), self.down)
            under_way[i] = back[i].start(done.view(got.shape).transpose(0, 1))
        return torch.cat([exchange.finish(part) for exchange, part in zip(back, under_way)], 2)


class Block(nn.Module):
    def __init__(self, job: Job, name: str, model: int, heads: int, mlp: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(model), nn.LayerNorm(model)
        self.attention = Attention(job, name, model, heads)
        self.mlp, self.dtype = mlp, dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x).to(self.dtype)).to(x.dtype)


class LanguageModel(nn.Module):
    """Bytes in, the mean loss of the next ones out. The head is tied to the embedding.

    ``make_moe(i)`` makes the MoE layer of block i, which takes and gives rows of ``moe_dtype``.
    """

    def __init__(
        self,
        job: Job,
        layers: int,
        model: int,
        heads: int,
        length: int,
        make_moe: Callable[[int], nn.Module],
        moe_dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.job = job
        self.tokens = nn.Embedding.from_pretrained(drawn("tokens", (VOCABULARY, model), 0.04), freeze=False)
        self.places = nn.Parameter(drawn("places", (length, model), 0.04))
        blocks = []
        for i in range(layers):
            moe = i % 2 == 1
            mlp = make_moe(i) if moe else Mlp(job, f"block{i}.mlp", model, 4 * model)
            blocks.append(Block(job, f"block{i}", model, heads, mlp, moe_dtype if moe else torch.float32))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(model)
        self.head = linear(self.tokens.weight.detach())
        self.head.weight = self.tokens.weight

    def moe_blocks(self) -> list[Block]:
        return list(self.blocks)[1::2]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """``rows``: [batch, length + 1] bytes of whole sequences, of which a rank takes its part."""
        length = (rows.shape[1] - 1) // self.job.context
        first = self.job.context_index * length
        x, targets = rows[:, first : first + length], rows[:, first + 1 : first + length + 1]
        x = self.tokens(x) + self.places[first : first + length]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def reduce_gradients(model: nn.Module, job: Job) -> None:
    """Means over all sources: of experts over the ranks that hold the same, of everything else over all of them."""
    for experts, group in ((False, job.dense_group), (True, job.replica_group)):
        own = [p for p in model.parameters() if (getattr(p, "allreduce", True) is False) == experts and p.grad is not None]
        if not own:
            continue
        flat = torch.cat([p.grad.float().flatten() for p in own])
        if group is not None:
            dist.all_reduce(flat, group=group)
        flat /= job.sources
        for parameter, part in zip(own, flat.split([p.numel() for p in own])):
            parameter.grad.copy_(part.view_as(parameter))
