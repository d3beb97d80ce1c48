"""Trains a Mixtral on one processor, or one GPU, with PyTorch alone, and prints the median seconds of a step.

    python3 train_step.py CONFIG.json GLOBAL_BATCH SEQUENCE_LENGTH MICRO_BATCH STEPS [cpu | cuda]

What `moeplan step` predicts of a profile that `moeplan calibrate --local 1 --for CONFIG.json` measured is held against
it. Nothing of moeplan is in it: BF16 weights, FP32 gradients that weight gradients are added to, AdamW on FP32 masters,
tokens dealt evenly to experts. On a processor scores are stored, and each expert has a product of its own; on a GPU
there are fused attention, grouped products and a compiled SwiGLU, as `calibrate` finds them in PyTorch.
"""

import ctypes
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

DEVICE = sys.argv[6] if len(sys.argv) > 6 else "cpu"
ON_GPU = DEVICE != "cpu"
if ON_GPU:
    torch.set_default_device(DEVICE)
else:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    # Memory that a step frees is kept for the next one, as a GPU's allocator keeps it. By default glibc gives most of it
    # back to the kernel, whose page faults then take up to four fifths of a step on a virtual machine.
    M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
    libc = ctypes.CDLL(None)
    libc.mallopt(M_TRIM_THRESHOLD, -1)
    libc.mallopt(M_MMAP_MAX, 0)
with open(sys.argv[1], encoding="utf-8") as file:
    CONFIG = json.load(file)
BATCH, SEQUENCE, MICRO_BATCH, STEPS = map(int, sys.argv[2:6])
M, H, LAYERS = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["num_hidden_layers"]
HEADS, KV_HEADS, VOCAB = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["vocab_size"]
EXPERTS, TOP_K = CONFIG["num_local_experts"], CONFIG["num_experts_per_tok"]
DIM = CONFIG.get("head_dim") or M // HEADS
BF16 = torch.bfloat16


class Product(torch.autograd.Function):
    """x · weightᵀ, whose weight gradient is added to an FP32 tensor."""

    @staticmethod
    def forward(ctx, x, weight, gradient):
        ctx.save_for_backward(x, weight)
        ctx.gradient = gradient
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx, out_gradient):
        x, weight = ctx.saved_tensors
        ctx.gradient.add_(torch.mm(out_gradient.t(), x))
        return torch.mm(out_gradient, weight), None, None


class GroupedProduct(torch.autograd.Function):
    """Each expert's rows, which end at `ends`, times its weightᵀ; weight gradients as above."""

    @staticmethod
    def forward(ctx, x, weight, gradient, ends):
        ctx.save_for_backward(x, weight, ends)
        ctx.gradient = gradient
        return torch._grouped_mm(x, weight.transpose(-2, -1), offs=ends)

    @staticmethod
    def backward(ctx, out_gradient):
        x, weight, ends = ctx.saved_tensors
        out_gradient = out_gradient.contiguous()
        ctx.gradient.add_(torch._grouped_mm(out_gradient.t(), x, offs=ends))
        return torch._grouped_mm(out_gradient, weight, offs=ends), None, None, None


class Dispatch(torch.autograd.Function):
    """Rows of tokens in the order of the experts; `place` says where each pair of token and choice comes to lie."""

    @staticmethod
    def forward(ctx, x, order, place):
        ctx.save_for_backward(place)
        return x.index_select(0, order // TOP_K)

    @staticmethod
    def backward(ctx, gradient):
        (place,) = ctx.saved_tensors
        return gradient.index_select(0, place).view(-1, TOP_K, M).sum(1), None, None


class Combine(torch.autograd.Function):
    """The sum of each token's rows."""

    @staticmethod
    def forward(ctx, rows, order, place):
        ctx.save_for_backward(order)
        return rows.index_select(0, place).view(-1, TOP_K, M).sum(1)

    @staticmethod
    def backward(ctx, gradient):
        (order,) = ctx.saved_tensors
        return gradient.index_select(0, order // TOP_K), None, None


class Linear:
    all = []

    def __init__(self, *shape):
        self.weight = (torch.randn(shape) * 0.02).to(BF16)
        self.master = self.weight.float().requires_grad_()
        self.master.grad = torch.zeros(shape)
        Linear.all.append(self)

    def __call__(self, x):
        return Product.apply(x, self.weight, self.master.grad)


class Layer:
    def __init__(self):
        self.qkv, self.out = Linear((HEADS + 2 * KV_HEADS) * DIM, M), Linear(M, HEADS * DIM)
        self.router = (torch.randn(EXPERTS, M) * 0.5).to(BF16)
        if ON_GPU:
            self.up, self.down = Linear(EXPERTS, 2 * H, M), Linear(EXPERTS, M, H)
        else:
            self.up = [Linear(2 * H, M) for _ in range(EXPERTS)]
            self.down = [Linear(M, H) for _ in range(EXPERTS)]

    def attention(self, x):
        rows = self.qkv(x).reshape(MICRO_BATCH, SEQUENCE, HEADS + 2 * KV_HEADS, DIM)
        q, k, v = rows.split([HEADS, KV_HEADS, KV_HEADS], 2)
        q, k, v = rotated(q).transpose(1, 2), rotated(k).transpose(1, 2), v.transpose(1, 2)
        if ON_GPU:
            rows = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return self.out(rows.transpose(1, 2).reshape(-1, HEADS * DIM))
        k, v = k.repeat_interleave(HEADS // KV_HEADS, 1), v.repeat_interleave(HEADS // KV_HEADS, 1)
        scores = (torch.matmul(q, k.transpose(-2, -1)) * DIM**-0.5).masked_fill(MASK, float("-inf"))
        rows = torch.matmul(torch.softmax(scores, -1), v)
        return self.out(rows.transpose(1, 2).reshape(-1, HEADS * DIM))

    def experts(self, x):
        weights, _ = torch.softmax(F.linear(x, self.router).float(), -1).topk(TOP_K, -1)
        pairs = x.shape[0] * TOP_K
        order = (torch.arange(pairs) % EXPERTS).argsort(stable=True)
        weights = weights.reshape(-1)[order].unsqueeze(1).to(BF16)
        if ON_GPU:  # Additions to rows that others add to are slow there.
            place = order.argsort()
            return Combine.apply(self.grouped(Dispatch.apply(x, order, place)) * weights, order, place)
        out = self.one_by_one(x.index_select(0, order // TOP_K)) * weights
        return torch.zeros_like(x).index_add(0, order // TOP_K, out)

    def grouped(self, rows):
        each = rows.shape[0] // EXPERTS
        ends = torch.arange(each, rows.shape[0] + 1, each, dtype=torch.int32)
        hidden = swiglu(GroupedProduct.apply(rows, self.up.weight, self.up.master.grad, ends))
        return GroupedProduct.apply(hidden, self.down.weight, self.down.master.grad, ends)

    def one_by_one(self, rows):
        parts = zip(self.up, self.down, rows.split(rows.shape[0] // EXPERTS))
        return torch.cat([down(swiglu(up(part))) for up, down, part in parts])


def plain_swiglu(x):
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


swiglu = torch.compile(plain_swiglu) if ON_GPU else plain_swiglu

ANGLES = torch.rand(SEQUENCE, 1, DIM)
COS, SIN = ANGLES.cos().to(BF16), ANGLES.sin().to(BF16)
MASK = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).triu_(1)
ONES = torch.ones(M, dtype=BF16)


def rotated(x):
    left, right = x.chunk(2, -1)
    return x * COS + torch.cat((-right, left), -1) * SIN


def norm(x):
    return F.rms_norm(x, (M,), ONES, 1e-5) if ON_GPU else F.layer_norm(x, (M,), ONES, None, 1e-5)


EMBEDDING, HEAD = Linear(VOCAB, M), Linear(VOCAB, M)
STACK = [Layer() for _ in range(LAYERS)]
ADAM = torch.optim.AdamW([one.master for one in Linear.all], lr=1e-4, **({"fused": True} if ON_GPU else {}))


def loss_of(tokens):
    x = F.embedding(tokens, EMBEDDING.weight).reshape(-1, M).requires_grad_()
    for layer in STACK:
        x = x + layer.attention(norm(x))
        x = x + layer.experts(norm(x))
    return F.cross_entropy(HEAD(norm(x)), tokens.reshape(-1))


def step():
    for _ in range(BATCH // MICRO_BATCH):
        loss_of(torch.randint(0, VOCAB, (MICRO_BATCH, SEQUENCE))).backward()
    with torch.no_grad():
        for one in Linear.all:
            one.master.grad.mul_(0.5)
        torch.stack([one.master.grad.norm() for one in Linear.all]).norm()
    ADAM.step()
    with torch.no_grad():
        for one in Linear.all:
            one.weight.copy_(one.master)
            one.master.grad.zero_()


TIMES = []
for _ in range(STEPS + 2):  # The first two make their buffers.
    begin = time.perf_counter()
    step()
    if ON_GPU:
        torch.cuda.synchronize()
    TIMES.append(time.perf_counter() - begin)
print(statistics.median(TIMES[2:]))
