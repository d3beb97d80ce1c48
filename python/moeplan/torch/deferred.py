"""Weight gradients that wait until an exchange hides them, or until autograd needs them.

A module whose weight gradients wait computes the gradient of its input at once. Those of its weights are an edge of
autograd's graph of their own, which `_Collect` stands for. Autograd goes back through nodes in the reverse of the order
in which they were made. The node of a waiting gradient is made right before that of the MoE layer whose exchange hides
it, so autograd comes to it right behind that layer: the gradient is there by then, or is computed then. What autograd
does with gradients of parameters stays as it is: sums over several uses, hooks, DistributedDataParallel.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

import torch
from torch.autograd.function import once_differentiable

Gradients = List[Tuple[torch.Tensor, torch.Tensor]]  # Parameters, each with its gradient.


class Deferred:
    """The gradients of a module's parameters that one forward pass leaves. Uses are those of its products, norms and so on."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self.parameters = [one for one in parameters if one.requires_grad]
        self._uses = 0
        self._due: dict[int, Callable[[], Gradients]] = {}
        self._done: dict[int, Gradients] = {}

    def open(self) -> torch.Tensor:
        """What stands for the parameters in autograd's graph: functions that read it leave their gradients here."""
        return _Collect.apply(self, *self.parameters)

    def add_use(self) -> int:
        self._uses += 1
        return self._uses

    def leave(self, use: int, compute: Callable[[], Gradients]) -> None:
        """``compute`` holds no part of autograd's graph. It takes the place of what was left of that use
        before, by a backward pass that has failed or that asked for no gradient of parameters."""
        self._due[use] = compute

    def run(self) -> None:
        """Computes what has been left by now."""
        while self._due:
            use = next(iter(self._due))
            self._done[use] = self._due.pop(use)()

    def take(self) -> list[torch.Tensor | None]:
        """The sums over all uses, by ``parameters``."""
        self.run()
        sums: dict[int, torch.Tensor] = {}
        for found in self._done.values():
            for parameter, gradient in found:
                known = sums.get(id(parameter))
                sums[id(parameter)] = gradient if known is None else known + gradient
        self._done = {}
        return [sums.get(id(parameter)) for parameter in self.parameters]


class Slots(Dict[str, Tuple[Deferred, torch.Tensor]]):
    """By path of a module: what its next forward pass leaves its weight gradients to, and the tensor that stands for that."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False  # Modules compute their weight gradients at once.
        self._taken: set[str] | None = None

    def take(self, path: str) -> tuple[Deferred, torch.Tensor] | None:
        """What the pass has that begins now; for nobody else, unless it is one of several parts."""
        if self._taken is None:
            return self.pop(path, None)
        self._taken.add(path)
        return self.get(path)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, passes of a module are parts of one."""
        self._taken = set()
        try:
            yield
        finally:
            for path in self._taken:
                self.pop(path, None)
            self._taken = None


class _Collect(torch.autograd.Function):
    """Parameters in, an empty tensor out. Going back it gives the gradients that were left."""

    @staticmethod
    def forward(ctx: Any, deferred: Deferred, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.deferred = deferred
        ctx.set_materialize_grads(False)
        return parameters[0].new_empty(0)  # On their device, whose queue of nodes is the one of the model.

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return (None, *ctx.deferred.take())


class Use:
    """One use of parameters by a function that leaves their gradients."""

    __slots__ = ("deferred", "number", "parameters")

    def __init__(self, deferred: Deferred, *parameters: torch.Tensor | None) -> None:
        self.deferred = deferred
        self.number = deferred.add_use()
        self.parameters = parameters

    def wants(self, index: int) -> bool:
        parameter = self.parameters[index]
        return parameter is not None and parameter.requires_grad

    def leave(self, compute: Callable[[], list[torch.Tensor | None]]) -> None:
        """``compute`` gives the gradients of ``parameters`` in their order, None for what is not wanted."""
        parameters = self.parameters
        self.deferred.leave(
            self.number,
            lambda: [
                (parameter, gradient.to(parameter.dtype))
                for parameter, gradient in zip(parameters, compute())
                if parameter is not None and gradient is not None
            ],
        )


class Product(torch.autograd.Function):
    """x · W + b with x [..., I]. ``weight`` is W [I, O] or, where ``transposed``, Wᵀ [O, I]; ``bias`` is [O] or None."""

    @staticmethod
    def forward(
        ctx: Any, use: Use, token: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: Any, transposed: bool
    ) -> torch.Tensor:
        ctx.use, ctx.transposed = use, transposed
        ctx.save_for_backward(x, weight)
        if transposed:
            return torch.nn.functional.linear(x, weight, bias)
        return x @ weight if bias is None else torch.addmm(bias, x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        use, transposed = ctx.use, ctx.transposed
        rows = x.detach().reshape(-1, x.shape[-1])
        gradients = gradient.detach().reshape(-1, gradient.shape[-1])

        def compute() -> list[torch.Tensor | None]:
            product = None
            if use.wants(0):
                product = gradients.t().mm(rows) if transposed else rows.t().mm(gradients)
            return [product, gradients.sum(0) if use.wants(1) else None]

        use.leave(compute)
        of_input = None
        if ctx.needs_input_grad[2]:
            of_input = gradients.mm(weight if transposed else weight.t()).view(x.shape)
        return None, None, of_input, None, None, None


class LayerNorm(torch.autograd.Function):
    """torch.nn.functional.layer_norm over the last dimensions, ``shape``."""

    @staticmethod
    def forward(
        ctx: Any, use: Use, token: torch.Tensor, x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float
    ) -> torch.Tensor:
        ctx.use, ctx.shape = use, list(shape)
        y, mean, scale = torch.native_layer_norm(x, ctx.shape, weight, bias, eps)
        ctx.save_for_backward(x, mean, scale, weight, bias)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        use, shape = ctx.use, ctx.shape
        x, mean, scale, weight, bias = (None if one is None else one.detach() for one in ctx.saved_tensors)
        gradient = gradient.detach()

        def parts(mask: list[bool]) -> Any:
            back = torch.ops.aten.native_layer_norm_backward
            return back(gradient, x, shape, mean, scale, weight, bias, mask)

        use.leave(lambda: list(parts([False, use.wants(0), use.wants(1)])[1:]))
        of_input = parts([True, False, False])[0] if ctx.needs_input_grad[2] else None
        return None, None, of_input, None, None, None, None


class Scale(torch.autograd.Function):
    """x ⊙ w with x [..., M] and w [M], as norms end that have a weight alone."""

    @staticmethod
    def forward(ctx: Any, use: Use, token: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.use = use
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = (one.detach() for one in ctx.saved_tensors)
        gradient = gradient.detach()
        ctx.use.leave(lambda: [(gradient * x).reshape(-1, x.shape[-1]).sum(0)])
        of_input = (gradient * weight).to(x.dtype) if ctx.needs_input_grad[2] else None
        return None, None, of_input, None
