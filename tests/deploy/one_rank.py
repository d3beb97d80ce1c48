"""One rank of a job runs a MoELayer of the installed package forward and back, against plain PyTorch. Every token takes both experts.

Usage: one_rank.py LIBRARY, the file that the layer's functions have to come from.
"""

import sys

import torch

import moeplan.torch

library = sys.argv[1]
layer_fields = {"batch": 1, "sequenceLength": 6, "modelDim": 4, "hiddenDim": 3, "experts": 2, "topK": 2, "bytesPerElement": 4}
world = moeplan.torch.init()
layer = moeplan.torch.MoELayer({"workload": {"layer": layer_fields}, "best": {"schedule": "BASELINE"}}, world, seed=1)
x = torch.randn(6, 4, requires_grad=True)
y = layer(x)
gradients = torch.autograd.grad(y.square().sum(), [x, layer.gate, layer.up, layer.down])

plain = [value.detach().double().requires_grad_() for value in (x, layer.gate, layer.up, layer.down)]
rows, gate, up, down = plain
weights = (rows @ gate.T).softmax(-1)
expected = sum(
    weights[:, e : e + 1] * (torch.nn.functional.gelu(rows @ up[e]) @ down[e]) for e in range(layer_fields["experts"])
)
expected_gradients = torch.autograd.grad(expected.square().sum(), plain)
for found, wanted in zip([y.detach(), *gradients], [expected.detach(), *expected_gradients]):
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)

with open("/proc/self/maps") as maps:
    opened = {line.split()[-1] for line in maps if "/libmoeplan" in line}
if opened != {library}:
    sys.exit(f"one_rank: found {sorted(opened)} opened, expected {library}")
