"""Trains a small Mixtral on one processor with PyTorch alone, and prints the median seconds of a step.

    python3 train_step.py CONFIG.json GLOBAL_BATCH SEQUENCE_LENGTH MICRO_BATCH STEPS

What `moeplan step` predicts of a profile that `moeplan calibrate --local 1 --for CONFIG.json` measured is held against
it. Nothing of moeplan is in it: BF16 weights, FP32 gradients that weight gradients are added to, AdamW on FP32 masters,
scores stored, a product an expert, tokens dealt evenly to experts.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
torch.set_num_threads(1)
with open(sys.argv[1], encoding="utf-8") as file:
    CONFIG = json.load(file)
BATCH, SEQUENCE, MICRO_BATCH, STEPS = map(int, sys.argv[2:6])
M, H, LAYERS = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["num_hidden_layers"]
HEADS, KV_HEADS, VOCAB = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["vocab_size"]
EXPERTS, TOP_K = CONFIG["num_local_experts"], CONFIG["num_experts_per_tok"]
DIM = M // HEADS
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


class Linear:
    all = []

    def __init__(self, outputs, inputs):
        self.weight = (torch.randn(outputs, inputs) * 0.02).to(BF16)
        self.master = self.weight.float().requires_grad_()
        self.master.grad = torch.zeros(outputs, inputs)
        Linear.all.append(self)

    def __call__(self, x):
        return Product.apply(x, self.weight, self.master.grad)


class Layer:
    def __init__(self):
        self.qkv, self.out = Linear((HEADS + 2 * KV_HEADS) * DIM, M), Linear(M, HEADS * DIM)
        self.router = (torch.randn(EXPERTS, M) * 0.5).to(BF16)
        self.up = [Linear(2 * H, M) for _ in range(EXPERTS)]
        self.down = [Linear(M, H) for _ in range(EXPERTS)]

    def attention(self, x):
        rows = self.qkv(x).reshape(MICRO_BATCH, SEQUENCE, HEADS + 2 * KV_HEADS, DIM)
        q, k, v = rows.split([HEADS, KV_HEADS, KV_HEADS], 2)
        q, k, v = rotated(q).transpose(1, 2), rotated(k).transpose(1, 2), v.transpose(1, 2)
        k, v = k.repeat_interleave(HEADS // KV_HEADS, 1), v.repeat_interleave(HEADS // KV_HEADS, 1)
        scores = (torch.matmul(q, k.transpose(-2, -1)) * DIM**-0.5).masked_fill(MASK, float("-inf"))
        rows = torch.matmul(torch.softmax(scores, -1), v)
        return self.out(rows.transpose(1, 2).reshape(-1, HEADS * DIM))

    def experts(self, x):
        weights, _ = torch.softmax(F.linear(x, self.router).float(), -1).topk(TOP_K, -1)
        pairs = x.shape[0] * TOP_K
        order = (torch.arange(pairs) % EXPERTS).argsort(stable=True)
        rows, outs = x.index_select(0, order // TOP_K), []
        for up, down, part in zip(self.up, self.down, rows.split(pairs // EXPERTS)):
            gate, value = up(part).chunk(2, -1)
            outs.append(down(F.silu(gate) * value))
        out = torch.cat(outs) * weights.reshape(-1)[order].unsqueeze(1).to(BF16)
        return torch.zeros_like(x).index_add(0, order // TOP_K, out)


ANGLES = torch.rand(SEQUENCE, 1, DIM)
COS, SIN = ANGLES.cos().to(BF16), ANGLES.sin().to(BF16)
MASK = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).triu_(1)
ONES = torch.ones(M, dtype=BF16)


def rotated(x):
    left, right = x.chunk(2, -1)
    return x * COS + torch.cat((-right, left), -1) * SIN


def norm(x):
    return F.layer_norm(x, (M,), ONES, None, 1e-5)


EMBEDDING, HEAD = Linear(VOCAB, M), Linear(VOCAB, M)
STACK = [Layer() for _ in range(LAYERS)]
ADAM = torch.optim.AdamW([one.master for one in Linear.all], lr=1e-4)


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
    TIMES.append(time.perf_counter() - begin)
print(statistics.median(TIMES[2:]))
