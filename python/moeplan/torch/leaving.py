"""Modules that leave their weight gradients, without a change of their code: what they call is looked at as it runs."""

from __future__ import annotations

from typing import Any, Callable, Iterable

import torch
from torch.overrides import TorchFunctionMode

from moeplan.errors import mismatch
from moeplan.torch.deferred import Deferred, LayerNorm, Product, Scale, Slots, Use


class Leaving:
    """Makes ``module``, at ``path`` of its model, leave the gradients of its own parameters: to what ``slots`` has for it, or
    to autograd's next turn. After ``end`` it is as ever.

    What can wait: torch.nn.functional.linear, layer_norm and rms_norm, products with a matrix (``x @ w``, ``x @ w.T``,
    torch.addmm) and elementwise ones with a vector, of a parameter as it is; under autocast the products alone.
    """

    def __init__(self, path: str, module: torch.nn.Module, slots: Slots) -> None:
        self.module = module
        self._path = path
        self._slots = slots
        self._own = "forward" in vars(module)  # Somebody else has replaced it before.
        self._forward = module.forward
        module.forward = self._run  # type: ignore[method-assign]

    def end(self) -> None:
        if self._own:
            self.module.forward = self._forward  # type: ignore[method-assign]
        else:
            del self.module.forward

    def _run(self, *arguments: Any, **keywords: Any) -> Any:
        if self._slots.closed:
            return self._forward(*arguments, **keywords)
        slot = self._slots.take(self._path)
        own = [one for one in self.module._parameters.values() if one is not None]
        if not torch.is_grad_enabled() or not any(one.requires_grad for one in own):
            return self._forward(*arguments, **keywords)
        if slot is None or not _same(slot[0].parameters, own):
            # Nothing hides them, as in what activation checkpointing computes again, which has to save the same tensors.
            deferred = Deferred(own)
            slot = deferred, deferred.open()
        with _Calls(*slot, own) as calls:
            result = self._forward(*arguments, **keywords)
        if not calls.left and not _autocast(own[0].device.type):
            raise mismatch(
                f"{self._path}.dw",
                f"{type(self.module).__name__}, which calls nothing whose weight gradient can wait",
                "a module that calls linear, layer_norm, or a product with a parameter of its own",
            )
        return result


def can_leave(module: torch.nn.Module, args: Any, kwargs: Any) -> bool:
    """Whether a call of the module with these arguments has a weight gradient that ``Leaving`` can leave. Runs the module,
    where it is none that always has."""
    own = [one for one in module._parameters.values() if one is not None]
    if not any(one.requires_grad for one in own):
        return False
    if type(module) in (torch.nn.Linear, torch.nn.LayerNorm):
        return True
    deferred = Deferred(own)
    with torch.enable_grad(), _Calls(deferred, deferred.open(), own) as calls:
        module.forward(*args, **kwargs)
    return calls.left


def _same(parameters: Iterable[torch.Tensor], own: Iterable[torch.Tensor]) -> bool:
    """Whether autograd's graph has room for those that learn: a wrapper may have put others in their place."""
    return [id(one) for one in parameters] == [id(one) for one in own if one.requires_grad]


class _Calls(TorchFunctionMode):
    """While it is entered, functions of PyTorch that are called with one of ``parameters`` leave their gradients."""

    def __init__(self, deferred: Deferred, token: torch.Tensor, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.left = False
        self._deferred = deferred
        self._token = token
        self._known = {id(one) for one in parameters}  # Those that are frozen, too.
        self._transposed: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # Each with its parameter.

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = _RULES.get(getattr(func, "__name__", ""))
        found = None if rule is None else rule(self, func, *args, **kwargs)
        return func(*args, **kwargs) if found is None else found

    def has(self, tensor: Any) -> bool:
        return id(tensor) in self._known

    def leave(self, function: Any, parameters: tuple[Any, ...], *arguments: Any) -> torch.Tensor:
        self.left = True
        return function.apply(Use(self._deferred, *parameters), self._token, *arguments)

    def product(self, x: torch.Tensor, weight: torch.Tensor, bias: Any, transposed: bool) -> torch.Tensor | None:
        if not self.has(weight) or weight.dim() != 2 or not isinstance(x, torch.Tensor) or x.dim() < 2:
            return None
        if bias is not None and bias.requires_grad and not self.has(bias):
            return None  # Somebody else's, whose gradient autograd has to see.
        given = [None if one is None else one.detach() for one in (weight, bias)]
        if _autocast(x.device.type):
            dtype = _autocast_dtype(x.device.type)
            x, *given = (None if one is None else one.to(dtype) for one in (x, *given))
        return self.leave(Product, (weight, bias), x, *given, transposed)

    def note_transposed(self, weight: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        self._transposed[id(made)] = (made, weight)
        return made

    def parameter_of(self, tensor: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """The parameter that ``tensor`` is or is the transpose of, and whether it is the transpose."""
        if id(tensor) in self._transposed:
            return self._transposed[id(tensor)][1], True
        return tensor, False


# ---- What is done for a call. A rule gives None where it has nothing to say, and the function is called as it is.


def _linear(calls: _Calls, _: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    return calls.product(input, weight, bias, True)


def _matmul(calls: _Calls, _: Any, x: Any, other: Any, *rest: Any, **more: Any) -> Any:
    if rest or more:
        return None
    weight, transposed = calls.parameter_of(other)
    return calls.product(x, weight, None, transposed)


def _addmm(calls: _Calls, _: Any, bias: Any, x: Any, other: Any, *rest: Any, **more: Any) -> Any:
    weight, transposed = calls.parameter_of(other)
    if rest or more or bias.dim() != 1:
        return None
    return calls.product(x, weight, bias, transposed)


def _layer_norm(
    calls: _Calls, _: Any, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any
) -> Any:
    if not calls.has(weight) or (bias is not None and bias.requires_grad and not calls.has(bias)):
        return None
    if _autocast(input.device.type) or input.dtype != weight.dtype:
        return None
    given = [None if one is None else one.detach() for one in (weight, bias)]
    return calls.leave(LayerNorm, (weight, bias), input, normalized_shape, *given, eps)


def _scale(calls: _Calls, _: Any, one: Any, other: Any, *rest: Any, **more: Any) -> Any:
    x, weight = (other, one) if calls.has(one) else (one, other)
    if rest or more or not calls.has(weight) or calls.has(x) or not isinstance(x, torch.Tensor):
        return None
    if weight.dim() != 1 or x.dim() < 1 or x.shape[-1] != weight.shape[0] or _autocast(x.device.type):
        return None
    return calls.leave(Scale, (weight,), x, weight.detach())


def _rms_norm(
    calls: _Calls, func: Any, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    if not calls.has(weight) or input.dtype != torch.float32:  # In BF16 it rounds once, and the two below would twice.
        return None
    return _scale(calls, func, func(input, normalized_shape, None, eps), weight)


def _property(calls: _Calls, func: Any, tensor: Any, *rest: Any) -> Any:
    if func.__self__ is not torch.Tensor.T or not calls.has(tensor) or tensor.dim() != 2:
        return None
    return calls.note_transposed(tensor, func(tensor))


def _transpose(calls: _Calls, func: Any, tensor: Any, *dimensions: Any, **more: Any) -> Any:
    swaps = {one % 2 for one in dimensions if isinstance(one, int)} == {0, 1} or (func.__name__ == "t" and not dimensions)
    if more or not swaps or not calls.has(tensor) or tensor.dim() != 2:
        return None
    return calls.note_transposed(tensor, func(tensor, *dimensions))


_RULES: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "addmm": _addmm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "__get__": _property,
    **dict.fromkeys(("matmul", "__matmul__", "mm"), _matmul),
    **dict.fromkeys(("mul", "__mul__", "__rmul__", "multiply"), _scale),
    **dict.fromkeys(("t", "transpose"), _transpose),
}


def _autocast(device: str) -> bool:
    return torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled()


def _autocast_dtype(device: str) -> torch.dtype:
    return torch.get_autocast_cpu_dtype() if device == "cpu" else torch.get_autocast_gpu_dtype()
